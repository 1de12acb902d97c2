//! The span that the running code works for. Log lines contain its ids.

use std::fmt;
use std::future::Future;

use opentelemetry::trace::{SpanId, TraceId};

use crate::context::TraceContext;

tokio::task_local! {
    static CURRENT: Option<Ids>;
}

/// The ids of a span, for log lines. Displays as `trace_id=… span_id=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The id of the trace. It displays as 32 hexadecimal digits.
    pub trace_id: TraceId,
    /// The id of the span. It displays as 16 hexadecimal digits.
    pub span_id: SpanId,
}

impl Ids {
    pub(crate) fn from_context(context: &TraceContext) -> Self {
        Self {
            trace_id: context.trace_id(),
            span_id: context.span_id(),
        }
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace_id={} span_id={}", self.trace_id, self.span_id)
    }
}

/// The ids of the span that the running task works for: of the innermost
/// [`Parent::scope`](crate::Parent::scope) around this code.
pub fn current() -> Option<Ids> {
    CURRENT.try_with(|current| *current).ok().flatten()
}

/// Runs `work` with this span as the current one.
pub(crate) fn within<F: Future>(
    span: Option<Ids>,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    CURRENT.scope(span, work)
}
