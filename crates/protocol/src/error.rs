//! JSON-RPC errors that Fanlight itself originates.
//!
//! Errors of backends pass as text and are never decoded into this type.

use crate::json::{Json, ObjectBuilder};

/// Error codes of JSON-RPC and MCP.
pub mod code {
    /// Not JSON.
    pub const PARSE: i64 = -32700;
    /// Not a JSON-RPC request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method does not take these parameters.
    pub const INVALID_PARAMS: i64 = -32602;
    /// A fault on the server's side.
    pub const INTERNAL: i64 = -32603;
    /// Resource not found, 2025-11-25 and earlier; later revisions forbid it.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// URL mode elicitations have to be completed first, 2025-11-25 only.
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// Headers and body disagree (2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client lacks a capability that the request needs (2026-07-28).
    pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
    /// The revision is not spoken here (2026-07-28).
    pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
    /// A backend cannot be reached or gave no usable answer. Outside the range that JSON-RPC
    /// reserves, as 2026-07-28 basic, Error Codes, asks for new codes.
    pub const BACKEND_UNAVAILABLE: i64 = -31001;
    /// A backend took longer than allowed.
    pub const BACKEND_TIMEOUT: i64 = -31002;
    /// Fanlight: a legacy server refuses the request until the user has visited URLs, and the user has not, or cannot
    /// be asked to. Modern clients get it instead of -32042, which 2026-07-28 forbids; `data` is the server's.
    pub const URLS_NOT_VISITED: i64 = -31003;
    /// Fanlight: the client shows no credentials that are accepted, or they have come to their end.
    pub const NOT_AUTHENTICATED: i64 = -31004;
    /// Fanlight: the client is known, and may not do this.
    pub const NOT_PERMITTED: i64 = -31005;
}

/// An error to answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// One of [`code`].
    pub code: i64,
    /// What happened, where, and what to do.
    pub message: String,
    /// More for programs.
    pub data: Option<Json>,
}

impl RpcError {
    /// An error without `data`.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same error with `data`.
    #[must_use]
    pub fn with_data(mut self, data: Json) -> Self {
        self.data = Some(data);
        self
    }

    /// The JSON-RPC error object.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut object = ObjectBuilder::new();
        object.integer("code", self.code).string("message", &self.message);
        if let Some(data) = &self.data {
            object.member("data", data);
        }
        object.finish()
    }
}
