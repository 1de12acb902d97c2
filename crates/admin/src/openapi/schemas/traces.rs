//! Traces and figures of tools.

use serde_json::Value;
use utoipa::ToSchema;

/// Traces of the ring.
#[derive(ToSchema)]
pub(crate) struct Traces {
    /// Whether there is a ring.
    recording: bool,
    traces: Vec<Trace>,
}

/// A trace in a list.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Trace {
    /// Its place in the order of beginnings.
    number: u64,
    trace_id: String,
    name: String,
    start_ms: f64,
    duration_ms: f64,
    spans: u64,
    dropped_spans: u64,
    backends: Vec<String>,
    /// The `error.type` of the first span, else of a failed one.
    #[schema(required = true)]
    error: Option<String>,
    /// What was said of that failure.
    #[schema(required = true)]
    message: Option<String>,
    outcome: Outcome,
    /// The name and version that the client says it has.
    #[schema(required = true)]
    client: Option<String>,
    /// The name of the client's identity; null if it is not authenticated.
    #[schema(required = true)]
    principal: Option<String>,
    /// How many attempts to connect it stands for; absent if it is none.
    #[schema(nullable = false)]
    attempts: Option<u64>,
    /// When the first of them began.
    #[schema(nullable = false)]
    first_ms: Option<f64>,
}

/// How a trace has ended.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok,
    ToolError,
    ProtocolError,
    Cancelled,
    Failed,
}

/// OTLP-JSON.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Otlp {
    resource_spans: Vec<Value>,
}

/// Figures of the tools that were called in the last hour.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ToolStatistics {
    /// The minutes that are counted.
    minutes: u64,
    /// All tools, also those beyond `limit`.
    tool_count: u64,
    tools: Vec<Tool>,
}

/// A tool.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Tool {
    backend: String,
    /// The server's own name of it.
    tool: String,
    calls: u64,
    errors: u64,
    /// Calls that their client has given up.
    given_up: u64,
    per_minute: f64,
    #[schema(required = true)]
    p50_ms: Option<f64>,
    #[schema(required = true)]
    p95_ms: Option<f64>,
    #[schema(required = true)]
    p99_ms: Option<f64>,
    /// How many calls took how long.
    durations: Vec<Range>,
    calls_by_minute: Vec<u64>,
    errors_by_minute: Vec<u64>,
}

/// Calls whose durations are in a range, which begins where the one before ends.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Range {
    /// Null for the last.
    #[schema(required = true)]
    to_ms: Option<f64>,
    calls: u64,
}
