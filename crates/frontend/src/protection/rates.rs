//! Rate limits. A request is counted against all limits that apply before it runs, or against none.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::{Decidable, Peer};
use fanlight_config::WithoutValkey;
use fanlight_fair::{Charge, Quota, Rate, TooMany};
use fanlight_protocol::Method;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::scopes::{Operation, ToolNames};

/// The maximum number of keys per limit; further ones share one count. A constant, since no team
/// has as many clients.
const KEYS: usize = 100_000;

/// A rate limit.
#[derive(Clone)]
pub struct RateRule {
    /// Identifies the limit. A limit with the same text keeps its counts on a reload.
    pub id: String,
    /// The name for operators.
    pub name: String,
    /// The dimensions that are counted separately.
    pub of: RateDimensions,
    /// The requests that the limit applies to.
    pub only: RequestMatch,
    /// The number of requests allowed at once, and again evenly over each period.
    pub most: usize,
    /// The period of the limit.
    pub per: Duration,
    /// The longest wait for a turn.
    pub queue: Duration,
    /// The behaviour if several processes count together and cannot reach each other. `None` if
    /// each process counts alone.
    pub common: Option<WithoutValkey>,
}

/// The requests that a rule is about.
#[derive(Clone, Default)]
pub struct RequestMatch {
    /// Calls of these tools; `None` for all requests.
    pub tools: Option<ToolNames>,
    /// Calls at these servers; `None` for all requests.
    pub servers: Option<Vec<String>>,
    /// Requests to the endpoints at these paths; `None` for all.
    pub endpoints: Option<Vec<String>>,
}

impl RequestMatch {
    /// Whether the rule is about a request. Only its server knows which tool an unlisted one is, so
    /// that could be any.
    #[must_use]
    pub fn covers(&self, endpoint: &str, server: Option<&str>, tool: Option<&str>) -> bool {
        let is_one = |all: &Option<Vec<String>>, one: &str| {
            all.as_ref()
                .is_none_or(|all| all.iter().any(|it| it == one))
        };
        let is_tool = || match (&self.tools, server, tool) {
            (Some(tools), Some(server), Some(tool)) => tools(server, tool),
            _ => true,
        };
        let is_server = server.is_none_or(|server| is_one(&self.servers, server));
        is_server && is_tool() && is_one(&self.endpoints, endpoint)
    }
}

fanlight_protocol::opaque!(RequestMatch);

/// The dimensions that a limit counts separately.
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

fanlight_protocol::opaque!(RateRule);

/// The current limits.
#[derive(Debug)]
pub(crate) struct Rates(Vec<Limit>);

/// A limit and its counts.
#[derive(Debug)]
struct Limit {
    rule: RateRule,
    rate: Rate<Key>,
    counts: Arc<Counts>,
}

/// A limit's state for operators.
#[derive(Clone, Debug)]
pub struct RateState {
    /// [`RateRule::name`].
    pub name: String,
    /// The number of requests allowed at once.
    pub most: usize,
    /// Requests that ran at once.
    pub passed: u64,
    /// Requests that waited for their turn.
    pub waited: u64,
    /// Refused requests.
    pub refused: u64,
    /// The number of keys that it counts now.
    pub keys: usize,
    /// The heaviest users, the heaviest first.
    pub nearest: Vec<RateUse>,
}

/// The use of a limit by one key.
#[derive(Clone, Debug)]
pub struct RateUse {
    /// The client, if clients are counted separately. The other members work alike.
    pub client: Option<String>,
    /// The path of the endpoint.
    pub endpoint: Option<String>,
    /// The server.
    pub server: Option<String>,
    /// The server's own name of the tool; empty for tools that no list contains.
    pub tool: Option<String>,
    /// The used part of [`RateState::most`]; more than that while requests wait for their turn.
    pub used: usize,
}

/// The properties of a request that limits depend on.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) peer: &'a Peer,
    /// The path of the endpoint.
    pub(crate) endpoint: &'a str,
    pub(crate) subject: &'a dyn Decidable,
}

/// The target of a request.
struct Called<'a> {
    /// `None` if it is unknown.
    server: Option<&'a str>,
    /// The server's own name of the tool; `None` if no list contains it. Only the server knows
    /// which tool that is, so it could be any.
    tool: Option<Cow<'a, str>>,
}

impl<'a> Called<'a> {
    fn new(subject: &'a dyn Decidable) -> Self {
        Self {
            server: subject.server(),
            tool: subject.tool().map(|tool| tool.name),
        }
    }
}

impl Rates {
    /// Creates these limits. Limits that were in `before` keep their counts; a repeated limit
    /// counts once. `None` without rules.
    pub(crate) fn new(rules: Vec<RateRule>, before: Option<&Self>) -> Option<Self> {
        let mut limits: Vec<Limit> = Vec::new();
        for rule in rules {
            let mut known = before.iter().flat_map(|before| &before.0);
            let (rate, counts) = match known.find(|known| known.rule.id == rule.id) {
                Some(known) => (known.rate.clone(), Arc::clone(&known.counts)),
                None => (Rate::new(KEYS), Arc::default()),
            };
            if limits.iter().all(|known| known.rule.id != rule.id) {
                limits.push(Limit { rule, rate, counts });
            }
        }
        (!limits.is_empty()).then_some(Self(limits))
    }

    /// The state of the limits for operators, each with its `keys` heaviest users.
    pub(crate) fn states(&self, keys: usize) -> Vec<RateState> {
        self.0.iter().map(|limit| limit.state(keys)).collect()
    }

    /// Whether any limit depends on the tool of a call: whether it exists, for those in common.
    pub(crate) fn depend_on_tools(&self) -> bool {
        self.0
            .iter()
            .any(|limit| limit.rule.is_about_calls() || !limit.rule.of.principal)
    }

    /// Counts a request against this process's limits. The request may run at once, or when its
    /// turn comes.
    ///
    /// # Errors
    ///
    /// If one of the limits is used up. Then none is charged.
    pub(crate) fn take(&self, asked: Asked<'_>) -> Result<Taking, TooMany> {
        let mut taking = Taking {
            turn: Turn::default(),
            common: Vec::new(),
        };
        if Operation::from_method(asked.subject.method()) == Operation::Free {
            return Ok(taking);
        }
        let called = Called::new(asked.subject);
        // Whoever may not use a server must not use up what its users have in common.
        let is_refused = asked.subject.is_refused();
        for limit in self
            .0
            .iter()
            .filter(|limit| limit.rule.of.principal || !is_refused)
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
                    // An error refunds earlier charges by dropping the turn.
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
            RateUse {
                client: peer.map(|peer| peer.to_string()),
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
        CommonLimit {
            key: key.to_bytes(&self.id),
            client: key.peer.as_ref().map(Peer::to_bytes),
            most: self.most,
            per: self.per,
            queue: self.queue,
        }
    }

    /// Whether the limit counts only tool calls.
    fn is_about_calls(&self) -> bool {
        let RequestMatch { tools, servers, .. } = &self.only;
        self.of.server || self.of.tool || tools.is_some() || servers.is_some()
    }

    fn is_about(&self, asked: Asked<'_>, called: &Called<'_>) -> bool {
        let is_call = *asked.subject.method() == Method::CallTool && !asked.subject.is_own();
        if self.is_about_calls() && !is_call {
            return false;
        }
        self.only
            .covers(asked.endpoint, called.server, called.tool.as_deref())
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

/// One limit that a request counts against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonLimit {
    /// The counter's key: equal in all processes, and different for every other counter.
    pub key: Vec<u8>,
    /// The client's key, equal for all limits of one client; `None` if the limit does not count
    /// clients separately.
    pub client: Option<Vec<u8>>,
    /// The number of requests allowed at once, and again evenly over `per`.
    pub most: usize,
    /// The period of the limit.
    pub per: Duration,
    /// The longest wait for a turn.
    pub queue: Duration,
}

/// The reason why a request was not counted against shared limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// One of the limits is used up.
    TooMany(TooMany),
    /// The limits cannot be counted now.
    Away,
}

/// Counts limits together with other processes.
///
/// A trait because its implementation depends on this crate.
pub trait CommonLimits: fmt::Debug + Send + Sync {
    /// Counts a request against all of these limits, or against none; returns the time until its
    /// turn. Limits that count clients separately are all of one client. Takes a bounded time in
    /// any case.
    fn take(&self, limits: Vec<CommonLimit>) -> BoxFuture<'_, Result<Duration, NotTaken>>;

    /// The last known number of processes.
    fn processes(&self) -> usize;
}

/// A shared limit that a request must be counted against.
#[derive(Debug)]
struct CommonEntry {
    limit: CommonLimit,
    without: WithoutValkey,
    /// The count of this process alone, used if the shared count is unavailable.
    rate: Rate<Key>,
    key: Key,
    counts: Arc<Counts>,
}

/// A request that is counted against this process's limits, but not yet against shared ones.
#[derive(Debug)]
pub(crate) struct Taking {
    turn: Turn,
    common: Vec<CommonEntry>,
}

impl Taking {
    /// Whether there are no shared limits to count against.
    pub(crate) fn is_done(&self) -> bool {
        self.common.is_empty()
    }

    /// The turn; `None` if the request may run at once.
    pub(crate) fn turn(self) -> Option<Turn> {
        self.turn.into_waiting()
    }

    /// Counts the request against the shared limits.
    ///
    /// # Errors
    ///
    /// If one of them is used up. Then none is charged, and earlier charges are refunded.
    pub(crate) async fn charge_shared(
        mut self,
        limits: &dyn CommonLimits,
    ) -> Result<Option<Turn>, NotTaken> {
        let asked = self
            .common
            .iter()
            .map(|entry| entry.limit.clone())
            .collect();
        // The limit that refused is unknown, so each counts it.
        let count = |wait| self.common.iter().for_each(|entry| entry.counts.add(wait));
        match limits.take(asked).await {
            Ok(wait) => {
                count(Some(wait));
                self.turn.wait(wait);
            }
            Err(NotTaken::Away) => self.charge_alone(limits.processes())?,
            Err(too_many) => {
                count(None);
                return Err(too_many);
            }
        }
        Ok(self.turn.into_waiting())
    }

    /// Charges this process's parts of the limits.
    fn charge_alone(&mut self, processes: usize) -> Result<(), NotTaken> {
        for CommonEntry {
            limit,
            without,
            rate,
            key,
            counts,
        } in self.common.drain(..)
        {
            if without == WithoutValkey::Refuse {
                counts.add(None);
                return Err(NotTaken::Away);
            }
            let charged = rate.charge_within(&key, part_of(&limit, processes.max(1)), limit.queue);
            counts.add(charged.as_ref().ok().map(|(_, wait)| *wait));
            let (charge, wait) = charged.map_err(NotTaken::TooMany)?;
            self.turn.charged(charge, wait);
        }
        Ok(())
    }
}

/// This process's part of a limit among so many processes. It allows at least one request at once,
/// and its fair part in the long run.
fn part_of(limit: &CommonLimit, processes: usize) -> Quota {
    let most = (limit.most / processes).max(1);
    Quota {
        most,
        per: limit
            .per
            .mul_f64((most * processes) as f64 / limit.most.max(1) as f64),
    }
}

/// The key of a counter. Dimensions that the limit does not count separately are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) peer: Option<Peer>,
    pub(super) endpoint: Option<Box<str>>,
    pub(super) server: Option<Box<str>>,
    pub(super) tool: Option<Box<str>>,
}

/// A waiting request's turn. Dropping it before the turn comes refunds the charges.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    wait: Duration,
    charges: Vec<Charge<Key>>,
}

/// The numbers of requests that a limit applied to.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) passed: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Key {
    /// A text that is equal in every process, and different for every other key and rule.
    pub(super) fn to_bytes(&self, rule: &str) -> Vec<u8> {
        let peer = self.peer.as_ref().map(Peer::to_bytes);
        let text = |text: &Option<Box<str>>| text.as_ref().map(|text| text.as_bytes().to_vec());
        let parts = [
            Some(rule.as_bytes().to_vec()),
            peer,
            text(&self.endpoint),
            text(&self.server),
            text(&self.tool),
        ];
        let mut bytes = Vec::new();
        for part in parts {
            // An absent part has a length that no text can have.
            let length = part.as_ref().map_or(u64::MAX, |part| part.len() as u64);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend(part.into_iter().flatten());
        }
        bytes
    }
}

impl Counts {
    /// Counts a request by its waiting time; `None` for a refused one.
    pub(super) fn add(&self, wait: Option<Duration>) {
        let count = match wait {
            Some(wait) if wait.is_zero() => &self.passed,
            Some(_) => &self.waited,
            None => &self.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Turn {
    /// Adds a charge and its waiting time.
    fn charged(&mut self, charge: Charge<Key>, wait: Duration) {
        self.charges.push(charge);
        self.wait(wait);
    }

    /// Delays the turn by at least `wait`.
    pub(super) fn wait(&mut self, wait: Duration) {
        self.wait = self.wait.max(wait);
    }

    /// The turn; `None` if it has come already, which makes the charges final.
    fn into_waiting(mut self) -> Option<Self> {
        if self.wait.is_zero() {
            self.charges.clear();
            return None;
        }
        Some(self)
    }

    /// Waits until the turn comes.
    pub(crate) async fn come(self) {
        sleep(self.wait).await;
        self.pass();
    }

    /// Gives up waiting; the charges become final.
    pub(crate) fn pass(mut self) {
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
    use super::*;

    #[test]
    fn parts_of_all_processes_are_no_more_than_the_limit() {
        let (per, queue) = (Duration::from_secs(60), Duration::ZERO);
        let limit = |most| CommonLimit {
            key: Vec::new(),
            client: None,
            most,
            per,
            queue,
        };
        assert_eq!(
            part_of(&limit(90), 3),
            Quota {
                most: 30,
                per: Duration::from_secs(60)
            }
        );
        // One in two minutes in each of four processes makes two in a minute.
        assert_eq!(
            part_of(&limit(2), 4),
            Quota {
                most: 1,
                per: Duration::from_secs(120)
            }
        );
        assert_eq!(
            part_of(&limit(5), 1),
            Quota {
                most: 5,
                per: Duration::from_secs(60)
            }
        );
    }
}

#[cfg(test)]
mod turn_tests {
    use fanlight_canonical::identity::Principal;

    use super::*;

    #[test]
    fn bytes_of_keys_are_those_of_one_key_alone() {
        let named = |text: &str| Some(Box::from(text));
        let ann = Some(Peer::Principal(Principal::new("keys", "ann")));
        let keys = [
            Key::default(),
            Key {
                endpoint: named("ab"),
                ..Key::default()
            },
            Key {
                server: named("ab"),
                ..Key::default()
            },
            Key {
                server: named("a"),
                tool: named("b"),
                ..Key::default()
            },
            Key {
                server: named(""),
                tool: named("ab"),
                ..Key::default()
            },
            Key {
                peer: ann.clone(),
                ..Key::default()
            },
            Key {
                peer: Some(Peer::User(7)),
                ..Key::default()
            },
            Key {
                peer: Some(Peer::Local),
                ..Key::default()
            },
        ];
        let all: std::collections::HashSet<_> = keys
            .iter()
            .flat_map(|key| ["one rule", "another"].map(|rule| key.to_bytes(rule)))
            .collect();
        assert_eq!(all.len(), 2 * keys.len());
        assert_eq!(
            Key {
                peer: ann.clone(),
                ..Key::default()
            }
            .to_bytes("r"),
            Key {
                peer: ann,
                ..Key::default()
            }
            .to_bytes("r")
        );
    }
}
