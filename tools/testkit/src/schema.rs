//! Validates all messages of the gateway against the official JSON Schema of the revision in use.
//!
//! The raw clients and the scripted servers report the messages that they send and receive. A
//! message that violates the schema fails the test that owns the gateway or the server, even if the
//! test does not read it. If a peer violates the schema on purpose and the gateway forwards that,
//! the test declares it: [`Checks::excuse`].
//!
//! The schemas are not part of this repository. They are in the folder that `FANLIGHT_SPEC` names,
//! else in `../shared/spec` beside the repository; without them nothing is validated, and `.ci/run`
//! prints that.

mod definitions;
mod lenient;
mod official;
#[cfg(test)]
mod tests;
mod validation;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};

use serde_json::Value;

use self::official::Official;
use self::validation::{Request, Violation};
use crate::revisions::MODERN;

/// The kind of the gateway's peer, which determines the requests and notifications that the gateway
/// may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToClient,
    ToBackend,
}

/// The validation of a gateway's messages to its clients, or to one server.
#[derive(Clone)]
pub struct Checks(Arc<State>);

struct State {
    direction: Direction,
    official: Option<&'static Official>,
    /// The requests to the gateway, by peer and raw id.
    requests: Mutex<HashMap<(String, String), Request>>,
    /// The negotiated revision, by peer.
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
            requests: Mutex::default(),
            revisions: Mutex::default(),
            excuses: Mutex::default(),
            violations: Mutex::default(),
        }))
    }

    /// Permits messages to violate this one definition, such as `CallToolResult`, from now on.
    /// `place` is a JSON pointer in it (empty: anywhere). The reason is for readers.
    pub fn excuse(&self, definition: &'static str, place: &'static str, reason: &str) {
        assert!(!reason.is_empty(), "say why {definition} may be broken");
        self.0.excuses.lock().unwrap().push((definition, place));
    }

    /// A peer of the gateway with a unique name: a session, a connection or a single exchange.
    pub fn peer(&self, name: impl Into<String>) -> Peer {
        Peer {
            checks: self.clone(),
            name: name.into(),
        }
    }

    /// Fails the test if there was a violation, unless it is already failing. For the `Drop` of the
    /// checked process's owner.
    pub fn conclude(&self) {
        let violations = self.0.violations.lock().unwrap();
        if !violations.is_empty() && !std::thread::panicking() {
            panic!(
                "{} message(s) of the gateway break the schema:\n{}",
                violations.len(),
                violations.join("\n")
            );
        }
    }

    fn excused(&self, violation: &Violation) -> bool {
        let excuses = self.0.excuses.lock().unwrap();
        let lies_in = |place: &str| {
            let inside = violation.place.strip_prefix(place);
            inside.is_some_and(|inside| inside.is_empty() || inside.starts_with('/'))
        };
        excuses
            .iter()
            .any(|(definition, place)| violation.definition == *definition && lies_in(place))
    }
}

/// One peer of the gateway.
pub struct Peer {
    checks: Checks,
    name: String,
}

impl Peer {
    /// Records a message from the peer to the gateway, with this revision if the transport names
    /// one.
    pub fn sent(&self, text: &str, revision: Option<&str>) {
        // Long results of a scripted server are not parsed, since only requests are recorded.
        if !text.contains("\"method\"") {
            return;
        }
        for message in parsed(text).into_iter().flat_map(messages) {
            let Some(mut request) = Request::parse(&message) else {
                continue;
            };
            if request.revision.is_none() {
                request.revision = revision.map(str::to_owned).or_else(|| self.revision());
            }
            self.checks
                .0
                .requests
                .lock()
                .unwrap()
                .insert(self.key(&message), request);
        }
    }

    /// Records the negotiated revision.
    pub fn negotiated(&self, revision: &str) {
        self.checks
            .0
            .revisions
            .lock()
            .unwrap()
            .insert(self.name.clone(), revision.to_owned());
    }

    /// The negotiated revision, if any.
    pub fn revision(&self) -> Option<String> {
        self.checks
            .0
            .revisions
            .lock()
            .unwrap()
            .get(&self.name)
            .cloned()
    }

    /// Validates a message of the gateway to the peer: one message or a batch.
    ///
    /// # Panics
    ///
    /// Panics if the message violates the schema; this is also recorded for [`Checks::conclude`].
    pub fn received(&self, text: &str) {
        let broken = self.violations(text);
        assert!(
            broken.is_empty(),
            "the gateway violates the schema:\n{}",
            broken.join("\n")
        );
    }

    /// [`Self::received`] without a panic, for tasks whose panic would be lost.
    pub fn violations(&self, text: &str) -> Vec<String> {
        let Some(official) = self.checks.0.official else {
            return Vec::new();
        };
        let violations = match parsed(text) {
            Ok(value) => self.validate(official, value),
            Err(error) => vec![Violation::new("JSONRPCMessage", error)],
        };
        let shown = |violation: &Violation| {
            let text: String = text.chars().take(2000).collect();
            let Violation {
                definition,
                place,
                reason,
            } = violation;
            format!(
                "{:?}: not a {definition}: at `{place}`: {reason}\n  {text}",
                self.checks.0.direction
            )
        };
        let broken: Vec<String> = violations
            .iter()
            .filter(|violation| !self.checks.excused(violation))
            .map(shown)
            .collect();
        self.checks
            .0
            .violations
            .lock()
            .unwrap()
            .extend(broken.iter().cloned());
        broken
    }

    fn validate(&self, official: &Official, value: Value) -> Vec<Violation> {
        let mut violations = Vec::new();
        if value.is_array()
            && self
                .revision()
                .is_none_or(|revision| revision != "2025-03-26")
        {
            violations.push(Violation::new(
                "JSONRPCMessage",
                "a batch, which this revision does not have",
            ));
        }
        for message in messages(value) {
            let request = self
                .checks
                .0
                .requests
                .lock()
                .unwrap()
                .get(&self.key(&message))
                .cloned();
            if let Some(revision) = validation::negotiated(&message, request.as_ref()) {
                self.negotiated(&revision);
            }
            let usual = self.revision().unwrap_or_else(|| MODERN.to_owned());
            violations.extend(validation::validate(
                official,
                self.checks.0.direction,
                &usual,
                &message,
                request.as_ref(),
            ));
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

/// The checks of gateways by address, by which a raw client finds its checks.
static LISTENING: LazyLock<Mutex<HashMap<SocketAddr, Checks>>> = LazyLock::new(Mutex::default);

/// The checks of the gateway that listens at this address, if any.
pub(crate) fn listening_at(address: SocketAddr) -> Option<Checks> {
    LISTENING.lock().unwrap().get(&address).cloned()
}

/// Validates the messages of the gateway at this address until it is dropped. Dropping it fails the
/// test if there was a violation.
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
