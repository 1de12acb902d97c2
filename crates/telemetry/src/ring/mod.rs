//! The last traces, in memory: bounded by their number and by their size, sampled or not.
//!
//! Ending a span takes one short lock; asking takes it only to copy references. A span is kept as it
//! was recorded; what readers see is made of it when they ask.
//!
//! Must not know: how traces are shown.

mod query;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use opentelemetry::trace::TraceId;
use tokio::sync::broadcast;

use crate::record::Record;

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

#[cfg(any(test, feature = "test-support"))]
impl Default for RingLimits {
    /// 500 traces and 16 MiB.
    fn default() -> Self {
        Self { traces: 500, bytes: 16 * 1024 * 1024 }
    }
}

/// Spans of nearly every trace: that of a request, and that of the request to the backend that it became.
const USUAL: usize = 2;

/// The ring. When it is full, the oldest traces go.
#[derive(Debug)]
pub struct Ring {
    limits: RingLimits,
    held: Mutex<Held>,
    feed: broadcast::Sender<TraceId>,
    /// Whether anybody may read the feed, which few ever do.
    is_read: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    traces: HashMap<TraceId, Entry, RandomState>,
    /// Oldest first.
    order: VecDeque<TraceId>,
    bytes: usize,
    /// How many traces there have been.
    begun: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    spans: VecDeque<(Arc<Record>, usize)>,
    bytes: usize,
    dropped: u64,
}

impl Ring {
    /// An empty ring.
    #[must_use]
    pub fn new(limits: RingLimits) -> Self {
        Self { limits, held: Mutex::default(), feed: broadcast::Sender::new(FEED), is_read: AtomicBool::new(false) }
    }

    /// The ids of traces in which a span ended, as it happens. A reader that is too slow misses
    /// some and is told how many; it never holds anything up.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<TraceId> {
        let reader = self.feed.subscribe();
        self.is_read.store(true, Ordering::Release);
        reader
    }

    /// How many traces are held, and how many bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let held = self.lock();
        (held.order.len(), held.bytes)
    }

    /// Takes a span, of about `size` bytes.
    pub(crate) fn push(&self, span: Arc<Record>, size: usize) {
        let id = span.trace_id();
        // What goes is let go of after the lock; as a rule, that is one trace.
        let gone = {
            let mut held = self.lock();
            let shortened = held.add(id, span, size, self.limits.bytes / 8);
            let mut over = std::iter::from_fn(|| held.take_over(&self.limits));
            (shortened, over.next(), over.collect::<Vec<_>>())
        };
        drop(gone);
        if self.is_read.load(Ordering::Acquire) {
            self.tell(id);
        }
    }

    #[cold]
    fn tell(&self, id: TraceId) {
        // It fails if no reader is left. One may have come since, and then is there before it says so.
        if self.feed.send(id).is_err() {
            self.is_read.store(false, Ordering::Release);
            if self.feed.receiver_count() > 0 {
                self.is_read.store(true, Ordering::Release);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// A trace keeps its newest spans, so that one that never ends leaves room for others. Those that
    /// had to go.
    fn add(&mut self, id: TraceId, span: Arc<Record>, size: usize, most: usize) -> Vec<(Arc<Record>, usize)> {
        let entry = self.traces.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            self.begun += 1;
            Entry { number: self.begun, spans: VecDeque::with_capacity(USUAL), bytes: 0, dropped: 0 }
        });
        entry.spans.push_back((span, size));
        entry.bytes += size;
        self.bytes += size;
        let mut gone = Vec::new();
        while entry.bytes > most && entry.spans.len() > 1 {
            let Some(oldest) = entry.spans.pop_front() else { break };
            entry.bytes -= oldest.1;
            self.bytes -= oldest.1;
            entry.dropped += 1;
            gone.push(oldest);
        }
        gone
    }

    /// The oldest trace, if there are more than may be.
    fn take_over(&mut self, limits: &RingLimits) -> Option<Entry> {
        if self.order.len() <= limits.traces && (self.bytes <= limits.bytes || self.order.len() <= 1) {
            return None;
        }
        let id = self.order.pop_front()?;
        let entry = self.traces.remove(&id)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}
