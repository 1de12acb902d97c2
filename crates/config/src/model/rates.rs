//! Rate limits of clients.

use std::fmt;
use std::time::Duration;

use serde_json::json;

use super::tools::check_pattern;
use super::values::ANY;
use crate::definition::Visible;
use crate::option::{Maybe, Nested, OneOrMany, Parsed, checked, choice, count, options, time};

options! {
    /// A rate limit. A request counts against every limit that covers it; a refused request counts
    /// against none.
    pub struct RateRule: "rate", "in an entry of `rates`";
    options {
        /// The separate counters: one or several of `principal`, `endpoint`, `server` and `tool`.
        /// `[principal, tool]` gives each principal a limit of its own for each tool.
        /// Unauthenticated clients are distinguished by their address.
        "for" => of: Vec<RateDimension> = vec![RateDimension::Principal], OneOrMany(DIMENSION), example "[principal, tool]";
        /// The requests that count. Default: all.
        "match" => only: RateMatch = RateMatch::default(), Nested::<RateMatch>::KIND;
        /// The number of requests in a period: `50/s`, `600/m` or `1000/h`, spread evenly over the
        /// period.
        "rate" => rate: Frequency = Frequency { most: 600, per: Duration::from_secs(60) }, FREQUENCY, example "600/m";
        /// The number of requests at once. Default: the whole number in `rate`.
        "burst" => burst: Option<usize> = None, Maybe(count(1, 1_000_000)), example "100";
        /// The time for which a request over the limit may wait for its turn; longer waits are
        /// refused at once.
        "queue" => queue: Duration = Duration::ZERO, time(Duration::ZERO, Duration::from_secs(60)), example "2s";
        /// Makes all `replicas` share the limit, and says what happens while Valkey is away: `part`
        /// lets each replica allow its part, `refuse` refuses. Default: each replica has its own
        /// limit, and no request waits for Valkey.
        "shared" => shared: Option<WithoutValkey> = None, Maybe(WITHOUT_VALKEY), example "# part";
    }
}

options! {
    /// The requests that a limit covers or a hook judges: calls of these tools, calls at these
    /// servers, requests to these endpoints.
    pub struct RateMatch: "match", "in `match` of a rate or hook";
    options {
        /// Tools, as `server/name` or `name` with the server's own name for it; `*` stands for any
        /// characters.
        "tool" => tools: Vec<String> = Vec::new(), OneOrMany(TOOL), example "[\"search/*\"]";
        /// Servers, by name.
        "server" => servers: Vec<String> = Vec::new(), OneOrMany(ANY), example "[billing]";
        /// Endpoints, by path.
        "endpoint" => endpoints: Vec<String> = Vec::new(), OneOrMany(ANY), example "[/mcp]";
    }
}

choice! {
    /// The behaviour of a shared limit while Valkey is away.
    WithoutValkey, WITHOUT_VALKEY {
        /// Each replica allows its part.
        Part = "part",
        /// Covered requests are refused.
        Refuse = "refuse",
    }
}

fanlight_protocol::named! {
    /// A dimension of a limit's separate counters.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RateDimension {
        /// Each client.
        Principal = "principal",
        /// Each endpoint.
        Endpoint = "endpoint",
        /// Each server.
        Server = "server",
        /// Each tool of each server.
        Tool = "tool",
    }
}

/// A number of requests in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frequency {
    /// The number, at least one.
    pub most: usize,
    /// The period: a second, a minute or an hour.
    pub per: Duration,
}

const DIMENSION: Parsed<RateDimension> = checked!(
    Visible::All,
    |text| text.parse().ok(),
    "is nothing for which a rate is counted",
    "write some of `principal`, `endpoint`, `server` and `tool`",
    |dimension: &RateDimension| json!(dimension.as_str())
);

/// The frequency in the configuration's notation.
impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS
            .iter()
            .find(|(_, seconds)| *seconds == self.per.as_secs())
            .map_or("s", |(unit, _)| unit);
        write!(f, "{}/{unit}", self.most)
    }
}

const UNITS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3600)];

fn frequency(text: &str) -> Option<Frequency> {
    let (most, unit) = text.split_once('/')?;
    let most = most.trim().parse().ok();
    let (_, seconds) = UNITS.iter().find(|(known, _)| *known == unit.trim())?;
    Some(Frequency {
        most: most.filter(|most| (1..=1_000_000).contains(most))?,
        per: Duration::from_secs(*seconds),
    })
}

const FREQUENCY: Parsed<Frequency> = checked!(
    Visible::All,
    frequency,
    "is not a rate",
    "write a number up to 1000000 and a time, such as `50/s`, `600/m` or `1000/h`",
    |frequency| json!(frequency.to_string())
);

const TOOL: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        check_pattern(reader, text.span, &text.value);
        Some(text.value)
    },
    show: |pattern| json!(pattern),
};
