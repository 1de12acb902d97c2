//! A span that has not ended. Its owner and all work for it share it.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

use crate::inbound::HeaderContext;
use crate::pipeline::Recorder;
use crate::record::{ParentSpan, Record, SpanStart};
use crate::{Outcome, Propagation, TraceContext};

/// A span that has not ended. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ActiveSpan {
    recorder: Arc<Recorder>,
    record: Arc<Record>,
}

/// The parent of a new span.
pub(crate) enum Ancestor<'a> {
    /// No parent: the span begins a trace.
    None,
    /// A span of another process.
    Remote(&'a TraceContext),
    /// A span of this process.
    Active(&'a ActiveSpan),
}

impl ActiveSpan {
    pub(crate) fn begin(
        recorder: &Arc<Recorder>,
        start: SpanStart,
        ancestor: &Ancestor<'_>,
        baggage: Option<Arc<str>>,
        forwarded: Option<Arc<HeaderContext>>,
    ) -> Self {
        let (above, is_remote) = match ancestor {
            Ancestor::None => (None, false),
            Ancestor::Remote(context) => (Some(*context), true),
            Ancestor::Active(span) => (Some(&span.record.context), false),
        };
        let ids = RandomIdGenerator::default();
        let trace_id = above.map_or_else(|| ids.new_trace_id(), TraceContext::trace_id);
        let sampled = recorder
            .sampling
            .samples(above.map(TraceContext::is_sampled), trace_id);
        let context = TraceContext::new_child(above, trace_id, ids.new_span_id(), sampled);
        let parent = above.map(|above| ParentSpan {
            id: above.span_id(),
            is_remote,
        });
        let record = Arc::new(Record::new(start, context, parent, baggage, forwarded));
        if let Ancestor::Active(span) = ancestor {
            record.set_exchange(span.record.exchange());
            if let Some(content) = span.record.content.get() {
                let _ = record.content.set(Arc::clone(content));
            }
        }
        Self {
            recorder: Arc::clone(recorder),
            record,
        }
    }

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Lists the span among the running requests until it ends.
    pub(crate) fn list_as_running(&self) {
        self.recorder.running.enter(&self.record);
    }

    pub(crate) fn propagation(&self) -> Propagation {
        let record = &self.record;
        if self.recorder.is_delivered {
            if !self.recorder.propagators.trace_context {
                return Propagation::from_baggage(record.baggage.clone());
            }
            return Propagation::from_span(&record.context, record.baggage.clone());
        }
        record
            .forwarded
            .as_deref()
            .map(Propagation::from_headers)
            .unwrap_or_default()
    }

    /// Ends the span. Only the first call has an effect.
    pub(crate) fn end(self, outcome: &Outcome<'_>, lasted: Duration) {
        if let Some(size) = self.record.end(outcome, lasted) {
            self.recorder.deliver(self.record, size);
        }
    }
}

fanlight_protocol::opaque!(ActiveSpan);
