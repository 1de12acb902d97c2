//! The filters of `fanlight traces`: the parameters of `GET /api/traces`.

use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use fanlight_protocol::epoch;

/// Filters and order of the listed traces.
#[derive(Debug, Default, Args)]
pub struct TraceFilters {
    /// Only traces that went to this server
    #[arg(long = "server", value_name = "NAME", conflicts_with = "trace_id")]
    backend: Option<String>,
    /// Only traces that called this tool, by its own or its prefixed name
    #[arg(long, value_name = "NAME", conflicts_with = "trace_id")]
    tool: Option<String>,
    /// Only traces with a message of this method, such as `tools/list`, or `connect` for
    /// connections to servers
    #[arg(long, value_name = "METHOD", conflicts_with = "trace_id")]
    method: Option<String>,
    /// Only traces of clients whose name or version contains this text
    #[arg(long, value_name = "TEXT", conflicts_with = "trace_id")]
    client: Option<String>,
    /// Only traces of clients with this principal name
    #[arg(long, value_name = "NAME", conflicts_with = "trace_id")]
    principal: Option<String>,
    /// Only traces with this outcome
    #[arg(long, conflicts_with = "trace_id")]
    outcome: Option<Outcome>,
    /// Only traces with an error
    #[arg(long, conflicts_with = "trace_id")]
    error: bool,
    /// Only traces with this text in their id, or in a span's name or attributes
    #[arg(long, value_name = "TEXT", conflicts_with = "trace_id")]
    text: Option<String>,
    /// Only traces that began within this time, such as `10m`
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "trace_id")]
    since: Option<Duration>,
    /// Only traces that lasted at least this long, such as `500ms`
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "trace_id")]
    slower: Option<Duration>,
    /// Fanlight's own requests, such as lists, health checks and connections, instead of clients'
    #[arg(long, conflicts_with = "trace_id")]
    own: bool,
    /// Order of the list
    #[arg(long, conflicts_with = "trace_id")]
    sort: Option<Sort>,
}

/// How a trace has ended.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Outcome {
    /// No error
    Ok,
    /// The tool reported an error
    ToolError,
    /// A JSON-RPC error, or an invalid message
    ProtocolError,
    /// The client cancelled or left
    Cancelled,
    /// No connection, no answer, or a limit exceeded
    Failed,
}

/// The order of traces.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    /// Latest first
    Newest,
    /// Longest first
    Slowest,
}

impl TraceFilters {
    /// The query parameters of the request, at the time `now`.
    pub fn query(&self, now: SystemTime) -> Vec<(&'static str, String)> {
        let text = |value: &Option<String>| value.clone();
        let millis = |duration: Duration| duration.as_millis().to_string();
        let since = |ago: Duration| millis(epoch::since(now).saturating_sub(ago));
        let parameters = [
            ("backend", text(&self.backend)),
            ("tool", text(&self.tool)),
            ("method", text(&self.method)),
            ("client", text(&self.client)),
            ("principal", text(&self.principal)),
            ("outcome", self.outcome.and_then(api_name)),
            ("text", text(&self.text)),
            ("own", Some(self.own.to_string())),
            ("error", self.error.then(|| "true".to_owned())),
            ("since", self.since.map(since)),
            ("minMs", self.slower.map(millis)),
            ("sort", self.sort.and_then(api_name)),
        ];
        parameters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// The name of a choice in the API, which has underscores.
fn api_name(choice: impl ValueEnum) -> Option<String> {
    Some(choice.to_possible_value()?.get_name().replace('-', "_"))
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    fanlight_config::parse_duration(text)
        .ok_or_else(|| "a duration is a number with a unit, such as 500ms, 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn filters_are_parameters_of_the_api() {
        let none = TraceFilters::default().query(SystemTime::now());
        assert_eq!(none, [("own", "false".to_owned())]);
        let filters = TraceFilters {
            client: Some("a b".to_owned()),
            outcome: Some(Outcome::ToolError),
            since: Some(duration("10s").unwrap()),
            slower: Some(duration("1.5s").unwrap()),
            sort: Some(Sort::Slowest),
            ..TraceFilters::default()
        };
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let query = filters
            .query(now)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>();
        assert_eq!(
            query,
            [
                "client=a b",
                "outcome=tool_error",
                "own=false",
                "since=90000",
                "minMs=1500",
                "sort=slowest"
            ]
        );
        assert!(duration("soon").is_err());
    }
}
