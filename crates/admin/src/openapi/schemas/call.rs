//! A call from the page.

use serde_json::Value;
use utoipa::ToSchema;

/// A request of a client.
#[derive(ToSchema)]
pub(crate) struct Call {
    /// `tools/call`, `prompts/get` or `resources/read`.
    method: String,
    /// Forwarded unchanged; a `traceparent` in `_meta` is the parent of the trace.
    params: Value,
    /// The path of the endpoint that it goes through; one that shows everything if absent.
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

/// It was done.
#[derive(ToSchema)]
pub(crate) struct CallChanged {
    /// `answer` or `cancel`.
    done: String,
}

/// What the server has answered: `result` or `error`.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Called {
    #[schema(required = true)]
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
