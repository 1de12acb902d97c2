//! How traces end, in few words.

use fanlight_protocol::code;

use crate::error_type::ErrorType;

/// How a trace has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOutcome {
    /// Without an error.
    Ok,
    /// The result of a tool has `isError`.
    ToolError,
    /// A JSON-RPC error, or a message that could not be used.
    ProtocolError,
    /// The client, or an operator, cancelled it, or its client left.
    Cancelled,
    /// Otherwise: no connection, no answer, a limit.
    Failed,
}

impl TraceOutcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::ToolError,
        Self::ProtocolError,
        Self::Cancelled,
        Self::Failed,
    ];

    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::ProtocolError => "protocol_error",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// The outcome of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == name)
    }

    pub(crate) fn of(error: Option<ErrorType>) -> Self {
        match error {
            None => Self::Ok,
            Some(ErrorType::ToolError) => Self::ToolError,
            Some(
                ErrorType::Cancelled
                | ErrorType::Abandoned
                | ErrorType::JsonRpc(code::CANCELLED_BY_OPERATOR),
            ) => Self::Cancelled,
            // Fanlight's own, in the place of an answer.
            Some(ErrorType::JsonRpc(code::BACKEND_UNAVAILABLE | code::BACKEND_TIMEOUT)) => {
                Self::Failed
            }
            Some(
                ErrorType::JsonRpc(_) | ErrorType::InvalidRequest | ErrorType::InvalidResponse,
            ) => Self::ProtocolError,
            Some(_) => Self::Failed,
        }
    }
}
