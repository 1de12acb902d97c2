//! How a span ends, and what class of error it ended with: a closed list, so that what is counted
//! by it stays bounded.
//!
//! Must not know: the error types of other crates; each maps its own onto this list.

use std::borrow::Cow;

use fanlight_protocol::code;

use crate::names::OTHER;

/// How what a span stands for ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The final frame has gone, or come, and says no error.
    Finished,
    /// It failed.
    Failed {
        /// What class of error.
        error: ErrorType,
        /// What is said of it: the JSON-RPC error's `message`. Capped; nothing secret.
        message: Option<&'a str>,
    },
    /// Nobody waited for the end: the peer hung up, or the call was dropped.
    Abandoned,
}

impl Outcome<'_> {
    /// A failure of which nothing more is said.
    #[must_use]
    pub fn failed(error: ErrorType) -> Self {
        Self::Failed { error, message: None }
    }

    /// The class of error; none for what finished.
    #[must_use]
    pub fn error(&self) -> Option<ErrorType> {
        match self {
            Self::Finished => None,
            Self::Failed { error, .. } => Some(*error),
            Self::Abandoned => Some(ErrorType::Abandoned),
        }
    }
}

/// `error.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// The answer is a JSON-RPC error with this code.
    JsonRpc(i64),
    /// The result of a tool call has `isError`.
    ToolError,
    /// An HTTP status that carries no JSON-RPC answer.
    HttpStatus(u16),
    /// No answer in time.
    Timeout,
    /// The request was cancelled.
    Cancelled,
    /// The peer hung up before the end.
    Abandoned,
    /// No connection could be made, or the process could not be started.
    ConnectFailed,
    /// The process ended before it answered.
    BackendExited,
    /// The connection or stream ended before the answer.
    ConnectionClosed,
    /// An answer over the limit.
    ResponseTooLarge,
    /// Something that is no answer.
    InvalidResponse,
    /// A request that is not valid.
    InvalidRequest,
    /// As many requests or sessions as allowed are open.
    Overloaded,
    /// The two sides speak no common revision.
    NoCommonRevision,
    /// Fanlight is shutting down.
    ShuttingDown,
    /// Anything else.
    Other,
}

/// The JSON-RPC codes that metrics tell apart; a backend can invent any number of others.
const KNOWN_CODES: [i64; 11] = [
    code::PARSE,
    code::INVALID_REQUEST,
    code::METHOD_NOT_FOUND,
    code::INVALID_PARAMS,
    code::INTERNAL,
    code::RESOURCE_NOT_FOUND,
    code::HEADER_MISMATCH,
    code::MISSING_CLIENT_CAPABILITY,
    code::UNSUPPORTED_PROTOCOL_VERSION,
    code::BACKEND_UNAVAILABLE,
    code::BACKEND_TIMEOUT,
];

impl ErrorType {
    /// Every value of `error.type` that is not a number, as the documentation lists them.
    pub const FIXED: [Self; 14] = [
        Self::ToolError,
        Self::Timeout,
        Self::Cancelled,
        Self::Abandoned,
        Self::ConnectFailed,
        Self::BackendExited,
        Self::ConnectionClosed,
        Self::ResponseTooLarge,
        Self::InvalidResponse,
        Self::InvalidRequest,
        Self::Overloaded,
        Self::NoCommonRevision,
        Self::ShuttingDown,
        Self::Other,
    ];

    /// The attribute's value.
    #[must_use]
    pub fn as_text(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::JsonRpc(code) => return Cow::Owned(code.to_string()),
            Self::HttpStatus(status) => return Cow::Owned(status.to_string()),
            Self::ToolError => "tool_error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
            Self::ConnectFailed => "connect_failed",
            Self::BackendExited => "backend_exited",
            Self::ConnectionClosed => "connection_closed",
            Self::ResponseTooLarge => "response_too_large",
            Self::InvalidResponse => "invalid_response",
            Self::InvalidRequest => "invalid_request",
            Self::Overloaded => "overloaded",
            Self::NoCommonRevision => "no_common_revision",
            Self::ShuttingDown => "shutting_down",
            Self::Other => OTHER,
        })
    }

    /// The JSON-RPC code, for `rpc.response.status_code`.
    #[must_use]
    pub fn status_code(&self) -> Option<i64> {
        match self {
            Self::JsonRpc(code) => Some(*code),
            _ => None,
        }
    }

    /// The same with only so many different values as a metric may have.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Self::JsonRpc(code) if !KNOWN_CODES.contains(&code) => Self::Other,
            Self::HttpStatus(status) if !(100..600).contains(&status) => Self::Other,
            known => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_tell_only_known_codes_apart() {
        assert_eq!(ErrorType::JsonRpc(code::INVALID_PARAMS).bounded().as_text(), "-32602");
        assert_eq!(ErrorType::JsonRpc(4711).as_text(), "4711");
        assert_eq!(ErrorType::JsonRpc(4711).bounded().as_text(), OTHER);
        assert_eq!(ErrorType::HttpStatus(999).bounded().as_text(), OTHER);
        assert_eq!(ErrorType::HttpStatus(503).bounded().as_text(), "503");
    }
}
