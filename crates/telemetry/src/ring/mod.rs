//! The most recent traces in memory, sampled or not. Their number and size are bounded.
//!
//! Ending a span takes one short lock. So does reading, which only copies references. The ring
//! keeps spans as they were recorded; spans of the SDK are made for readers.

mod query;
mod recorded;
#[cfg(test)]
pub(crate) mod tests;
mod trace;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_protocol::code;
use foldhash::fast::RandomState;
use opentelemetry::trace::TraceId;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::error_type::ErrorType;
use crate::names::Kind;
use crate::record::{OptionalFields, Record};
use crate::rounds::Rounds;
pub use query::{Order, Query};
pub use trace::{Summary, Trace, TraceContent, attribute, failure};

/// How many ids the feed queues for a slow subscriber. Further ids push out the oldest.
const FEED: usize = 256;

/// The limits of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// The number of traces.
    pub traces: usize,
    /// The estimated size in bytes.
    pub bytes: usize,
}

impl RingLimits {
    /// The limit of the bytes of one trace.
    pub(crate) fn trace_bytes(self) -> usize {
        self.bytes / 8
    }
}

#[cfg(any(test, feature = "test-support"))]
impl Default for RingLimits {
    /// 500 traces and 16 MiB.
    fn default() -> Self {
        Self {
            traces: 500,
            bytes: 16 * 1024 * 1024,
        }
    }
}

/// The number of spans of most traces: one of the request, and one of the request to the server.
const USUAL: usize = 2;

/// The ring of recent traces. If it is full, it drops the oldest traces.
#[derive(Debug)]
pub struct Ring {
    limits: RingLimits,
    state: Mutex<State>,
    feed: broadcast::Sender<TraceId>,
}

#[derive(Debug, Default)]
struct State {
    traces: HashMap<TraceId, Entry, RandomState>,
    /// The ids of the traces, oldest first.
    order: VecDeque<TraceId>,
    bytes: usize,
    /// How many traces have been added so far.
    count: u64,
    connecting: LastAttempts,
    rounds: Rounds,
}

#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    spans: VecDeque<(Arc<Record>, usize)>,
    bytes: usize,
    dropped: u64,
    /// Set if the trace represents attempts to connect.
    attempts: Option<Attempts>,
    /// Whether the trace has all rounds of a call. The time between them is the client's.
    has_rounds: bool,
}

impl Ring {
    /// An empty ring.
    pub fn new(limits: RingLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
            feed: broadcast::Sender::new(FEED),
        }
    }

    /// Subscribes to the ids of traces in which a span ends. A slow subscriber misses some ids, and
    /// blocks nobody.
    pub fn subscribe(&self) -> broadcast::Receiver<TraceId> {
        self.feed.subscribe()
    }

    /// The number of traces in the ring, and their size in bytes.
    pub fn size(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.order.len(), state.bytes)
    }

    /// Adds a span with about `size` bytes.
    pub(crate) fn push(&self, span: Arc<Record>, size: usize) {
        let own = span.trace_id();
        let rounds =
            |fields: &OptionalFields| (fields.first_round, fields.issued, fields.continued);
        let (first, issued, continued) = span
            .fields
            .lock()
            .optional
            .as_deref()
            .map(rounds)
            .unwrap_or_default();
        // Dropped spans are freed after the lock is released.
        let (id, evicted) = {
            let mut state = self.state.lock();
            let attempt = Attempt::from_span(&span);
            let most = self.limits.trace_bytes();
            let by_state = continued.and_then(|one| state.rounds.take(one));
            let first = first.or(by_state);
            let first = first.filter(|first| state.traces.contains_key(first));
            let id = first.unwrap_or(own);
            if let Some(issued) = issued {
                state.rounds.record_state(issued, id);
            }
            let mut spans = state.add(id, span, size, most);
            if first.is_some() {
                spans.extend(state.join(id, own, most));
            }
            let repeated = attempt.and_then(|attempt| state.fold(id, attempt));
            // Usually there is only one, which needs no vector.
            let mut traces = std::iter::from_fn(|| state.evict(&self.limits));
            let traces = (traces.next(), traces.collect::<Vec<_>>());
            (id, (spans, repeated, traces))
        };
        drop(evicted);
        // This fails if there is no subscriber.
        let _ = self.feed.send(id);
    }
}

impl State {
    /// Adds a span to its trace. The trace keeps its newest spans, up to `most` bytes. Returns the
    /// spans that it drops.
    fn add(
        &mut self,
        id: TraceId,
        span: Arc<Record>,
        size: usize,
        most: usize,
    ) -> Vec<(Arc<Record>, usize)> {
        let entry = self.traces.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            self.count += 1;
            Entry {
                number: self.count,
                spans: VecDeque::with_capacity(USUAL),
                bytes: 0,
                dropped: 0,
                attempts: None,
                has_rounds: false,
            }
        });
        entry.spans.push_back((span, size));
        entry.bytes += size;
        self.bytes += size;
        let mut evicted = Vec::new();
        while entry.bytes > most && entry.spans.len() > 1 {
            let Some(oldest) = entry.spans.pop_front() else {
                break;
            };
            entry.bytes -= oldest.1;
            self.bytes -= oldest.1;
            entry.dropped += 1;
            evicted.push(oldest);
        }
        evicted
    }

    /// Moves the other spans of a further round to the trace of the call's first round. Returns the
    /// spans that this drops.
    fn join(&mut self, first: TraceId, round: TraceId, most: usize) -> Vec<(Arc<Record>, usize)> {
        if let Some(entry) = self.traces.get_mut(&first) {
            entry.has_rounds = true;
        }
        let moved = (first != round).then(|| self.remove(round)).flatten();
        let moved = moved.into_iter().flat_map(|entry| entry.spans);
        moved
            .flat_map(|(span, size)| self.add(first, span, size, most))
            .collect()
    }

    fn remove(&mut self, id: TraceId) -> Option<Entry> {
        let entry = self.traces.remove(&id)?;
        self.order.retain(|trace| *trace != id);
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Removes the oldest trace, if the limits are exceeded.
    fn evict(&mut self, limits: &RingLimits) -> Option<Entry> {
        if self.order.len() <= limits.traces
            && (self.bytes <= limits.bytes || self.order.len() <= 1)
        {
            return None;
        }
        let id = self.order.pop_front()?;
        let entry = self.traces.remove(&id)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

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
type LastAttempts = HashMap<Arc<str>, Attempt, RandomState>;

/// An attempt to connect that belongs to no request.
#[derive(Clone, Debug)]
struct Attempt {
    backend: Arc<str>,
    trace: TraceId,
    began: SystemTime,
    failed: bool,
}

impl Attempt {
    /// The attempt of an ended span; `None` if the span is about something else.
    fn from_span(span: &Record) -> Option<Self> {
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
    fn fold(&mut self, id: TraceId, attempt: Attempt) -> Option<Entry> {
        let last = self
            .connecting
            .insert(Arc::clone(&attempt.backend), attempt.clone());
        let repeated = last
            .filter(|last| attempt.repeats(last))
            .and_then(|last| self.remove(last.trace));
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

fanlight_protocol::named! {
    /// How a trace has ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TraceOutcome {
        /// The request ended without an error.
        Ok = "ok",
        /// The result of a tool has `isError`.
        ToolError = "tool_error",
        /// The request ended with a JSON-RPC error, or with an unusable message.
        ProtocolError = "protocol_error",
        /// The client or an operator cancelled the request, or the client left.
        Cancelled = "cancelled",
        /// The request failed for another reason: no connection, no answer, or a limit.
        Failed = "failed",
    }
}

impl TraceOutcome {
    pub(super) fn from_error(error: Option<ErrorType>) -> Self {
        match error {
            None => Self::Ok,
            Some(ErrorType::ToolError) => Self::ToolError,
            Some(
                ErrorType::Cancelled
                | ErrorType::Abandoned
                | ErrorType::JsonRpc(code::CANCELLED_BY_OPERATOR),
            ) => Self::Cancelled,
            // Fanlight sends these errors in place of a server's answer.
            Some(ErrorType::JsonRpc(code::BACKEND_UNAVAILABLE | code::BACKEND_TIMEOUT)) => {
                Self::Failed
            }
            Some(
                ErrorType::JsonRpc(_) | ErrorType::InvalidRequest | ErrorType::InvalidResponse,
            ) => Self::ProtocolError,
            Some(_) => Self::Failed,
        }
    }
}

fanlight_protocol::named! {
    /// The side that has to change something about a failure.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Side {
        /// The client: the request is wrong, or was cancelled.
        Client = "client",
        /// The gateway: a policy, a limit or a pin refused the request.
        Gateway = "gateway",
        /// The server: an error, no answer in time, or no connection.
        Server = "server",
    }
}

impl Side {
    /// The side of a failure that no gate has caused. `at_server` is whether a server's answer, or
    /// the lack of one, has the failure, too.
    pub(super) fn judge(error: ErrorType, at_server: bool) -> Self {
        match error {
            ErrorType::Cancelled | ErrorType::Abandoned | ErrorType::InvalidRequest => Self::Client,
            ErrorType::Overloaded
            | ErrorType::ShuttingDown
            | ErrorType::NoCredentials
            | ErrorType::ResponseTooLarge
            | ErrorType::JsonRpc(
                code::CANCELLED_BY_OPERATOR | code::NOT_PERMITTED | code::NOT_AUTHENTICATED,
            ) => Self::Gateway,
            ErrorType::JsonRpc(code::BACKEND_UNAVAILABLE | code::BACKEND_TIMEOUT) => Self::Server,
            ErrorType::JsonRpc(
                code::HEADER_MISMATCH
                | code::MISSING_CLIENT_CAPABILITY
                | code::UNSUPPORTED_PROTOCOL_VERSION
                | code::URLS_NOT_VISITED,
            ) => Self::Client,
            mistake if mistake.is_mistake_of_sender() => Self::Client,
            ErrorType::JsonRpc(_) if !at_server => Self::Gateway,
            _ => Self::Server,
        }
    }
}
