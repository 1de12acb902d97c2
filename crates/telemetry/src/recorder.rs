//! What spans are recorded by: which traces are sampled, which ids they get, and where they go when they
//! have ended.
//!
//! Must not know: what the spans stand for.

use std::fmt;
use std::sync::Arc;

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

use crate::pipeline::Pipeline;
use crate::record::Record;
use crate::settings::Sampling;

/// Records spans. Cheap to clone. What is kept of a span does not hold it, since it holds that.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Shared>);

struct Shared {
    pipeline: Pipeline,
    sampling: Sampling,
    is_delivered: bool,
}

impl Recorder {
    pub(crate) fn new(pipeline: Pipeline, sampling: Sampling, is_delivered: bool) -> Self {
        Self(Arc::new(Shared { pipeline, sampling, is_delivered }))
    }

    /// Whether spans go to a collector, a file or the terminal. Where they stay in the ring, messages
    /// keep the context they came with: a store that never gets our spans would else miss a parent.
    pub(crate) fn is_delivered(&self) -> bool {
        self.0.is_delivered
    }

    pub(crate) fn sampling(&self) -> Sampling {
        self.0.sampling
    }

    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.0.pipeline
    }

    /// A span has ended, and takes about `size` bytes.
    pub(crate) fn ended(&self, span: Arc<Record>, size: usize) {
        self.0.pipeline.ended(span, size);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("is_delivered", &self.0.is_delivered).finish_non_exhaustive()
    }
}

/// The id of a new trace, random.
pub(crate) fn new_trace_id() -> TraceId {
    RandomIdGenerator::default().new_trace_id()
}

/// The id of a new span, likewise.
pub(crate) fn new_span_id() -> SpanId {
    RandomIdGenerator::default().new_span_id()
}
