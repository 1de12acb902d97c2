//! Validates one message against the schema of its revision: by kind, by method, and by its request
//! if it is a response.

use serde_json::{Value, json};

use super::Direction;
use super::definitions::{error_of, notification_of, request_of};
use super::official::{EXT_TASKS, Official};
use crate::revisions::{MODERN, NEWEST_LEGACY};

/// A violation of the schema.
#[derive(Debug)]
pub(super) struct Violation {
    /// The violated definition.
    pub(super) definition: String,
    /// A JSON pointer into the definition's value.
    pub(super) place: String,
    pub(super) reason: String,
}

impl Violation {
    pub(super) fn new(definition: &str, reason: impl Into<String>) -> Self {
        Self {
            definition: definition.to_owned(),
            place: String::new(),
            reason: reason.into(),
        }
    }
}

/// A request of the gateway's peer, needed to validate the response.
#[derive(Clone, Debug)]
pub(super) struct Request {
    method: String,
    /// The revision in its `_meta`.
    pub(super) revision: Option<String>,
    /// Whether it asks to run as a task (2025-11-25 tasks).
    task: bool,
}

impl Request {
    /// Parses a request; `None` for other messages.
    pub(super) fn parse(message: &Value) -> Option<Self> {
        message.get("id")?;
        Some(Self {
            method: message["method"].as_str()?.to_owned(),
            revision: stated_revision(message),
            task: message["params"]["task"].is_object(),
        })
    }
}

/// The revision that a response to `initialize` negotiates.
pub(super) fn negotiated(message: &Value, request: Option<&Request>) -> Option<String> {
    let settles = request.is_some_and(|request| request.method == "initialize");
    settles.then(|| {
        message["result"]["protocolVersion"]
            .as_str()
            .map(str::to_owned)
    })?
}

/// All violations in one message; `usual` is the peer's revision, used unless the message has its
/// own.
pub(super) fn validate(
    official: &Official,
    direction: Direction,
    usual: &str,
    message: &Value,
    request: Option<&Request>,
) -> Vec<Violation> {
    let stated =
        stated_revision(message).or_else(|| request.and_then(|request| request.revision.clone()));
    let stated = stated.filter(|revision| official.knows(revision));
    let revision =
        stated.unwrap_or_else(|| if official.knows(usual) { usual } else { MODERN }.to_owned());
    let validator = Validator {
        official,
        direction,
        revision: &revision,
    };
    let mut violations = validator.envelope(message);
    violations.extend(
        match (
            message["method"].as_str(),
            message.get("id"),
            message.get("result"),
            message.get("error"),
        ) {
            (Some(method), Some(_), None, None) => validator.request(method, message),
            (Some(method), None, None, None) => validator.notification(method, message),
            (None, _, Some(result), None) => validator.result(result, request),
            (None, _, None, Some(error)) => validator.error(error, message),
            _ => vec![Violation::new(
                "JSONRPCMessage",
                "neither request nor notification nor response",
            )],
        },
    );
    violations
}

/// The revision in a modern message, or the one that an `initialize` request proposes.
fn stated_revision(message: &Value) -> Option<String> {
    let meta = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
    let wanted = &message["params"]["protocolVersion"];
    let initialize =
        (message["method"] == "initialize").then(|| wanted.as_str().unwrap_or(NEWEST_LEGACY));
    meta.as_str().or(initialize).map(str::to_owned)
}

struct Validator<'a> {
    official: &'a Official,
    direction: Direction,
    revision: &'a str,
}

impl Validator<'_> {
    /// The violations of the message without its result, which has definitions of its own.
    fn envelope(&self, message: &Value) -> Vec<Violation> {
        let mut message = message.clone();
        if let Some(result @ Value::Object(_)) = message.get_mut("result") {
            *result = json!({ "resultType": "complete" });
        }
        self.holds(self.revision, "JSONRPCMessage", &message)
    }

    fn request(&self, method: &str, message: &Value) -> Vec<Violation> {
        let union = match self.direction {
            Direction::ToClient => "ServerRequest",
            Direction::ToBackend => "ClientRequest",
        };
        if !self.official.defines(self.revision, union) {
            return vec![Violation::new(
                union,
                format!("{} has no requests in this direction", self.revision),
            )];
        }
        request_of(method)
            .map(|known| self.member_of(union, known.request, message))
            .unwrap_or_default()
    }

    fn notification(&self, method: &str, message: &Value) -> Vec<Violation> {
        let union = match self.direction {
            Direction::ToClient => "ServerNotification",
            Direction::ToBackend => "ClientNotification",
        };
        notification_of(method)
            .map(|known| self.member_of(union, known, message))
            .unwrap_or_default()
    }

    /// A violation if the message is undefined in this revision and direction, although another
    /// revision defines it.
    fn member_of(&self, union: &str, definition: &str, message: &Value) -> Vec<Violation> {
        if self.is_extension(definition) {
            return self.holds(EXT_TASKS, definition, message);
        }
        if !self.official.unites(self.revision, union, definition) {
            return vec![Violation::new(
                definition,
                format!("{} has none among {union}", self.revision),
            )];
        }
        self.holds(self.revision, definition, message)
    }

    fn result(&self, result: &Value, request: Option<&Request>) -> Vec<Violation> {
        let Some(request) = request else {
            return vec![Violation::new(
                "JSONRPCResponse",
                "a result without a request",
            )];
        };
        let known = request_of(&request.method).map_or("Result", |known| known.result);
        let definition = match result["resultType"].as_str() {
            Some("input_required") if self.revision == MODERN => "InputRequiredResult",
            Some("task") if self.revision == MODERN => {
                return self.holds(EXT_TASKS, "CreateTaskResult", result);
            }
            Some("complete") | None => known,
            // A type outside of the schema may hold any value.
            Some(_) => "Result",
        };
        if request.task && result["task"].is_object() {
            return self.holds(self.revision, "CreateTaskResult", result);
        }
        if self.is_extension(definition) {
            return self.holds(EXT_TASKS, definition, result);
        }
        // A method of another revision was forwarded unchanged: only the rules for any result
        // apply.
        let definition = if self.official.defines(self.revision, definition) {
            definition
        } else {
            "Result"
        };
        self.holds(self.revision, definition, result)
    }

    fn error(&self, error: &Value, message: &Value) -> Vec<Violation> {
        let known = error_of(error["code"].as_i64());
        let definition = known
            .iter()
            .find(|definition| self.official.defines(self.revision, definition));
        self.holds(
            self.revision,
            definition.expect("every revision has errors"),
            message,
        )
    }

    /// Whether only the newest revision's tasks extension has the definition.
    fn is_extension(&self, definition: &str) -> bool {
        let here = self.official.defines(self.revision, definition);
        self.revision == MODERN && !here && self.official.defines(EXT_TASKS, definition)
    }

    fn holds(&self, schema: &str, definition: &str, value: &Value) -> Vec<Violation> {
        let wrong = self.official.check(schema, definition, value).into_iter();
        let violation = |(place, reason)| Violation {
            definition: definition.to_owned(),
            place,
            reason: format!("{reason} ({schema})"),
        };
        wrong.map(violation).collect()
    }
}
