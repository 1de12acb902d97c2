//! The bodies of requests. The handlers read them member by member, so that forwarded parts keep
//! their bytes.

#![expect(dead_code, reason = "they are read by the macro that describes them")]

use serde_json::Value;
use utoipa::ToSchema;

/// A request of a client.
#[derive(ToSchema)]
pub(crate) struct Call {
    /// `tools/call`, `prompts/get` or `resources/read`.
    method: String,
    /// Forwarded unchanged; a `traceparent` in `_meta` is the parent of the trace.
    params: Value,
    /// The path of the endpoint to use; all servers if absent.
    #[schema(nullable = false)]
    endpoint: Option<String>,
}

/// The calls whose content is kept for a time: of a server, of an endpoint, or all.
#[derive(ToSchema)]
pub(crate) struct ContentTime {
    /// A time up to `1h`, such as `10m`; `0s` ends it.
    r#for: String,
    /// The server, by its name in the configuration.
    #[schema(nullable = false)]
    server: Option<String>,
    /// The path of the endpoint.
    #[schema(nullable = false)]
    endpoint: Option<String>,
}

/// An answer to a question of a call that its operator attends.
#[derive(ToSchema)]
pub(crate) struct CallAnswer {
    /// The id in the event `call`.
    call: String,
    /// The number in the event `question`.
    question: u64,
    /// An `ElicitResult`.
    result: Value,
}

/// A call to cancel.
#[derive(ToSchema)]
pub(crate) struct CallCancelled {
    /// The id in the event `call`.
    call: String,
}

/// The selection and the limits of a recording.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct RecordingAsked {
    /// The names of the servers; all if absent.
    #[schema(nullable = false)]
    servers: Option<Vec<String>>,
    /// The path of the endpoint; all if absent.
    #[schema(nullable = false)]
    endpoint: Option<String>,
    /// A duration such as `10m`, at most a day.
    #[schema(nullable = false)]
    r#for: Option<String>,
    /// The largest size: 64 MiB by default, at most 1 GiB.
    #[schema(nullable = false)]
    max_bytes: Option<u64>,
}

/// A token to sign in with.
#[derive(ToSchema)]
pub(crate) struct Token {
    token: String,
}

/// The issuer to sign in at.
#[derive(ToSchema)]
pub(crate) struct Issuer {
    /// One of `signIn.issuers` of `/api/session`.
    issuer: String,
}

/// The answer of the issuer.
#[derive(ToSchema)]
pub(crate) struct IssuerAnswer {
    /// The query of the address to which the issuer sent the browser, without its `?`.
    query: String,
    /// The path at which the browser came back. It has to be the one of the issuer.
    path: Option<String>,
}
