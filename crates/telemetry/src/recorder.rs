//! Records spans: decides which traces are sampled, and delivers ended spans.

use std::sync::Arc;

use crate::pipeline::Pipeline;
use crate::record::Record;
use crate::running::Running;
use crate::settings::{Propagators, Sampling};

/// Records spans. Ended spans do not refer to it, since its ring refers to them.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) pipeline: Pipeline,
    pub(crate) sampling: Sampling,
    pub(crate) propagators: Propagators,
    /// The requests of clients that run.
    pub(crate) running: Running,
    /// Whether spans leave the process: to a collector, a file or the terminal. Where they stay in the ring, messages
    /// keep the context they came with; a store that never gets our spans would miss a parent otherwise.
    pub(crate) is_delivered: bool,
}

impl Recorder {
    /// Delivers an ended span of about `size` bytes.
    pub(crate) fn ended(&self, span: Arc<Record>, size: usize) {
        self.pipeline.ended(span, size);
    }
}
