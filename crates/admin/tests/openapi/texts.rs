//! Answers that contain others' bytes, or that the program behind the listener makes.

#![expect(dead_code, reason = "they are read by the macro that describes them")]

use serde_json::Value;
use utoipa::ToSchema;

use crate::api::traces::Content;

/// The server's answer: `result` or `error`.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Called {
    trace_id: Option<String>,
    duration_ms: f64,
    /// The capabilities that a client must declare for this call; absent if it needs none.
    #[schema(nullable = false)]
    required_capabilities: Option<Value>,
    /// The result, byte for byte.
    #[schema(nullable = false)]
    result: Option<Value>,
    /// The JSON-RPC error.
    #[schema(nullable = false)]
    error: Option<Value>,
}

/// OTLP-JSON.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Otlp {
    resource_spans: Vec<Value>,
    /// The replica that keeps it; null without others.
    replica: Option<String>,
    /// The content of its calls, oldest first.
    content: Vec<Content>,
    /// The spans that servers returned, for operators; absent if there are none.
    #[schema(nullable = false)]
    server_spans: Option<Vec<Value>>,
}

/// The options by their names in the file, with defaults; `***` replaces secrets. `reload` has
/// their history.
#[derive(ToSchema)]
pub(crate) struct InForce {
    reload: Value,
}

/// The outcome of a reload.
#[derive(ToSchema)]
pub(crate) struct Reloaded {
    /// `applied`, `unchanged` or `failed`.
    result: String,
}

/// The entry for this gateway in the configuration of a client.
#[derive(ToSchema)]
pub(crate) struct ClientEntry {
    client: String,
    /// Its name for people.
    title: String,
    /// The file to write to.
    file: Option<String>,
    /// `json`, `toml` or `yaml`.
    language: String,
    text: String,
    /// A command of the client that adds the entry.
    command: Option<String>,
    /// The environment variable from which the client reads its token.
    variable: Option<String>,
}
