//! How traces end, as a short list of outcomes.

use fanlight_protocol::code;

use crate::error_type::ErrorType;

/// How a trace has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOutcome {
    /// It ended without an error.
    Ok,
    /// The result of a tool has `isError`.
    ToolError,
    /// It ended with a JSON-RPC error, or with a message that could not be used.
    ProtocolError,
    /// The client or an operator cancelled it, or the client left.
    Cancelled,
    /// It failed for another reason: no connection, no answer, or a limit.
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

    /// The name of the outcome in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::ProtocolError => "protocol_error",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// The outcome with this name.
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
            // Fanlight sends these errors in place of a server's answer.
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
