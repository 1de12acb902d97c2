//! A span while it lasts: what its owner and everybody working for it share.
//!
//! Must not know: what the span stands for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::context::TraceContext;
use crate::error_type::Outcome;
use crate::inbound::HeaderContext;
use crate::propagation::Propagation;
use crate::record::{Beginning, ParentSpan, Record};
use crate::recorder::{self, Recorder};

/// One span, and what records it.
#[derive(Clone)]
pub(crate) struct Live {
    recorder: Recorder,
    record: Arc<Record>,
}

/// Whose child a span is.
pub(crate) enum Ancestor<'a> {
    /// Nobody's: a trace begins.
    None,
    /// Of a span elsewhere.
    Remote(&'a TraceContext),
    /// Of a span of ours.
    Live(&'a Live),
}

impl Live {
    pub(crate) fn begin(
        recorder: &Recorder,
        beginning: Beginning,
        ancestor: &Ancestor<'_>,
        baggage: Option<Arc<str>>,
        passing: Option<Arc<HeaderContext>>,
    ) -> Self {
        let (above, is_remote) = match ancestor {
            Ancestor::None => (None, false),
            Ancestor::Remote(context) => (Some(*context), true),
            Ancestor::Live(live) => (Some(&live.record.context), false),
        };
        let trace_id = above.map_or_else(recorder::new_trace_id, TraceContext::trace_id);
        let sampled = recorder.sampling().samples(above.map(TraceContext::is_sampled), trace_id);
        let context = TraceContext::within(above, trace_id, recorder::new_span_id(), sampled);
        let parent = above.map(|above| ParentSpan { id: above.span_id(), is_remote });
        let record = Arc::new(Record::new(beginning, context, parent, baggage, passing));
        Self { recorder: recorder.clone(), record }
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn propagation(&self) -> Propagation {
        let record = &self.record;
        if self.recorder.is_delivered() {
            return Propagation::of_span(&record.context, record.baggage.clone());
        }
        record.passing.as_deref().map(Propagation::of_headers).unwrap_or_default()
    }

    /// Ends the span; only the first end counts.
    pub(crate) fn end(self, outcome: &Outcome<'_>, lasted: Duration) {
        if let Some(size) = self.record.end(outcome, lasted) {
            self.recorder.ended(self.record, size);
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.record.context;
        f.debug_tuple("Live").field(&context.trace_id()).field(&context.span_id()).finish()
    }
}
