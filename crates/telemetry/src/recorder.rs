//! What makes spans, and whether anybody but this process gets to see them.
//!
//! Must not know: what the spans stand for.

use opentelemetry_sdk::trace::SdkTracer;

/// Makes spans.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) tracer: SdkTracer,
    /// Whether spans go to a collector, a file or the terminal. Where they stay in the ring, messages
    /// keep the context they came with: a store that never gets our spans would else miss a parent.
    pub(crate) is_delivered: bool,
}
