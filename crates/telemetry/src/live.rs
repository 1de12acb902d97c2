//! A span while it lasts: what its owner and everybody working for it share.
//!
//! Must not know: what the span stands for.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::trace::{Link, Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::Span;

use crate::context::TraceContext;
use crate::error_type::Outcome;
use crate::event::Event;
use crate::inbound::HeaderContext;
use crate::message::{Moment, Network, capped};
use crate::names::{ERROR_TYPE, RPC_RESPONSE_STATUS_CODE};
use crate::propagation::Propagation;
use crate::recorder::Recorder;

/// Longest error message that is recorded, in characters.
const LONGEST_MESSAGE: usize = 256;

/// One span. The lock is its own: held for a push onto a vector, and never while it is handed on.
pub(crate) struct Live {
    recorder: Recorder,
    span: Mutex<Option<Span>>,
    context: SpanContext,
    tracestate: Option<Arc<str>>,
    baggage: Option<Arc<str>>,
    /// The context of the client's headers, carried on where spans are seen here only.
    passing: Option<Arc<HeaderContext>>,
    began: Moment,
    cancelled: AtomicBool,
}

/// How a span begins.
pub(crate) struct Beginning {
    pub(crate) kind: SpanKind,
    pub(crate) name: Cow<'static, str>,
    pub(crate) began: Moment,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) links: Vec<TraceContext>,
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
    ) -> Arc<Self> {
        let (parent, tracestate) = match ancestor {
            Ancestor::None => (None, None),
            Ancestor::Remote(context) => (Some(context.to_remote()), context.tracestate().cloned()),
            Ancestor::Live(live) => (Some(live.context.clone()), live.tracestate.clone()),
        };
        let Beginning { kind, name, began, attributes, links } = beginning;
        let mut builder =
            SpanBuilder::from_name(name).with_kind(kind).with_start_time(began.wall()).with_attributes(attributes);
        if !links.is_empty() {
            builder = builder.with_links(links.iter().map(|link| Link::with_context(link.to_remote())).collect());
        }
        let root = Context::new();
        let around = match parent {
            Some(parent) => root.with_remote_span_context(parent),
            None => root,
        };
        let span = recorder.tracer.build_with_context(builder, &around);
        let context = span.span_context().clone();
        let (recorder, span) = (recorder.clone(), Mutex::new(Some(span)));
        Arc::new(Self {
            recorder,
            span,
            context,
            tracestate,
            baggage,
            passing,
            began,
            cancelled: AtomicBool::new(false),
        })
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    pub(crate) fn context(&self) -> &SpanContext {
        &self.context
    }

    pub(crate) fn baggage(&self) -> Option<Arc<str>> {
        self.baggage.clone()
    }

    pub(crate) fn passing(&self) -> Option<Arc<HeaderContext>> {
        self.passing.clone()
    }

    pub(crate) fn propagation(&self) -> Propagation {
        if !self.recorder.is_delivered {
            return self.passing.as_deref().map(Propagation::of_headers).unwrap_or_default();
        }
        let context = TraceContext::of(&self.context, self.tracestate.clone());
        Propagation::of_span(&context, self.baggage.clone())
    }

    /// Sets attributes, each of which must be set once only: the SDK keeps both otherwise. Nothing
    /// happens after the end.
    pub(crate) fn set(&self, attributes: impl IntoIterator<Item = KeyValue>) {
        self.with_span(|span| {
            for attribute in attributes {
                span.set_attribute(attribute);
            }
        });
    }

    pub(crate) fn describe(&self, network: Network) {
        self.with_span(|span| network.describe(|attribute| span.set_attribute(attribute)));
    }

    pub(crate) fn event(&self, event: &Event) {
        self.with_span(|span| span.add_event(event.name(), event.attributes()));
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Ends the span; only the first end counts.
    pub(crate) fn end(&self, outcome: &Outcome<'_>) {
        let taken = self.span.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut span) = taken else { return };
        if let Some(error) = outcome.error() {
            span.set_attribute(KeyValue::new(ERROR_TYPE, error.as_text()));
            if let Some(code) = error.status_code() {
                span.set_attribute(KeyValue::new(RPC_RESPONSE_STATUS_CODE, code.to_string()));
            }
            let message = match outcome {
                Outcome::Failed { message: Some(message), .. } => capped(message, LONGEST_MESSAGE).to_owned(),
                _ => String::new(),
            };
            span.set_status(Status::error(message));
        }
        span.end_with_timestamp(self.began.end());
    }

    fn with_span(&self, change: impl FnOnce(&mut Span)) {
        if let Some(span) = self.span.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            change(span);
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Live").field(&self.context.trace_id()).field(&self.context.span_id()).finish()
    }
}
