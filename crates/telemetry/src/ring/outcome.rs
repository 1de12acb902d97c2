//! How traces end, as a short list of outcomes.

use fanlight_protocol::code;

use crate::error_type::ErrorType;

fanlight_protocol::named! {
    /// How a trace has ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TraceOutcome {
        /// The request ended without an error.
        Ok = "ok",
        /// The result of a tool has `isError`.
        ToolError = "tool_error",
        /// The request ended with a JSON-RPC error, or with an unusable message.
        ProtocolError = "protocol_error",
        /// The client or an operator cancelled the request, or the client left.
        Cancelled = "cancelled",
        /// The request failed for another reason: no connection, no answer, or a limit.
        Failed = "failed",
    }
}

impl TraceOutcome {
    /// The outcome with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == name)
    }

    pub(super) fn from_error(error: Option<ErrorType>) -> Self {
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

fanlight_protocol::named! {
    /// The side that has to change something about a failure.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Side {
        /// The client: the request is wrong, or was cancelled.
        Client = "client",
        /// The gateway: a policy, a limit or a pin refused the request.
        Gateway = "gateway",
        /// The server: an error, no answer in time, or no connection.
        Server = "server",
    }
}

impl Side {
    /// The side of a failure that no gate has caused. `at_server` is whether a server's answer, or
    /// the lack of one, has the failure, too.
    pub(super) fn judge(error: ErrorType, at_server: bool) -> Self {
        match error {
            ErrorType::Cancelled | ErrorType::Abandoned | ErrorType::InvalidRequest => Self::Client,
            ErrorType::Overloaded
            | ErrorType::ShuttingDown
            | ErrorType::NoCredentials
            | ErrorType::ResponseTooLarge
            | ErrorType::JsonRpc(
                code::CANCELLED_BY_OPERATOR | code::NOT_PERMITTED | code::NOT_AUTHENTICATED,
            ) => Self::Gateway,
            ErrorType::JsonRpc(code::BACKEND_UNAVAILABLE | code::BACKEND_TIMEOUT) => Self::Server,
            ErrorType::JsonRpc(
                code::HEADER_MISMATCH
                | code::MISSING_CLIENT_CAPABILITY
                | code::UNSUPPORTED_PROTOCOL_VERSION
                | code::URLS_NOT_VISITED,
            ) => Self::Client,
            mistake if mistake.is_mistake_of_sender() => Self::Client,
            ErrorType::JsonRpc(_) if !at_server => Self::Gateway,
            _ => Self::Server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_is_who_can_do_something_about_it() {
        for (error, at_server, side) in [
            (ErrorType::Cancelled, true, Side::Client),
            (ErrorType::JsonRpc(code::INVALID_PARAMS), true, Side::Client),
            (
                ErrorType::JsonRpc(code::METHOD_NOT_FOUND),
                false,
                Side::Client,
            ),
            (
                ErrorType::JsonRpc(code::NOT_PERMITTED),
                false,
                Side::Gateway,
            ),
            (ErrorType::Overloaded, false, Side::Gateway),
            (ErrorType::JsonRpc(code::INTERNAL), false, Side::Gateway),
            (ErrorType::JsonRpc(code::INTERNAL), true, Side::Server),
            (
                ErrorType::JsonRpc(code::BACKEND_TIMEOUT),
                false,
                Side::Server,
            ),
            (ErrorType::ToolError, true, Side::Server),
            (ErrorType::ConnectFailed, true, Side::Server),
        ] {
            assert_eq!(Side::judge(error, at_server), side, "{error:?}");
        }
    }
}
