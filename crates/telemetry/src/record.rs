//! A span as it is stored: a few small fields, set while it lasts and never changed after its end.
//!
//! Most spans are never read, so recording one formats nothing, looks nothing up and copies no more than a name. The
//! span of the OpenTelemetry SDK is made on demand (`span_data`).

use std::mem::size_of;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use fanlight_protocol::{Method, Revision};
use opentelemetry::trace::{SpanId, TraceId};
use smol_str::SmolStr;

use crate::backend::{BackendTelemetry, ContentPolicy};
use crate::client_name::ClientName;
use crate::context::TraceContext;
use crate::error_type::{ErrorType, Outcome};
use crate::event::Event;
use crate::inbound::HeaderContext;
use crate::message::{Moment, Network};
use crate::names::Kind;
use crate::rewritten::Rewritten;
use crate::stored::{SessionId, StoredId};
use crate::subject::Subject;
use crate::text::truncated;

/// Most events of a span; further ones are only counted. No option: `limits.traceBytes` bounds the memory; this keeps
/// one span from taking it all.
const MOST_EVENTS: usize = 32;
/// Longest error message that is recorded, in characters.
const LONGEST_MESSAGE: usize = 256;
/// Memory of the ring for each span besides the span, in bytes, estimated.
const OVERHEAD: usize = 64;

/// The request has been cancelled.
const CANCELLED: u8 = 1;
/// An operator has cancelled it.
const BY_OPERATOR: u8 = 2;
/// The span has ended.
const ENDED: u8 = 4;

/// A span.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) start: SpanStart,
    /// Its ids, flags and `tracestate`.
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<ParentSpan>,
    pub(crate) baggage: Option<Arc<str>>,
    /// The context of the client's headers, forwarded where spans do not leave the process.
    pub(crate) forwarded: Option<Arc<HeaderContext>>,
    /// [`CANCELLED`], [`BY_OPERATOR`] and [`ENDED`].
    flags: AtomicU8,
    /// Locked only to read or set fields.
    fields: Mutex<SpanFields>,
}

/// The parent of a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParentSpan {
    pub(crate) id: SpanId,
    pub(crate) is_remote: bool,
}

/// The facts known when a span starts.
#[derive(Debug)]
pub(crate) struct SpanStart {
    pub(crate) kind: Kind,
    /// `None` for the spans of connecting and of comparing; the latter has no backend either.
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
    /// How long it lasted; `None` until it has ended.
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
    /// Wakes the request once an operator cancels it.
    waker: Option<Waker>,
}

/// Fields that few spans have, boxed to keep the others small.
#[derive(Debug, Default)]
pub(crate) struct OptionalFields {
    pub(crate) events: Vec<(SystemTime, Event)>,
    pub(crate) dropped_events: u32,
    pub(crate) arguments: Option<String>,
    pub(crate) result: Option<String>,
    /// What the policy says of the request, and which policies do.
    pub(crate) policy: Option<String>,
    /// The server that served the client in place of the one that the request was for.
    pub(crate) canary: Option<String>,
    /// What became of a copy of a request.
    pub(crate) mirror: Option<String>,
    /// The arguments of a prompt.
    pub(crate) variables: Vec<(String, String)>,
    /// What is recorded of the call, once it is known which backend it goes to.
    pub(crate) content: Option<ContentPolicy>,
    pub(crate) message: Option<String>,
    /// JSON of the spans that the server returned; no attribute, so that it is not exported.
    pub(crate) server_spans: Option<Arc<str>>,
    pub(crate) endpoint: Option<Arc<str>>,
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
            flags,
            fields,
        }
    }

    pub(crate) fn trace_id(&self) -> TraceId {
        self.context.trace_id()
    }

    /// Changes fields, unless the span has ended.
    pub(crate) fn update(&self, change: impl FnOnce(&mut SpanFields)) {
        let mut fields = self.fields();
        if fields.lasted.is_none() {
            change(&mut fields);
        }
    }

    /// What is recorded of the call, if it is known.
    pub(crate) fn content(&self) -> Option<ContentPolicy> {
        self.fields()
            .optional
            .as_ref()
            .and_then(|optional| optional.content)
    }

    pub(crate) fn event(&self, event: impl FnOnce() -> Event) {
        self.update(|fields| {
            let optional = fields.optional();
            if optional.events.len() < MOST_EVENTS {
                optional
                    .events
                    .push((self.start.began.later().wall(), event()));
            } else {
                optional.dropped_events = optional.dropped_events.saturating_add(1);
            }
        });
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

    /// Cancels the request; returns whether it was running.
    pub(crate) fn cancel_by_operator(&self) -> bool {
        let waker = {
            let mut fields = self.fields();
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

    /// Ready once an operator has cancelled the request; otherwise the task of `cx` is woken then.
    pub(crate) fn poll_cancelled_by_operator(&self, cx: &Context<'_>) -> Poll<()> {
        let mut fields = self.fields();
        // Set with the lock held, so that the waker cannot be too late.
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
        // To drop a waker may drop its task, which may end this span.
        drop(before);
        Poll::Pending
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Ends the span; only the first end counts. Returns the estimated size in bytes, unless it had ended.
    pub(crate) fn end(&self, outcome: &Outcome<'_>, lasted: Duration) -> Option<usize> {
        let mut fields = self.fields();
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
            fields.optional().message = Some(truncated(message, LONGEST_MESSAGE).to_owned());
        }
        let (size, waker) = (self.size(&fields), fields.waker.take());
        self.flags.fetch_or(ENDED, Ordering::Relaxed);
        drop(fields);
        // To drop a waker may drop its task.
        drop(waker);
        Some(size)
    }

    /// The fields as they are now.
    pub(crate) fn fields(&self) -> MutexGuard<'_, SpanFields> {
        self.fields.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size(&self, fields: &SpanFields) -> usize {
        let name = self.start.subject.text().map_or(0, heap);
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
        let spans = self.server_spans.as_ref().map_or(0, |spans| spans.len());
        let variables: usize = self
            .variables
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        size_of::<Self>()
            + events
            + spans
            + variables
            + text(&self.arguments)
            + text(&self.result)
            + text(&self.message)
    }
}

/// The bytes of `text` outside of its own fields.
fn heap(text: &SmolStr) -> usize {
    if text.is_heap_allocated() {
        text.len()
    } else {
        0
    }
}
