//! How a span ends, and the class of its error. The classes are a closed list, so the label has few
//! values. Other crates map their errors to it.

use std::borrow::Cow;

use fanlight_protocol::code;

use crate::names::OTHER;

/// How a span ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The last frame was sent or received without an error.
    Finished,
    /// The message failed.
    Failed {
        /// The class of error.
        error: ErrorType,
        /// The `message` of the JSON-RPC error, before it is shortened. It contains no secret.
        message: Option<&'a str>,
    },
    /// The message was given up: the peer closed the connection, or the call was dropped.
    Abandoned,
}

impl Outcome<'_> {
    /// A failure without a message.
    pub fn failed(error: ErrorType) -> Self {
        Self::Failed {
            error,
            message: None,
        }
    }

    /// The class of error; `None` on success.
    pub fn error(&self) -> Option<ErrorType> {
        match self {
            Self::Finished => None,
            Self::Failed { error, .. } => Some(*error),
            Self::Abandoned => Some(ErrorType::Abandoned),
        }
    }
}

macro_rules! error_types {
    ($($(#[$doc:meta])+ $variant:ident = $text:expr;)*) => {
        /// A value of `error.type`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorType {
            /// The response is a JSON-RPC error with this code.
            JsonRpc(i64),
            /// The response was an HTTP status without a JSON-RPC response.
            HttpStatus(u16),
            $($(#[$doc])+ $variant,)*
        }

        impl ErrorType {
            /// Every value of `error.type` that is not a number, in the order in which
            /// docs/tracing.md lists them.
            pub const FIXED: &[Self] = &[$(Self::$variant),*];

            /// The value of the attribute.
            pub fn as_text(&self) -> Cow<'static, str> {
                match self {
                    Self::JsonRpc(code) => Cow::Owned(code.to_string()),
                    Self::HttpStatus(status) => Cow::Owned(status.to_string()),
                    $(Self::$variant => Cow::Borrowed($text),)*
                }
            }
        }
    };
}

error_types! {
    /// The result of a tool call has `isError`.
    ToolError = "tool_error";
    /// No response came in time.
    Timeout = "timeout";
    /// The request was cancelled.
    Cancelled = "cancelled";
    /// The peer closed the connection before the end.
    Abandoned = "abandoned";
    /// Fanlight could not connect, or could not start the process.
    ConnectFailed = "connect_failed";
    /// Fanlight has no credentials for the server: its user has to sign in, or Fanlight could not
    /// get a token.
    NoCredentials = "no_credentials";
    /// The process exited before it answered.
    BackendExited = "backend_exited";
    /// The connection or stream ended before the response.
    ConnectionClosed = "connection_closed";
    /// The response is larger than allowed.
    ResponseTooLarge = "response_too_large";
    /// The response is malformed.
    InvalidResponse = "invalid_response";
    /// The request is malformed.
    InvalidRequest = "invalid_request";
    /// A limit of requests or sessions is reached.
    Overloaded = "overloaded";
    /// Fanlight does not use the server for a while, because the server did not answer its last
    /// calls.
    Ejected = "ejected";
    /// The two sides have no revision in common.
    NoCommonRevision = "no_common_revision";
    /// Fanlight is shutting down.
    ShuttingDown = "shutting_down";
    /// Anything else.
    Other = OTHER;
}

/// The JSON-RPC codes that may be labels. A server can invent any number of other codes.
const KNOWN_CODES: [i64; 16] = [
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
    code::URL_ELICITATION_REQUIRED,
    code::URLS_NOT_VISITED,
    code::NOT_AUTHENTICATED,
    code::NOT_PERMITTED,
    code::CANCELLED_BY_OPERATOR,
];

impl ErrorType {
    /// The JSON-RPC code, for `rpc.response.status_code`.
    pub fn status_code(&self) -> Option<i64> {
        match self {
            Self::JsonRpc(code) => Some(*code),
            _ => None,
        }
    }

    /// Whether the sender of the message made the mistake. In that case the span of the receiver
    /// has not failed: its status is unset, and it has the code but no `error.type` (conventions
    /// for MCP, Server).
    pub(crate) fn is_mistake_of_sender(self) -> bool {
        let codes = [
            code::PARSE,
            code::INVALID_REQUEST,
            code::METHOD_NOT_FOUND,
            code::INVALID_PARAMS,
            code::RESOURCE_NOT_FOUND,
        ];
        matches!(self, Self::JsonRpc(code) if codes.contains(&code))
    }

    /// The value as a label: unknown codes become [`ErrorType::Other`].
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
    fn bounded_error_has_known_codes_only() {
        assert_eq!(
            ErrorType::JsonRpc(code::INVALID_PARAMS).bounded().as_text(),
            "-32602"
        );
        assert_eq!(ErrorType::JsonRpc(4711).as_text(), "4711");
        assert_eq!(ErrorType::JsonRpc(4711).bounded().as_text(), OTHER);
        assert_eq!(ErrorType::HttpStatus(999).bounded().as_text(), OTHER);
        assert_eq!(ErrorType::HttpStatus(503).bounded().as_text(), "503");
    }
}
