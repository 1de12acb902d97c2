//! Repeated attempts to connect a server.
//!
//! The last attempt stands for all of them. Otherwise a server that is down for a night would push
//! everything else out of the ring.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use opentelemetry::trace::TraceId;

use super::{Entry, State};
use crate::names::Kind;
use crate::record::Record;

/// A new connection within this time after the last successful one counts as repeated, too. There
/// is no option: a server whose connections end more often does not work.
const SOON: Duration = Duration::from_secs(600);

/// The attempts to connect for which one trace stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// How many attempts there were, including the last one.
    pub count: u64,
    /// When the first attempt began.
    pub first: SystemTime,
}

/// The last attempt of each server.
pub(super) type LastAttempts = HashMap<Arc<str>, Attempt, RandomState>;

/// An attempt to connect that belongs to no request.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    backend: Arc<str>,
    trace: TraceId,
    began: SystemTime,
    failed: bool,
}

impl Attempt {
    /// The attempt that an ended span stands for, if it is one.
    pub(super) fn of(span: &Record) -> Option<Self> {
        if span.start.kind != Kind::Internal || span.parent.is_some() {
            return None;
        }
        let backend = Arc::clone(&span.start.backend.as_ref()?.shared().name);
        let failed = span.fields.lock().error.is_some();
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
    /// Makes the trace `id` stand also for the attempt before it, if it repeats that attempt.
    /// Returns the entry of the earlier trace.
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
