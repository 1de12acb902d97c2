//! How often clients may ask: limits that a request takes from before it is carried out, from all or from none.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use fanlight_canonical::{Decidable, Peer};
use fanlight_fair::{Charge, Quota, Rate, TooMany};
use fanlight_protocol::Method;
use tokio::time::sleep;

use super::common::{CommonEntry, CommonLimit, Taking, WithoutOthers};
use super::scopes::{Operation, ToolNames};

/// What a limit counts apart at most: others are counted together. No option: no team has as many clients.
const KEYS: usize = 100_000;

/// A limit.
#[derive(Clone)]
pub struct RateRule {
    /// Tells it from others: while a limit with the same text is configured, it keeps what was used.
    pub id: String,
    /// What is counted apart.
    pub of: RateDimensions,
    /// The tools that it is about; `None` for all requests.
    pub tools: Option<ToolNames>,
    /// The servers that it is about; `None` for all.
    pub servers: Option<Vec<String>>,
    /// The paths of the endpoints that it is about; `None` for all.
    pub endpoints: Option<Vec<String>>,
    /// How many at once, and as many again evenly over each such time.
    pub most: usize,
    /// In which time.
    pub per: Duration,
    /// How long a request waits for its turn.
    pub queue: Duration,
    /// That several processes count together, and what happens while they cannot; `None` if each counts for itself.
    pub common: Option<WithoutOthers>,
}

/// What a limit counts apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateDimensions {
    /// Each client.
    pub principal: bool,
    /// Each endpoint.
    pub endpoint: bool,
    /// Each server.
    pub server: bool,
    /// Each tool of each server.
    pub tool: bool,
}

impl fmt::Debug for RateRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateRule").field("id", &self.id).field("of", &self.of).finish_non_exhaustive()
    }
}

/// What is counted: the members that the limit does not count apart are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    peer: Option<Peer>,
    endpoint: Option<Box<str>>,
    server: Option<Box<str>>,
    tool: Option<Box<str>>,
}

/// The limits in force.
#[derive(Debug, Default)]
pub(crate) struct Rates(Vec<(RateRule, Rate<Key>)>);

/// A request, as limits see it.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) peer: &'a Peer,
    /// The path of the endpoint.
    pub(crate) endpoint: &'a str,
    pub(crate) subject: &'a dyn Decidable,
}

/// What a request calls.
struct Called<'a> {
    /// `None` if that is not known.
    server: Option<&'a str>,
    /// The server's own name of the tool; `None` for one that no list has: only the server knows which tool it means, so that
    /// it could be each.
    tool: Option<Cow<'a, str>>,
}

impl<'a> Called<'a> {
    fn of(subject: &'a dyn Decidable) -> Self {
        Self { server: subject.server(), tool: subject.tool().map(|tool| tool.name) }
    }
}

/// The turn of a request that waits for it. What it has taken is given back if it is dropped before its turn.
#[derive(Debug)]
pub(crate) struct Turn {
    wait: Duration,
    charges: Vec<Charge<Key>>,
}

impl Rates {
    /// These limits, of which those that were in force keep what was used.
    pub(crate) fn new(rules: Vec<RateRule>, before: &Self) -> Self {
        let used =
            |rule: &RateRule| before.0.iter().find(|(known, _)| known.id == rule.id).map(|(_, rate)| rate.clone());
        let with_rate = |rule: RateRule| {
            let rate = used(&rule).unwrap_or_else(|| Rate::new(KEYS));
            (rule, rate)
        };
        Self(rules.into_iter().map(with_rate).collect())
    }

    /// Whether there is no limit.
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them depends on the tool of a call.
    pub(crate) fn depend_on_tools(&self) -> bool {
        self.0.iter().any(|(rule, _)| rule.is_about_calls())
    }

    /// Takes a request from all limits of this process that it falls under. It runs at once, or when its turn comes.
    ///
    /// # Errors
    ///
    /// If one of them has none left: then it takes from none.
    pub(crate) fn take(&self, asked: Asked<'_>) -> Result<Taking, TooMany> {
        let mut taking = Taking { turn: Turn { wait: Duration::ZERO, charges: Vec::new() }, common: Vec::new() };
        if Operation::of(asked.subject.method()) == Operation::Free {
            return Ok(taking);
        }
        let called = Called::of(asked.subject);
        for (rule, rate) in self.0.iter().filter(|(rule, _)| rule.is_about(asked, &called)) {
            let key = rule.key(asked, &called);
            match rule.common {
                Some(without) => {
                    let limit = rule.common_limit(&key);
                    taking.common.push(CommonEntry { limit, without, rate: rate.clone(), key });
                }
                None => {
                    // What was taken before is given back with the turn.
                    let (charge, wait) = rate.charge_within(&key, rule.quota(), rule.queue)?;
                    taking.turn.charged(charge, wait);
                }
            }
        }
        Ok(taking)
    }
}

impl RateRule {
    fn quota(&self) -> Quota {
        Quota { most: self.most, per: self.per }
    }

    fn common_limit(&self, key: &Key) -> CommonLimit {
        CommonLimit { key: key.to_bytes(&self.id), most: self.most, per: self.per, queue: self.queue }
    }

    /// Whether it counts calls of tools alone.
    fn is_about_calls(&self) -> bool {
        self.of.server || self.of.tool || self.tools.is_some() || self.servers.is_some()
    }

    fn is_about(&self, asked: Asked<'_>, called: &Called<'_>) -> bool {
        if self.is_about_calls() && *asked.subject.method() != Method::CallTool {
            return false;
        }
        let is_one =
            |all: &Option<Vec<String>>, one: &str| all.as_ref().is_none_or(|all| all.iter().any(|it| it == one));
        let is_tool = || match (&self.tools, called.server, &called.tool) {
            (Some(tools), Some(server), Some(tool)) => tools(server, tool),
            _ => true,
        };
        let is_server = called.server.is_none_or(|server| is_one(&self.servers, server));
        is_server && is_tool() && is_one(&self.endpoints, asked.endpoint)
    }

    fn key(&self, asked: Asked<'_>, called: &Called<'_>) -> Key {
        let server = called.server.unwrap_or_default();
        let tool = called.tool.as_deref().unwrap_or_default();
        Key {
            peer: self.of.principal.then(|| asked.peer.clone()),
            endpoint: self.of.endpoint.then(|| asked.endpoint.into()),
            server: (self.of.server || self.of.tool).then(|| server.into()),
            tool: self.of.tool.then(|| tool.into()),
        }
    }
}

impl Key {
    /// The same in every process, and other bytes for every other key and rule.
    fn to_bytes(&self, rule: &str) -> Vec<u8> {
        let peer = self.peer.as_ref().map(Peer::to_bytes);
        let text = |text: &Option<Box<str>>| text.as_ref().map(|text| text.as_bytes().to_vec());
        let parts = [Some(rule.as_bytes().to_vec()), peer, text(&self.endpoint), text(&self.server), text(&self.tool)];
        let mut bytes = Vec::new();
        for part in parts {
            // An absent part is as long as none can be.
            let length = part.as_ref().map_or(u64::MAX, |part| u64::try_from(part.len()).unwrap_or(u64::MAX));
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend(part.into_iter().flatten());
        }
        bytes
    }
}

impl Turn {
    /// Adds what was charged.
    pub(super) fn charged(&mut self, charge: Charge<Key>, wait: Duration) {
        self.charges.push(charge);
        self.wait(wait);
    }

    /// Has it come after `wait` at the earliest.
    pub(super) fn wait(&mut self, wait: Duration) {
        self.wait = self.wait.max(wait);
    }

    /// Itself, unless it has come: then what was charged stays used.
    pub(super) fn unless_now(mut self) -> Option<Self> {
        if self.wait.is_zero() {
            self.charges.clear();
            return None;
        }
        Some(self)
    }

    /// Waits until it has come.
    pub(crate) async fn come(mut self) {
        sleep(self.wait).await;
        self.charges.clear();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.charges.drain(..).for_each(Charge::refund);
    }
}

#[cfg(test)]
mod tests {
    use fanlight_identity::Principal;

    use super::*;

    #[test]
    fn bytes_of_keys_are_those_of_one_key_alone() {
        let named = |text: &str| Some(Box::from(text));
        let ann = Some(Peer::Principal(Principal::named("keys", "ann")));
        let keys = [
            Key::default(),
            Key { endpoint: named("ab"), ..Key::default() },
            Key { server: named("ab"), ..Key::default() },
            Key { server: named("a"), tool: named("b"), ..Key::default() },
            Key { server: named(""), tool: named("ab"), ..Key::default() },
            Key { peer: ann.clone(), ..Key::default() },
            Key { peer: Some(Peer::User(7)), ..Key::default() },
            Key { peer: Some(Peer::Local), ..Key::default() },
        ];
        let all: std::collections::HashSet<_> =
            keys.iter().flat_map(|key| ["one rule", "another"].map(|rule| key.to_bytes(rule))).collect();
        assert_eq!(all.len(), 2 * keys.len());
        assert_eq!(
            Key { peer: ann.clone(), ..Key::default() }.to_bytes("r"),
            Key { peer: ann, ..Key::default() }.to_bytes("r")
        );
    }
}
