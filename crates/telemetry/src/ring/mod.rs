//! The last traces, in memory: bounded by their number and by their size, sampled or not.
//!
//! Ending a span takes one short lock; asking takes it only to copy references. A span keeps the
//! memory it was recorded in.
//!
//! Must not know: how traces are shown.

mod query;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::trace::TraceId;
use opentelemetry::{Array, KeyValue, Value};
use opentelemetry_sdk::trace::SpanData;
use tokio::sync::broadcast;

pub use query::{Query, Summary, Trace, attribute, failure};

/// How many ids wait for a slow reader of the feed before it misses some.
const FEED: usize = 256;

/// How much the ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Most traces.
    pub traces: usize,
    /// Most bytes, estimated.
    pub bytes: usize,
}

impl Default for RingLimits {
    /// 500 traces and 16 MiB.
    fn default() -> Self {
        Self { traces: 500, bytes: 16 * 1024 * 1024 }
    }
}

/// The ring. When it is full, the oldest traces go.
#[derive(Debug)]
pub struct Ring {
    limits: RingLimits,
    held: Mutex<Held>,
    feed: broadcast::Sender<TraceId>,
}

#[derive(Debug, Default)]
struct Held {
    traces: HashMap<TraceId, Entry>,
    /// Oldest first.
    order: VecDeque<TraceId>,
    bytes: usize,
    /// How many traces there have been.
    begun: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    spans: VecDeque<(Arc<SpanData>, usize)>,
    bytes: usize,
    dropped: u64,
}

impl Ring {
    /// An empty ring.
    #[must_use]
    pub fn new(limits: RingLimits) -> Self {
        Self { limits, held: Mutex::default(), feed: broadcast::Sender::new(FEED) }
    }

    /// The ids of traces in which a span ended, as it happens. A reader that is too slow misses
    /// some and is told how many; it never holds anything up.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<TraceId> {
        self.feed.subscribe()
    }

    /// How many traces are held, and how many bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let held = self.lock();
        (held.order.len(), held.bytes)
    }

    pub(crate) fn push(&self, span: Arc<SpanData>) {
        let id = span.span_context.trace_id();
        let size = estimated_size(&span);
        // What goes is let go of after the lock.
        let mut gone = Vec::new();
        let mut shortened = Vec::new();
        {
            let mut held = self.lock();
            held.add(id, span, size, self.limits.bytes / 8, &mut shortened);
            while held.order.len() > self.limits.traces || (held.bytes > self.limits.bytes && held.order.len() > 1) {
                let Some(entry) = held.remove_oldest() else { break };
                gone.push(entry);
            }
        }
        drop((gone, shortened));
        if self.feed.receiver_count() > 0 {
            // Readers may all have gone meanwhile.
            let _ = self.feed.send(id);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// A trace keeps its newest spans, so that one that never ends leaves room for others.
    fn add(
        &mut self,
        id: TraceId,
        span: Arc<SpanData>,
        size: usize,
        most: usize,
        gone: &mut Vec<(Arc<SpanData>, usize)>,
    ) {
        let entry = self.traces.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            self.begun += 1;
            Entry { number: self.begun, spans: VecDeque::new(), bytes: 0, dropped: 0 }
        });
        entry.spans.push_back((span, size));
        entry.bytes += size;
        self.bytes += size;
        while entry.bytes > most && entry.spans.len() > 1 {
            let Some(oldest) = entry.spans.pop_front() else { break };
            entry.bytes -= oldest.1;
            self.bytes -= oldest.1;
            entry.dropped += 1;
            gone.push(oldest);
        }
    }

    fn remove_oldest(&mut self) -> Option<Entry> {
        let id = self.order.pop_front()?;
        let entry = self.traces.remove(&id)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

/// About how much memory a span takes.
fn estimated_size(span: &SpanData) -> usize {
    let attributes = |attributes: &[KeyValue]| attributes.iter().map(attribute_size).sum::<usize>();
    let events: usize = span.events.iter().map(|event| 96 + event.name.len() + attributes(&event.attributes)).sum();
    let links: usize = span.links.iter().map(|link| 96 + attributes(&link.attributes)).sum();
    size_of::<SpanData>() + 64 + span.name.len() + attributes(&span.attributes) + events + links
}

fn attribute_size(attribute: &KeyValue) -> usize {
    let text = match &attribute.value {
        Value::String(text) => text.as_str().len(),
        Value::Array(Array::String(texts)) => texts.iter().map(|text| text.as_str().len() + 24).sum(),
        _ => 0,
    };
    size_of::<KeyValue>() + text
}
