//! Sessions and suspended calls.

use serde_json::Value;
use utoipa::ToSchema;

/// Sessions of clients, and calls that wait for them.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Sessions {
    session_count: u64,
    suspended_call_count: u64,
    stream_count: u64,
    sessions: Vec<ClientSession>,
    suspended_calls: Vec<SuspendedCall>,
}

/// A session.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct ClientSession {
    /// The path of its endpoint.
    #[schema(required = true)]
    endpoint: Option<String>,
    #[schema(required = true)]
    principal: Option<String>,
    /// What has shown the principal: `token`, `key`, `certificate`, `proxy` or `socket`.
    #[schema(required = true)]
    source: Option<String>,
    /// The first 16 digits of the SHA-256 digest of its id; null over stdio.
    #[schema(required = true)]
    digest: Option<String>,
    /// `http`, `sse` or `stdio`.
    transport: String,
    #[schema(required = true)]
    revision: Option<String>,
    /// What the client says of itself.
    client_info: Value,
    /// Requests that are running.
    running: u64,
    /// Requests of servers that the client has not answered.
    questions: u64,
    streams: u64,
    /// Null while a request runs.
    #[schema(required = true)]
    idle_ms: Option<f64>,
}

/// A call that waits for its client.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct SuspendedCall {
    method: String,
    #[schema(required = true)]
    name: Option<String>,
    /// The methods of the requested input.
    asked: Vec<String>,
    round: u64,
    waiting_ms: f64,
    left_ms: f64,
}

/// Requests of clients that run.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ClientCalls {
    /// All of them, also those beyond `limit`.
    call_count: u64,
    calls: Vec<ClientCall>,
}

/// A request of a client that runs.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct ClientCall {
    /// By which it is cancelled.
    span_id: String,
    trace_id: String,
    /// Its method, and the tool or prompt.
    name: String,
    /// The name and version that the client says it has.
    #[schema(required = true)]
    client: Option<String>,
    /// The name of the client's identity; null if it is not authenticated.
    #[schema(required = true)]
    principal: Option<String>,
    start_ms: f64,
    elapsed_ms: f64,
    cancelled: bool,
}

/// A request that was cancelled.
#[derive(ToSchema)]
pub(crate) struct ClientCallCancelled {
    /// Its span.
    call: String,
    name: String,
    /// `cancel`.
    done: String,
}
