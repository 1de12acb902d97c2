//! Attempts to connect a backend that are repeated: the last of them stands for all, so that a server that is down for a night
//! does not push everything else out of the ring.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use opentelemetry::trace::TraceId;

use super::{Entry, State};
use crate::names::Kind;
use crate::record::Record;

/// A connection that is made again within this time of its last success is repeated, too. No option: a server that ends more
/// often is one that does not run.
const SOON: Duration = Duration::from_secs(600);

/// Attempts to connect that one trace stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// How many there were, this one among them.
    pub count: u64,
    /// When the first began.
    pub first: SystemTime,
}

/// The last attempt of each backend.
pub(super) type LastAttempts = HashMap<Arc<str>, Attempt, RandomState>;

/// An attempt to connect that no request asked for.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    backend: Arc<str>,
    trace: TraceId,
    began: SystemTime,
    failed: bool,
}

impl Attempt {
    /// Of a span that has ended, if it is one.
    pub(super) fn of(span: &Record) -> Option<Self> {
        if span.start.kind != Kind::Internal || span.parent.is_some() {
            return None;
        }
        let backend = Arc::clone(&span.start.backend.as_ref()?.shared().name);
        let failed = span.fields().error.is_some();
        Some(Self {
            backend,
            trace: span.trace_id(),
            began: span.start.began.wall(),
            failed,
        })
    }

    /// Whether this attempt repeats `last`.
    fn repeats(&self, last: &Self) -> bool {
        let is_soon = || {
            self.began
                .duration_since(last.began)
                .is_ok_and(|between| between < SOON)
        };
        self.failed == last.failed && last.trace != self.trace && (self.failed || is_soon())
    }
}

impl State {
    /// Lets the trace `id` stand for the attempt before it, too, if it repeats that; returns what that one had.
    pub(super) fn fold(&mut self, id: TraceId, attempt: Attempt) -> Option<Entry> {
        let last = self
            .connecting
            .insert(Arc::clone(&attempt.backend), attempt.clone());
        let repeated = last.filter(|last| attempt.repeats(last)).and_then(|last| {
            let entry = self.traces.remove(&last.trace)?;
            self.order.retain(|trace| *trace != last.trace);
            self.bytes -= entry.bytes;
            Some(entry)
        });
        let before = repeated.as_ref().and_then(|entry| entry.attempts);
        let attempts = before.map_or(
            Attempts {
                count: 1,
                first: attempt.began,
            },
            |before| Attempts {
                count: before.count + 1,
                ..before
            },
        );
        if let Some(entry) = self.traces.get_mut(&id) {
            entry.attempts = Some(attempts);
        }
        repeated
    }
}
