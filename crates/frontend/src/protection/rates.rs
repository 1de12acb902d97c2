//! How often clients may ask: limits that a request takes from before it is carried out, from all or from none.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::{Decidable, Peer};
use fanlight_fair::{Charge, Quota, Rate, TooMany};
use fanlight_protocol::Method;

use super::common::{CommonEntry, CommonLimit, Taking, WithoutOthers};
use super::scopes::{Operation, ToolNames};
use super::turn::{Counts, Key, Turn};

/// What a limit counts apart at most: others are counted together. No option: no team has as many clients.
const KEYS: usize = 100_000;

/// A limit.
#[derive(Clone)]
pub struct RateRule {
    /// Tells it from others: while a limit with the same text is configured, it keeps what was used.
    pub id: String,
    /// What operators know it by.
    pub name: String,
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
        f.debug_struct("RateRule")
            .field("id", &self.id)
            .field("of", &self.of)
            .finish_non_exhaustive()
    }
}

/// The limits in force.
#[derive(Debug, Default)]
pub(crate) struct Rates(Vec<Limit>);

/// A limit, and what was used of it.
#[derive(Debug)]
struct Limit {
    rule: RateRule,
    rate: Rate<Key>,
    counts: Arc<Counts>,
}

/// What operators see of a limit.
#[derive(Clone, Debug)]
pub struct RateState {
    /// [`RateRule::name`].
    pub name: String,
    /// How many at once.
    pub most: usize,
    /// Requests that it let run at once.
    pub passed: u64,
    /// Requests that had to wait for their turn.
    pub waited: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// How many it counts apart now.
    pub keys: usize,
    /// Those who have used most, the largest first.
    pub nearest: Vec<RateUse>,
}

/// What one of those that a limit counts apart has used.
#[derive(Clone, Debug)]
pub struct RateUse {
    /// The client, if each has a limit of its own, and so on.
    pub client: Option<String>,
    /// The path of the endpoint.
    pub endpoint: Option<String>,
    /// The server.
    pub server: Option<String>,
    /// The server's own name of the tool; empty for those that no list has.
    pub tool: Option<String>,
    /// How many, of [`RateState::most`]; more where requests wait for their turn.
    pub used: usize,
}

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
        Self {
            server: subject.server(),
            tool: subject.tool().map(|tool| tool.name),
        }
    }
}

impl Rates {
    /// These limits, of which those that were in force keep what was used. One that is written twice is one.
    pub(crate) fn new(rules: Vec<RateRule>, before: &Self) -> Self {
        let mut limits: Vec<Limit> = Vec::new();
        for rule in rules {
            let (rate, counts) = match before.0.iter().find(|known| known.rule.id == rule.id) {
                Some(known) => (known.rate.clone(), Arc::clone(&known.counts)),
                None => (Rate::new(KEYS), Arc::default()),
            };
            if limits.iter().all(|known| known.rule.id != rule.id) {
                limits.push(Limit { rule, rate, counts });
            }
        }
        Self(limits)
    }

    /// What operators see of the limits, with the keys of each that have used most.
    pub(crate) fn states(&self, keys: usize) -> Vec<RateState> {
        self.0.iter().map(|limit| limit.state(keys)).collect()
    }

    /// Whether there is no limit.
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them depends on the tool of a call.
    pub(crate) fn depend_on_tools(&self) -> bool {
        self.0.iter().any(|limit| limit.rule.is_about_calls())
    }

    /// Takes a request from all limits of this process that it falls under. It runs at once, or when its turn comes.
    ///
    /// # Errors
    ///
    /// If one of them has none left: then it takes from none.
    pub(crate) fn take(&self, asked: Asked<'_>) -> Result<Taking, TooMany> {
        let mut taking = Taking {
            turn: Turn::default(),
            common: Vec::new(),
        };
        if Operation::of(asked.subject.method()) == Operation::Free {
            return Ok(taking);
        }
        let called = Called::of(asked.subject);
        for limit in self
            .0
            .iter()
            .filter(|limit| limit.rule.is_about(asked, &called))
        {
            let key = limit.rule.key(asked, &called);
            match limit.rule.common {
                Some(without) => {
                    let (rate, counts) = (limit.rate.clone(), Arc::clone(&limit.counts));
                    let limit = limit.rule.common_limit(&key);
                    taking.common.push(CommonEntry {
                        limit,
                        without,
                        rate,
                        key,
                        counts,
                    });
                }
                None => {
                    // What was taken before is given back with the turn.
                    let (charge, wait) = limit.charge(&key)?;
                    taking.turn.charged(charge, wait);
                }
            }
        }
        Ok(taking)
    }
}

impl Limit {
    fn charge(&self, key: &Key) -> Result<(Charge<Key>, Duration), TooMany> {
        let charged = self
            .rate
            .charge_within(key, self.rule.quota(), self.rule.queue);
        self.counts
            .add(charged.as_ref().ok().map(|(_, wait)| *wait));
        charged
    }

    fn state(&self, keys: usize) -> RateState {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let used = |(key, used): (Key, usize)| {
            let text = |text: Option<Box<str>>| text.map(String::from);
            let Key {
                peer,
                endpoint,
                server,
                tool,
            } = key;
            let client = peer.map(|peer| peer.to_string());
            RateUse {
                client,
                endpoint: text(endpoint),
                server: text(server),
                tool: text(tool),
                used,
            }
        };
        RateState {
            name: self.rule.name.clone(),
            most: self.rule.most,
            passed: count(&self.counts.passed),
            waited: count(&self.counts.waited),
            refused: count(&self.counts.refused),
            keys: self.rate.len(),
            nearest: self
                .rate
                .most_used(self.rule.quota(), keys)
                .into_iter()
                .map(used)
                .collect(),
        }
    }
}

impl RateRule {
    fn quota(&self) -> Quota {
        Quota {
            most: self.most,
            per: self.per,
        }
    }

    fn common_limit(&self, key: &Key) -> CommonLimit {
        let client = key.peer.as_ref().map(Peer::to_bytes);
        CommonLimit {
            key: key.to_bytes(&self.id),
            client,
            most: self.most,
            per: self.per,
            queue: self.queue,
        }
    }

    /// Whether it counts calls of tools alone.
    fn is_about_calls(&self) -> bool {
        self.of.server || self.of.tool || self.tools.is_some() || self.servers.is_some()
    }

    fn is_about(&self, asked: Asked<'_>, called: &Called<'_>) -> bool {
        if self.is_about_calls() && *asked.subject.method() != Method::CallTool {
            return false;
        }
        let is_one = |all: &Option<Vec<String>>, one: &str| {
            all.as_ref()
                .is_none_or(|all| all.iter().any(|it| it == one))
        };
        let is_tool = || match (&self.tools, called.server, &called.tool) {
            (Some(tools), Some(server), Some(tool)) => tools(server, tool),
            _ => true,
        };
        let is_server = called
            .server
            .is_none_or(|server| is_one(&self.servers, server));
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
