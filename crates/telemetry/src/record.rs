//! A span as Fanlight stores it: a few small fields. They are set while the span lasts, and never
//! change after its end.
//!
//! Nobody reads most spans. So recording a span formats nothing, looks nothing up and copies no
//! more than a name. The span of the OpenTelemetry SDK is made on demand (`span_data`).

use std::mem::size_of;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use fanlight_protocol::secret::redacted_text;
use fanlight_protocol::{Method, Revision};
use opentelemetry::trace::{SpanId, TraceId};
use parking_lot::Mutex;
use smol_str::SmolStr;

use crate::content::{CallContent, Choice};
use crate::inbound::HeaderContext;
use crate::names::Kind;
use crate::rounds::StateId;
use crate::stored::{SessionId, StoredId};
use crate::subject::LONGEST_LINE;
use crate::text::truncated;
use crate::{
    BackendTelemetry, ClientName, ErrorType, Event, Moment, Network, Outcome, Rewritten, Subject,
    TraceContext,
};

/// The limit of the stored events of a span; further events are only counted. It keeps a single
/// span from taking all memory for traces.
const MOST_EVENTS: usize = 32;
/// The limit of a recorded error message, in characters.
const LONGEST_MESSAGE: usize = 256;
/// The memory that the ring needs for each span besides the span itself, estimated in bytes.
const OVERHEAD: usize = 64;

/// A flag: the request was cancelled.
const CANCELLED: u8 = 1;
/// A flag: an operator cancelled the request.
const BY_OPERATOR: u8 = 2;
/// A flag: the span has ended.
const ENDED: u8 = 4;

/// A span.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) start: SpanStart,
    /// The span's ids, flags and `tracestate`.
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<ParentSpan>,
    pub(crate) baggage: Option<Arc<str>>,
    /// The context of the client's headers. Fanlight forwards it if spans do not leave the process.
    pub(crate) forwarded: Option<Arc<HeaderContext>>,
    /// The content of the span's call, unless none is kept.
    pub(crate) content: OnceLock<Arc<CallContent>>,
    /// The recorded exchange with a client that the span belongs to; 0 if none is.
    exchange: AtomicU64,
    /// [`CANCELLED`], [`BY_OPERATOR`] and [`ENDED`].
    flags: AtomicU8,
    /// The lock is held only to read or set fields.
    pub(crate) fields: Mutex<SpanFields>,
}

/// The parent of a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParentSpan {
    pub(crate) id: SpanId,
    pub(crate) is_remote: bool,
}

/// Facts that are known when a span starts.
#[derive(Debug)]
pub(crate) struct SpanStart {
    pub(crate) kind: Kind,
    /// The method of the message. `None` for spans of connecting a server and of comparing a
    /// mirror's answer; the latter have no server either.
    pub(crate) method: Option<Method>,
    pub(crate) subject: Subject,
    pub(crate) id: Option<StoredId>,
    pub(crate) backend: Option<BackendTelemetry>,
    pub(crate) attempt: Option<u32>,
    pub(crate) began: Moment,
    pub(crate) links: Vec<TraceContext>,
}

/// Fields that are set while the span lasts.
#[derive(Debug, Default)]
pub(crate) struct SpanFields {
    /// How long the span lasted. `None` until it has ended.
    pub(crate) lasted: Option<Duration>,
    pub(crate) network: Option<Network>,
    pub(crate) revision: Option<Revision>,
    pub(crate) session: Option<SessionId>,
    pub(crate) client: Option<Arc<ClientName>>,
    pub(crate) cache_hit: Option<bool>,
    pub(crate) partial_failures: Option<usize>,
    pub(crate) rewritten: Rewritten,
    pub(crate) error: Option<ErrorType>,
    pub(crate) optional: Option<Box<OptionalFields>>,
    /// The waker of the request's task, for an operator who cancels the request.
    waker: Option<Waker>,
}

/// Fields that few spans have. They are boxed to keep the other spans small.
#[derive(Debug, Default)]
pub(crate) struct OptionalFields {
    pub(crate) events: Vec<(SystemTime, Event)>,
    pub(crate) dropped_events: u32,
    /// The decision of the policy about the request, and which policies decided.
    pub(crate) policy: Option<String>,
    /// The subject, if it turned out to be another than the message names.
    pub(crate) subject: Option<Subject>,
    /// The tools that `find_tools` found, or the tool that `call_tool` calls.
    pub(crate) lean_tools: Option<String>,
    /// The parts of a result that were shortened for the client.
    pub(crate) shortened: Option<String>,
    /// The gate that refused the request.
    pub(crate) gate: Option<&'static str>,
    /// The only sign of the client of a request without a session.
    pub(crate) told_by: Option<String>,
    /// The canary that served the client in place of the requested server.
    pub(crate) canary: Option<String>,
    /// The result of a copied request.
    pub(crate) mirror: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) endpoint: Option<Arc<str>>,
    /// The trace of the call's first round, if the request is a further one.
    pub(crate) first_round: Option<TraceId>,
    /// The state that the answer gives to the client, if it asks for input.
    pub(crate) issued: Option<StateId>,
    /// The state that the request brings back from the answer to the round before it.
    pub(crate) continued: Option<StateId>,
    /// The times during which the request waited for an approval.
    pub(crate) waits: Vec<(SystemTime, Duration)>,
}

impl Record {
    pub(crate) fn new(
        start: SpanStart,
        context: TraceContext,
        parent: Option<ParentSpan>,
        baggage: Option<Arc<str>>,
        forwarded: Option<Arc<HeaderContext>>,
    ) -> Self {
        let (flags, fields) = (AtomicU8::new(0), Mutex::default());
        Self {
            start,
            context,
            parent,
            baggage,
            forwarded,
            content: OnceLock::new(),
            exchange: AtomicU64::new(0),
            flags,
            fields,
        }
    }

    /// Makes the span part of a recorded exchange with a client.
    pub(crate) fn set_exchange(&self, number: u64) {
        self.exchange.store(number, Ordering::Relaxed);
    }

    pub(crate) fn trace_id(&self) -> TraceId {
        self.context.trace_id()
    }

    /// The recorded exchange with a client that the span belongs to; 0 if none is.
    pub(crate) fn exchange(&self) -> u64 {
        self.exchange.load(Ordering::Relaxed)
    }

    /// Changes fields, unless the span has ended.
    pub(crate) fn update(&self, change: impl FnOnce(&mut SpanFields)) {
        let mut fields = self.fields.lock();
        if fields.lasted.is_none() {
            change(&mut fields);
        }
    }

    /// Begins to keep the content of the call that the span belongs to, as far as `choice` allows.
    pub(crate) fn keep_content(&self, choice: Choice, most: usize) {
        match self.content.get() {
            Some(content) => content.narrow(choice),
            None if choice == Choice::default() => {}
            None => {
                let owner = self.context.span_id();
                let _ = self
                    .content
                    .set(Arc::new(CallContent::new(owner, choice, most)));
            }
        }
    }

    /// The path of the endpoint that received the request, unless this is the default one.
    pub(crate) fn endpoint(&self) -> Option<Arc<str>> {
        self.fields.lock().optional.as_ref()?.endpoint.clone()
    }

    /// The content of the call whose request is this span.
    pub(crate) fn own_content(&self) -> Option<&Arc<CallContent>> {
        let content = self.content.get();
        content.filter(|content| content.owner == self.context.span_id())
    }

    /// Adds an event, up to the limit. Returns whether there was room.
    pub(crate) fn event(&self, event: impl FnOnce() -> Event) -> bool {
        let mut has_room = false;
        self.update(|fields| {
            let optional = fields.optional();
            has_room = optional.events.len() < MOST_EVENTS;
            if has_room {
                optional
                    .events
                    .push((self.start.began.later().wall(), event()));
            } else {
                optional.dropped_events = optional.dropped_events.saturating_add(1);
            }
        });
        has_room
    }

    pub(crate) fn cancel(&self) {
        self.flags.fetch_or(CANCELLED, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.has(CANCELLED)
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.has(ENDED)
    }

    /// Cancels the request. Returns whether it was running.
    pub(crate) fn cancel_by_operator(&self) -> bool {
        let waker = {
            let mut fields = self.fields.lock();
            if fields.lasted.is_some() {
                return false;
            }
            self.flags
                .fetch_or(CANCELLED | BY_OPERATOR, Ordering::Relaxed);
            fields.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Ready after an operator has cancelled the request. Until then the task of `cx` waits to be
    /// woken.
    pub(crate) fn poll_cancelled_by_operator(&self, cx: &Context<'_>) -> Poll<()> {
        let mut fields = self.fields.lock();
        // The lock is held while this flag is set, so the waker cannot come too late.
        if self.has(BY_OPERATOR) {
            return Poll::Ready(());
        }
        let is_known = fields
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()));
        let before = if is_known || fields.lasted.is_some() {
            None
        } else {
            fields.waker.replace(cx.waker().clone())
        };
        drop(fields);
        // Dropping a waker may drop its task, which may end this span.
        drop(before);
        Poll::Pending
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Ends the span; only the first call has an effect. Returns the estimated size in bytes,
    /// unless the span had already ended.
    pub(crate) fn end(&self, outcome: &Outcome<'_>, lasted: Duration) -> Option<usize> {
        let mut fields = self.fields.lock();
        if fields.lasted.is_some() {
            return None;
        }
        fields.lasted = Some(lasted);
        fields.error = outcome.error();
        if let Outcome::Failed {
            message: Some(message),
            ..
        } = outcome
        {
            let message = redacted_text(truncated(message, LONGEST_LINE));
            fields.optional().message = Some(truncated(&message, LONGEST_MESSAGE).to_owned());
        }
        let has_failed = fields.error.is_some();
        let content = self.own_content();
        let content = content.map_or(0, |content| content.close(has_failed));
        let (size, waker) = (self.size(&fields) + content, fields.waker.take());
        self.flags.fetch_or(ENDED, Ordering::Relaxed);
        drop(fields);
        // Dropping a waker may drop its task.
        drop(waker);
        Some(size)
    }

    /// The subject of the message.
    pub(crate) fn subject<'a>(&'a self, fields: &'a SpanFields) -> &'a Subject {
        let optional = fields.optional.as_ref();
        let found = optional.and_then(|optional| optional.subject.as_ref());
        found.unwrap_or(&self.start.subject)
    }

    fn size(&self, fields: &SpanFields) -> usize {
        let name = self.subject(fields).text().map_or(0, heap);
        let method = match &self.start.method {
            Some(Method::Other(name)) => name.len(),
            _ => 0,
        };
        let id = match &self.start.id {
            Some(StoredId::Text(text)) => heap(text),
            _ => 0,
        };
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let context = |context: &TraceContext| context.tracestate().map_or(0, |state| state.len());
        let links: usize = self
            .start
            .links
            .iter()
            .map(|link| size_of::<TraceContext>() + context(link))
            .sum();
        let forwarded = self.forwarded.as_ref().map_or(0, |forwarded| {
            size_of::<HeaderContext>() + context(&forwarded.context) + text(&forwarded.baggage)
        });
        let optional = fields
            .optional
            .as_ref()
            .map_or(0, |optional| optional.size());
        let session = fields
            .session
            .as_ref()
            .map_or(0, |session| heap(&session.0));
        let client = fields.client.as_ref().map_or(0, |client| client.size());
        let around = context(&self.context) + text(&self.baggage) + forwarded;
        size_of::<Self>()
            + OVERHEAD
            + name
            + method
            + id
            + session
            + client
            + around
            + links
            + optional
    }
}

impl SpanFields {
    pub(crate) fn optional(&mut self) -> &mut OptionalFields {
        self.optional.get_or_insert_default()
    }
}

impl OptionalFields {
    fn size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let events = self.events.capacity() * size_of::<(SystemTime, Event)>();
        size_of::<Self>() + events + text(&self.message) + text(&self.lean_tools)
    }
}

/// The bytes that `text` has on the heap.
fn heap(text: &SmolStr) -> usize {
    if text.is_heap_allocated() {
        text.len()
    } else {
        0
    }
}
