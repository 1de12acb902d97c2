//! Checks what the gateway says against the official JSON Schema of the revision in use, whoever it says it to.
//!
//! The raw clients and the scripted servers report here what they send and what they get. A message that breaks the
//! schema fails the test that owns the gateway or the server, even if the test itself did not look. Where a peer is
//! meant to break the rules and the gateway to pass that on, the test says so: [`Checks::excuse`].
//!
//! The schemas are no part of this repository. They are looked for in the folder that `FANLIGHT_SPEC` names, else in
//! `../shared/spec` beside the repository; without them nothing is checked, and `.ci/run` says so.

mod definitions;
mod judge;
mod lenient;
mod official;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};

use serde_json::Value;

use self::judge::{Asked, Violation};
use self::official::Official;
use crate::raw_client::MODERN;

/// Who the gateway speaks to: which requests and notifications it may send follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToClient,
    ToBackend,
}

/// What one gateway says to its clients, or to one backend, and what was wrong with it.
#[derive(Clone)]
pub(crate) struct Checks(Arc<State>);

struct State {
    direction: Direction,
    official: Option<&'static Official>,
    /// What was asked of the gateway, by peer and raw id.
    asked: Mutex<HashMap<(String, String), Asked>>,
    /// What was negotiated, by peer.
    revisions: Mutex<HashMap<String, String>>,
    excuses: Mutex<Vec<(&'static str, &'static str)>>,
    violations: Mutex<Vec<String>>,
}

impl Checks {
    pub(crate) fn new(direction: Direction) -> Self {
        Self::against(official::installed(), direction)
    }

    fn against(official: Option<&'static Official>, direction: Direction) -> Self {
        Self(Arc::new(State {
            direction,
            official,
            asked: Mutex::default(),
            revisions: Mutex::default(),
            excuses: Mutex::default(),
            violations: Mutex::default(),
        }))
    }

    /// From now on, messages may break this one definition, such as `CallToolResult`, at this place in it, a JSON pointer
    /// (empty: anywhere). The reason is for the reader.
    pub(crate) fn excuse(&self, definition: &'static str, place: &'static str, reason: &str) {
        assert!(!reason.is_empty(), "say why {definition} may be broken");
        self.0.excuses.lock().unwrap().push((definition, place));
    }

    /// One peer of the gateway, by a name of its own: a session, a connection or a single exchange.
    pub(crate) fn peer(&self, name: impl Into<String>) -> Peer {
        Peer { checks: self.clone(), name: name.into() }
    }

    /// Fails the test if anything was wrong, unless it fails already. For the end of the checked process's owner.
    pub(crate) fn conclude(&self) {
        let violations = self.0.violations.lock().unwrap();
        if !violations.is_empty() && !std::thread::panicking() {
            panic!("{} message(s) of the gateway break the schema:\n{}", violations.len(), violations.join("\n"));
        }
    }

    fn excused(&self, violation: &Violation) -> bool {
        let excuses = self.0.excuses.lock().unwrap();
        let lies_in = |place: &str| {
            let inside = violation.place.strip_prefix(place);
            inside.is_some_and(|inside| inside.is_empty() || inside.starts_with('/'))
        };
        excuses.iter().any(|(definition, place)| violation.definition == *definition && lies_in(place))
    }
}

/// One peer of the gateway.
pub(crate) struct Peer {
    checks: Checks,
    name: String,
}

impl Peer {
    /// The peer has sent the gateway this, in this revision as far as the transport says.
    pub(crate) fn asked(&self, text: &str, revision: Option<&str>) {
        for message in parsed(text).into_iter().flat_map(messages) {
            let Some(mut asked) = Asked::of(&message) else { continue };
            if asked.revision.is_none() {
                asked.revision = revision.map(str::to_owned).or_else(|| self.revision());
            }
            self.checks.0.asked.lock().unwrap().insert(self.key(&message), asked);
        }
    }

    /// This revision was negotiated.
    pub(crate) fn negotiated(&self, revision: &str) {
        self.checks.0.revisions.lock().unwrap().insert(self.name.clone(), revision.to_owned());
    }

    /// What was negotiated, if anything.
    pub(crate) fn revision(&self) -> Option<String> {
        self.checks.0.revisions.lock().unwrap().get(&self.name).cloned()
    }

    /// The gateway has sent the peer this: one message or a batch.
    ///
    /// # Panics
    ///
    /// If it breaks the schema; also remembered for [`Checks::conclude`].
    pub(crate) fn said(&self, text: &str) {
        let broken = self.heard(text);
        assert!(broken.is_empty(), "the gateway breaks the schema:\n{}", broken.join("\n"));
    }

    /// The same without a panic, for tasks whose panic nobody would see.
    pub(crate) fn heard(&self, text: &str) -> Vec<String> {
        let Some(official) = self.checks.0.official else { return Vec::new() };
        let violations = match parsed(text) {
            Ok(value) => self.judge(official, value),
            Err(error) => vec![Violation::new("JSONRPCMessage", error)],
        };
        let shown = |violation: &Violation| {
            let text: String = text.chars().take(2000).collect();
            let Violation { definition, place, reason } = violation;
            format!("{:?}: not a {definition}: at `{place}`: {reason}\n  {text}", self.checks.0.direction)
        };
        let broken: Vec<String> =
            violations.iter().filter(|violation| !self.checks.excused(violation)).map(shown).collect();
        self.checks.0.violations.lock().unwrap().extend(broken.iter().cloned());
        broken
    }

    fn judge(&self, official: &Official, value: Value) -> Vec<Violation> {
        let mut violations = Vec::new();
        if value.is_array() && self.revision().is_none_or(|revision| revision != "2025-03-26") {
            violations.push(Violation::new("JSONRPCMessage", "a batch, which this revision does not have"));
        }
        for message in messages(value) {
            let asked = self.checks.0.asked.lock().unwrap().get(&self.key(&message)).cloned();
            if let Some(revision) = judge::negotiated(&message, asked.as_ref()) {
                self.negotiated(&revision);
            }
            let usual = self.revision().unwrap_or_else(|| MODERN.to_owned());
            violations.extend(judge::judge(official, self.checks.0.direction, &usual, &message, asked.as_ref()));
        }
        violations
    }

    fn key(&self, message: &Value) -> (String, String) {
        (self.name.clone(), message["id"].to_string())
    }
}

fn parsed(text: &str) -> Result<Value, String> {
    lenient::parse(text)
}

/// The messages of a batch, or the one message.
fn messages(value: Value) -> Vec<Value> {
    match value {
        Value::Array(messages) => messages,
        message => vec![message],
    }
}

/// Where gateways listen whose clients are checked, so that a raw client knows without being told.
static LISTENING: LazyLock<Mutex<HashMap<SocketAddr, Checks>>> = LazyLock::new(Mutex::default);

/// What is checked at this address, if a gateway listens there.
pub(crate) fn listening_at(address: SocketAddr) -> Option<Checks> {
    LISTENING.lock().unwrap().get(&address).cloned()
}

/// Checks what a gateway says at this address, for as long as this lives; its end fails the test if anything was wrong.
pub(crate) struct Listening {
    address: SocketAddr,
    pub(crate) checks: Checks,
}

impl Listening {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let checks = Checks::new(Direction::ToClient);
        LISTENING.lock().unwrap().insert(address, checks.clone());
        Self { address, checks }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.lock().unwrap().remove(&self.address);
        self.checks.conclude();
    }
}
