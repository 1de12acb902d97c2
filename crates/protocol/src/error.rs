//! JSON-RPC errors that Fanlight itself creates.
//!
//! Errors from servers pass as text and are never decoded into this type.

use crate::json::{Json, ObjectBuilder};

/// Error codes of JSON-RPC, MCP and Fanlight. docs/reference/errors.md is generated from them.
pub mod code {
    /// An error code for the reference.
    #[derive(Clone, Copy, Debug)]
    pub struct CodeInfo {
        /// The code.
        pub code: i64,
        /// The specification that defines it.
        pub defined_by: &'static str,
        /// The meaning.
        pub meaning: &'static str,
    }

    macro_rules! codes {
        ($($(#[doc = $line:literal])+ $name:ident = $code:literal, $defined_by:literal;)*) => {
            $($(#[doc = $line])+ pub const $name: i64 = $code;)*

            /// Every code that Fanlight answers with.
            pub const ALL: &[CodeInfo] =
                &[$(CodeInfo { code: $name, defined_by: $defined_by, meaning: concat!($($line),+) }),*];
        };
    }

    codes! {
        /// The message is not JSON.
        PARSE = -32700, "JSON-RPC";
        /// The message is not a JSON-RPC request, or contains a member twice.
        INVALID_REQUEST = -32600, "JSON-RPC";
        /// The method does not exist, or no server supports it.
        METHOD_NOT_FOUND = -32601, "JSON-RPC";
        /// The method does not take these parameters: an unknown tool, prompt, task or cursor, an argument that is not
        /// allowed, and, since 2026-07-28, an unknown resource.
        INVALID_PARAMS = -32602, "JSON-RPC";
        /// An internal error of Fanlight, or an issuer of tokens that cannot be reached.
        INTERNAL = -32603, "JSON-RPC";
        /// The resource does not exist. Later revisions forbid this code.
        RESOURCE_NOT_FOUND = -32002, "MCP up to 2025-11-25";
        /// The user has to visit URLs first (elicitation in URL mode).
        URL_ELICITATION_REQUIRED = -32042, "MCP 2025-11-25";
        /// The headers name another method, tool or revision than the body.
        HEADER_MISMATCH = -32020, "MCP 2026-07-28";
        /// The client has not declared a capability that the request needs.
        MISSING_CLIENT_CAPABILITY = -32021, "MCP 2026-07-28";
        /// The revision is not supported; `data.supported` lists those that are.
        UNSUPPORTED_PROTOCOL_VERSION = -32022, "MCP 2026-07-28";
        /// A server cannot be reached, or gave no valid answer.
        BACKEND_UNAVAILABLE = -31001, "Fanlight";
        /// A server took longer than allowed.
        BACKEND_TIMEOUT = -31002, "Fanlight";
        /// A server of 2025-11-25 refuses the request until the user has visited URLs, and the user has not done so or cannot
        /// be asked to. Clients of 2026-07-28 get this instead of -32042, which that revision forbids; `data` is the server's.
        URLS_NOT_VISITED = -31003, "Fanlight";
        /// The client has no accepted credentials, or they have expired or were revoked.
        NOT_AUTHENTICATED = -31004, "Fanlight";
        /// The client is authenticated but may not do this; `data.scope` lists the scopes that it
        /// needs.
        NOT_PERMITTED = -31005, "Fanlight";
        /// An operator has cancelled the request. It may have been carried out.
        CANCELLED_BY_OPERATOR = -31006, "Fanlight";
        /// The call needs approval, and nobody has approved it. `data.status` is `open` while
        /// operators can still approve it; once they have, the client sends the same call again.
        /// `policyChanged` means that the policies changed while the call waited; the client sends
        /// it again.
        NOT_APPROVED = -31007, "Fanlight";
        /// A rate limit is used up; `data.retryAfterMs` is the time until the next request passes. MCP has no code for this.
        TOO_MANY_REQUESTS = -31008, "Fanlight";
    }
}

/// An error to answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// One of [`code`].
    pub code: i64,
    /// The event, its place, and how to fix it.
    pub message: String,
    /// Further data for programs.
    pub data: Option<Json>,
}

impl RpcError {
    /// An error without `data`.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with `data`.
    #[must_use]
    pub fn with_data(mut self, data: Json) -> Self {
        self.data = Some(data);
        self
    }

    /// The same error with a member of `data`.
    #[must_use]
    pub fn with(self, key: &str, value: &Json) -> Self {
        let data = self.data.unwrap_or_else(Json::empty_object);
        Self {
            data: Some(data.with_member(key, value)),
            ..self
        }
    }

    /// The same error, with the name of the gate that refused the request in `data`.
    #[must_use]
    pub fn with_gate(self, gate: &str) -> Self {
        self.with("gate", &Json::string(gate))
    }

    /// The same error, which says whether the request may have run.
    #[must_use]
    pub fn may_have_run(self, may_have_run: bool) -> Self {
        self.with("mayHaveRun", &Json::boolean(may_have_run))
    }

    /// The JSON-RPC error object.
    pub fn to_json(&self) -> Json {
        ObjectBuilder::new()
            .integer("code", self.code)
            .string("message", &self.message)
            .optional("data", self.data.as_ref())
            .finish()
    }
}
