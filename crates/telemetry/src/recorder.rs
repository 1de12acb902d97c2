//! Records spans. It decides which traces are sampled, and delivers ended spans.

use std::sync::Arc;

use crate::pipeline::Pipeline;
use crate::record::Record;
use crate::running::Running;
use crate::settings::{Propagators, Sampling};

/// Records spans. Ended spans have no reference to the recorder, because its ring refers to them.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) pipeline: Pipeline,
    pub(crate) sampling: Sampling,
    pub(crate) propagators: Propagators,
    /// The running requests of clients.
    pub(crate) running: Running,
    /// Whether spans leave the process, to a collector, a file or the terminal. If they stay in the
    /// ring, messages keep the context with which they came: otherwise the store of traces would
    /// miss a parent that it never gets.
    pub(crate) is_delivered: bool,
}

impl Recorder {
    /// Delivers an ended span with about `size` bytes.
    pub(crate) fn ended(&self, span: Arc<Record>, size: usize) {
        self.pipeline.ended(span, size);
    }
}
