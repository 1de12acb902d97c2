//! One span as it is kept: a few small fields, filled in while it lasts and never changed after its end.
//!
//! Most spans are only ever recorded, so that making one formats nothing, looks nothing up and copies no
//! more than a name. What the OpenTelemetry SDK and its exporters want to see is made of it when somebody
//! looks (`span_data`).
//!
//! Must not know: where spans go, and what becomes a span.

use std::mem::size_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fanlight_protocol::{Method, Revision};
use opentelemetry::trace::{SpanId, TraceId};
use smol_str::SmolStr;

use crate::backend::BackendTelemetry;
use crate::context::TraceContext;
use crate::error_type::{ErrorType, Outcome};
use crate::event::Event;
use crate::inbound::HeaderContext;
use crate::kept::{KeptId, SessionId, capped};
use crate::message::{Moment, Network};
use crate::names::Kind;
use crate::subject::Subject;

/// Most events of a span; the others are counted.
const MOST_EVENTS: usize = 32;
/// Longest error message that is recorded, in characters.
const LONGEST_MESSAGE: usize = 256;
/// About what the ring takes for a span besides the span.
const PLACE: usize = 64;

/// A span.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) beginning: Beginning,
    /// Where it stands.
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<ParentSpan>,
    pub(crate) baggage: Option<Arc<str>>,
    /// The context of the client's headers, carried on where spans are seen here only.
    pub(crate) passing: Option<Arc<HeaderContext>>,
    cancelled: AtomicBool,
    /// The lock is the span's own, and never held while anything but a field is set.
    found: Mutex<Found>,
}

/// The span above one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParentSpan {
    pub(crate) id: SpanId,
    pub(crate) is_remote: bool,
}

/// How a span begins.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) kind: Kind,
    /// `None` for a span that is of no message.
    pub(crate) method: Option<Method>,
    pub(crate) subject: Subject,
    pub(crate) id: Option<KeptId>,
    pub(crate) backend: Option<BackendTelemetry>,
    pub(crate) attempt: Option<u32>,
    pub(crate) began: Moment,
    pub(crate) links: Vec<TraceContext>,
}

/// What is found out while the span lasts.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// How long it lasted; `None` until it has ended.
    pub(crate) lasted: Option<Duration>,
    pub(crate) network: Option<Network>,
    pub(crate) revision: Option<Revision>,
    pub(crate) session: Option<SessionId>,
    pub(crate) cache_hit: Option<bool>,
    pub(crate) partial_failures: Option<usize>,
    pub(crate) error: Option<ErrorType>,
    pub(crate) seldom: Option<Box<Seldom>>,
}

/// What most spans have nothing of.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    pub(crate) events: Vec<(SystemTime, Event)>,
    pub(crate) dropped_events: u32,
    pub(crate) arguments: Option<String>,
    pub(crate) result: Option<String>,
    pub(crate) message: Option<String>,
}

impl Record {
    pub(crate) fn new(
        beginning: Beginning,
        context: TraceContext,
        parent: Option<ParentSpan>,
        baggage: Option<Arc<str>>,
        passing: Option<Arc<HeaderContext>>,
    ) -> Self {
        let (cancelled, found) = (AtomicBool::new(false), Mutex::default());
        Self { beginning, context, parent, baggage, passing, cancelled, found }
    }

    pub(crate) fn trace_id(&self) -> TraceId {
        self.context.trace_id()
    }

    /// Notes what has been found out. Nothing happens after the end.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Found)) {
        let mut found = self.found();
        if found.lasted.is_none() {
            change(&mut found);
        }
    }

    pub(crate) fn event(&self, event: impl FnOnce() -> Event) {
        self.note(|found| {
            let seldom = found.seldom();
            if seldom.events.len() < MOST_EVENTS {
                seldom.events.push((self.beginning.began.later().wall(), event()));
            } else {
                seldom.dropped_events = seldom.dropped_events.saturating_add(1);
            }
        });
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Ends the span; only the first end counts. About how many bytes it takes, if this was the first.
    pub(crate) fn end(&self, outcome: &Outcome<'_>, lasted: Duration) -> Option<usize> {
        let mut found = self.found();
        if found.lasted.is_some() {
            return None;
        }
        found.lasted = Some(lasted);
        found.error = outcome.error();
        if let Outcome::Failed { message: Some(message), .. } = outcome {
            found.seldom().message = Some(capped(message, LONGEST_MESSAGE).to_owned());
        }
        Some(self.size(&found))
    }

    /// What has been found out, as it stands.
    pub(crate) fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size(&self, found: &Found) -> usize {
        let name = match &self.beginning.subject {
            Subject::None => 0,
            Subject::Tool(name) | Subject::Prompt(name) | Subject::Resource(name) => apart(name),
        };
        let method = match &self.beginning.method {
            Some(Method::Other(name)) => name.len(),
            _ => 0,
        };
        let id = match &self.beginning.id {
            Some(KeptId::Text(text)) => apart(text),
            _ => 0,
        };
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let context = |context: &TraceContext| context.tracestate().map_or(0, |state| state.len());
        let links: usize = self.beginning.links.iter().map(|link| size_of::<TraceContext>() + context(link)).sum();
        let passing = self
            .passing
            .as_ref()
            .map_or(0, |passing| size_of::<HeaderContext>() + context(&passing.context) + text(&passing.baggage));
        let seldom = found.seldom.as_ref().map_or(0, |seldom| seldom.size());
        let session = found.session.as_ref().map_or(0, |session| apart(&session.0));
        let around = context(&self.context) + text(&self.baggage) + passing;
        size_of::<Self>() + PLACE + name + method + id + session + around + links + seldom
    }
}

impl Found {
    pub(crate) fn seldom(&mut self) -> &mut Seldom {
        self.seldom.get_or_insert_default()
    }
}

impl Seldom {
    fn size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let events = self.events.capacity() * size_of::<(SystemTime, Event)>();
        size_of::<Self>() + events + text(&self.arguments) + text(&self.result) + text(&self.message)
    }
}

/// The bytes of a text that stand elsewhere.
fn apart(text: &SmolStr) -> usize {
    if text.is_heap_allocated() { text.len() } else { 0 }
}
