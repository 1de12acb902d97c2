//! A server at the other end of a pipe or of HTTP.

pub(crate) mod http;
mod sse;
pub(crate) mod stdio;

use std::time::Duration;

use fanlight_config::Transport;
use fanlight_protocol::Revision;
use serde_json::{Value, json};

use self::http::Http;
use self::sse::Sse;
use self::stdio::Process;
use super::observed::Mask;
use crate::judge::Patience;
use crate::judge::observed::{Observed, shorten};

/// The JSON-RPC code `Method not found`.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The size of the largest message that is read.
pub(crate) const LONGEST: usize = 64 << 20;

/// The reason why a server gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The server cannot be started or reached at all.
    #[error("{0}")]
    Unreachable(String),
    /// The server did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The server ended, or broke the connection.
    #[error("{0}")]
    Ended(String),
    /// The server's answer is no message.
    #[error("{0}")]
    Refused(String),
    /// The server requires credentials.
    #[error("{0}")]
    Unauthorized(String),
    /// The server answered with this status, as one of the deprecated HTTP+SSE transport may, and
    /// perhaps with a reason.
    #[error("{}", in_words(*status, said))]
    NotHere { status: u16, said: String },
}

fn in_words(status: u16, said: &str) -> String {
    match said {
        "" => format!(
            "no Streamable HTTP server is at this URL (status {status}); is its path right?"
        ),
        said => format!("it answered with status {status}: {said}"),
    }
}

/// A server to talk to.
pub(crate) enum JudgedServer {
    Process(Process),
    Http(Http),
    /// A server of the deprecated HTTP+SSE transport.
    Sse(Box<Sse>),
}

/// The answer to a request.
pub(crate) enum Answer {
    Result(Value),
    Error { code: i64, message: String },
}

impl JudgedServer {
    pub(crate) fn open(
        target: &Transport,
        revision: Revision,
        patience: Patience,
    ) -> Result<Self, Broken> {
        match target {
            Transport::Stdio { command, args, .. } => {
                Process::start(command, args).map(Self::Process)
            }
            Transport::Http { url, headers } | Transport::Sse { url, headers } => {
                Http::new(url, headers, revision, patience.start).map(Self::Http)
            }
            Transport::Incomplete { why, .. } => Err(Broken::Unreachable(why.clone())),
        }
    }

    /// Sends a request and waits for its answer. Other messages of the server are observed
    /// meanwhile.
    pub(crate) async fn request(
        &mut self,
        request: &Value,
        timeout: Duration,
        mask: &Mask,
        observed: &mut Observed,
    ) -> Result<Answer, Broken> {
        let mut answer = match self {
            Self::Process(process) => process.request(request, timeout, observed).await,
            Self::Http(http) => in_time(timeout, http.exchange(request, observed)).await,
            Self::Sse(sse) => in_time(timeout, sse.exchange(request, observed)).await,
        }?;
        mask.hide_in(&mut answer);
        judge_answer(answer, observed)
    }

    /// Sends a notification.
    pub(crate) async fn notify(
        &mut self,
        notification: &Value,
        observed: &mut Observed,
    ) -> Result<(), Broken> {
        match self {
            Self::Process(process) => process.write(notification).await,
            Self::Http(http) => http.notify(notification, observed).await,
            Self::Sse(sse) => sse.notify(notification).await,
        }
    }

    /// Sets the negotiated revision, which later requests name.
    pub(crate) fn agreed_on(&mut self, revision: &str) {
        match self {
            Self::Process(_) => {}
            Self::Http(http) => http.revision = Some(revision.to_owned()),
            Self::Sse(sse) => sse.http.revision = Some(revision.to_owned()),
        }
    }

    /// Changes to the deprecated HTTP+SSE transport. Returns whether the server has it at its URL.
    pub(crate) async fn change_to_sse(
        &mut self,
        patience: Duration,
        observed: &mut Observed,
    ) -> Result<bool, Broken> {
        let Self::Http(http) = self else {
            return Ok(false);
        };
        let Some(sse) = Sse::open(http, patience, observed).await? else {
            return Ok(false);
        };
        *self = Self::Sse(Box::new(sse));
        Ok(true)
    }

    /// Ends the connection, as a client does.
    pub(crate) async fn close(self, observed: &mut Observed) {
        match self {
            Self::Process(process) => process.close(observed).await,
            Self::Http(http) => http.close().await,
            // The stream is the session.
            Self::Sse(_) => {}
        }
    }

    /// The last lines that the server wrote to standard error.
    pub(crate) fn last_words(&self) -> Vec<String> {
        match self {
            Self::Process(process) => process.last_words(),
            Self::Http(_) | Self::Sse(_) => Vec::new(),
        }
    }
}

/// Limits the time of an exchange to `patience`.
async fn in_time(
    patience: Duration,
    exchange: impl Future<Output = Result<Value, Broken>>,
) -> Result<Value, Broken> {
    tokio::time::timeout(patience, exchange)
        .await
        .unwrap_or(Err(Broken::Silent(patience)))
}

/// Whether a message is the answer to this request.
fn is_answer(message: &Value, request: &Value) -> bool {
    message.get("method").is_none() && message.get("id") == request.get("id")
}

fn judge_answer(mut answer: Value, observed: &mut Observed) -> Result<Answer, Broken> {
    if answer.get("jsonrpc") != Some(&json!("2.0")) {
        observed.error("jsonrpc", "A response has no `\"jsonrpc\": \"2.0\"`.", "");
    }
    match (
        answer.get_mut("result").map(Value::take),
        answer.get("error"),
    ) {
        (Some(result), None) => Ok(Answer::Result(result)),
        (None, Some(error)) => {
            let code = error["code"].as_i64();
            let message = error["message"].as_str();
            if code.is_none() || message.is_none() {
                let what = "An error has no integer `code`, or no `message`.";
                observed.error("error-shape", what, error.to_string());
            }
            let message = shorten(message.unwrap_or_default());
            Ok(Answer::Error {
                code: code.unwrap_or_default(),
                message,
            })
        }
        _ => Err(Broken::Refused(
            "a response has neither a `result` nor an `error`, or both".to_owned(),
        )),
    }
}

/// The answer to a server's request, as from a user who declines.
fn declined(method: &str, id: &Value) -> Option<Value> {
    match method {
        "elicitation/create" => {
            Some(json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "decline" } }))
        }
        "roots/list" => Some(json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [] } })),
        "sampling/createMessage" => {
            // 2025-11-25 client/sampling, Error Handling.
            let error = json!({ "code": -1, "message": "User rejected sampling request" });
            Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
        }
        _ => None,
    }
}

/// Observes a message that is not the awaited answer. Returns the reply if it is a request.
fn observe(message: &Value, observed: &mut Observed) -> Option<Value> {
    let method = message["method"].as_str();
    match (method, message.get("id")) {
        (Some("ping"), Some(id)) => Some(json!({ "jsonrpc": "2.0", "id": id, "result": {} })),
        (Some(method), Some(id)) => {
            let declined = declined(method, id).filter(|_| observed.may_ask);
            Some(declined.unwrap_or_else(|| {
                let what = "It sends requests for which the client has no capability: gateways refuse them.";
                observed.error("undeclared-request", what, method);
                let error = json!({ "code": METHOD_NOT_FOUND, "message": "Method not found" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }))
        }
        (Some(_), None) => None,
        (None, id) => {
            let what =
                "It sends responses to requests that nobody made, or that it has answered already.";
            let id = id.map_or_else(
                || "a message without `id` and `method`".to_owned(),
                |id| format!("id {id}"),
            );
            observed.error("unknown-response", what, id);
            None
        }
    }
}
