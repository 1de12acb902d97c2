//! The parent of spans, which travels with a call.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_protocol::{Method, Notification};
use opentelemetry::trace::{SpanId, TraceId};

use super::context::TraceContext;
use crate::active::{ActiveSpan, Ancestor};
use crate::inbound::HeaderContext;
use crate::pipeline::Recorder;
use crate::record::{Record, SpanFields, SpanStart};
use crate::{ContentKind, Event, Moment, Propagation, Rewritten};

/// The span whose children the spans of a call become. Cheap to clone. The default records nothing.
#[derive(Clone, Debug, Default)]
pub struct Parent(State);

#[derive(Clone, Debug, Default)]
enum State {
    /// Fanlight records nothing.
    #[default]
    Off,
    /// Fanlight records nothing, but forwards the context of the client's headers.
    Forwarding(Arc<HeaderContext>),
    /// Spans begin traces of their own.
    Root(Arc<Recorder>),
    /// Spans are children of this span.
    Active(ActiveSpan),
}

impl Parent {
    pub(crate) fn forwarding(context: HeaderContext) -> Self {
        Self(State::Forwarding(Arc::new(context)))
    }

    pub(crate) fn root(recorder: Arc<Recorder>) -> Self {
        Self(State::Root(recorder))
    }

    pub(crate) fn from_span(span: ActiveSpan) -> Self {
        Self(State::Active(span))
    }

    pub(crate) fn propagation(&self) -> Propagation {
        match &self.0 {
            State::Active(span) => span.propagation(),
            State::Forwarding(context) => Propagation::from_headers(context),
            State::Off | State::Root(_) => Propagation::default(),
        }
    }

    /// Adds an event to the span.
    pub fn event(&self, event: &Event) {
        if let Some(span) = self.record() {
            span.event(|| *event);
        }
    }

    /// Adds an event for a notification of the call. Only progress and log messages have events.
    pub fn record_notification(&self, notification: &Notification) {
        let Some((event, span)) = Event::from_notification(notification).zip(self.record()) else {
            return;
        };
        if span.event(event)
            && span.content.get().is_some()
            && let Some(params) = notification.params()
        {
            let kind = match notification.method {
                Method::Progress => ContentKind::Progress,
                _ => ContentKind::Log,
            };
            span.keep(span.start.began.later().wall(), kind, &params);
        }
    }

    /// Records whether the response came from the catalogue without a request to a server. The
    /// caller sets it once.
    pub fn cache_hit(&self, hit: bool) {
        self.update(|fields| fields.cache_hit = Some(hit));
    }

    /// Records how many servers contributed nothing to the merged response, or not all of their
    /// part. The caller sets it once; zero records nothing.
    pub fn partial_failures(&self, count: usize) {
        if count > 0 {
            self.update(|fields| fields.partial_failures = Some(count));
        }
    }

    /// Records which parts of the message the configuration changed. An empty value records
    /// nothing.
    pub fn record_rewriting(&self, what: Rewritten) {
        if !what.is_empty() {
            self.update(|fields| fields.rewritten = fields.rewritten.union(what));
        }
    }

    /// Records the tools that `find_tools` found, or the tool that `call_tool` calls.
    pub fn lean_tools(&self, names: &str) {
        const LONGEST: usize = 1024;
        if let Some(span) = self.record() {
            let names = names.chars().take(LONGEST).collect();
            span.update(|fields| fields.optional().lean_tools = Some(names));
        }
    }

    /// Records what of the result was shortened for the client.
    pub fn record_shortening(&self, what: String) {
        self.update(|fields| fields.optional().shortened = Some(what));
    }

    /// Records the decision of the policy about the request, and which policies decided. The caller
    /// sets it once.
    pub fn policy(&self, decision: &str, policies: &[Arc<str>]) {
        self.update(|fields| {
            let text = format!("{decision} {}", policies.join(", "));
            fields.optional().policy = Some(text.trim_end().to_owned());
        });
    }

    /// Records which gate refuses the request.
    pub fn refused_by(&self, gate: &'static str) {
        self.update(|fields| fields.optional().gate = Some(gate));
    }

    /// Records which canary serves the client in place of its server. The caller sets it once.
    pub fn canary(&self, name: &str) {
        self.update(|fields| fields.optional().canary = Some(name.to_owned()));
    }

    /// Records that the request is a further round of the call that began with `first`.
    pub fn continues(&self, first: &Self) {
        if let Some(first) = first.record() {
            self.update(|fields| fields.optional().first_round = Some(first.trace_id()));
        }
    }

    /// Records that the request has waited for an approval since this moment.
    pub fn waited_since(&self, began: Moment) {
        let wait = (began.wall(), began.elapsed());
        self.update(|fields| fields.optional().waits.push(wait));
    }

    /// Records that the request was cancelled. Spans that are dropped from now on end as cancelled.
    pub fn cancel(&self) {
        if let Some(span) = self.record() {
            span.cancel();
        }
    }

    /// Ready after an operator has cancelled the request. Until then the task of `cx` waits to be
    /// woken.
    pub fn poll_cancelled_by_operator(&self, cx: &Context<'_>) -> Poll<()> {
        self.record()
            .map_or(Poll::Pending, |span| span.poll_cancelled_by_operator(cx))
    }

    /// The recorded exchange with a client that the span belongs to; 0 if none is.
    pub fn exchange(&self) -> u64 {
        self.record().map_or(0, Record::exchange)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.record().is_some_and(Record::is_cancelled)
    }

    /// The ids of the span, for log lines.
    pub fn ids(&self) -> Option<Ids> {
        match &self.0 {
            State::Active(span) => Some(Ids::from_context(&span.record().context)),
            State::Off | State::Root(_) => None,
            State::Forwarding(header) => Some(Ids::from_context(&header.context)),
        }
    }

    /// Runs `work` with this span as the current one, so its log lines have the ids of the span.
    /// Spawned tasks need a scope of their own.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        within(self.ids(), work)
    }

    /// Whether spans are recorded.
    pub(crate) fn is_recording(&self) -> bool {
        matches!(self.0, State::Root(_) | State::Active(_))
    }

    /// Changes fields of the span, if it is recorded.
    pub(crate) fn update(&self, change: impl FnOnce(&mut SpanFields)) {
        if let Some(span) = self.record() {
            span.update(change);
        }
    }

    /// The record of the span, if it is recorded.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.active_span().map(ActiveSpan::record)
    }

    /// The current moment, for spans that start under this one.
    pub(crate) fn now(&self) -> Moment {
        self.record()
            .map_or_else(Moment::now, |span| span.start.began.later())
    }

    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        match &self.0 {
            State::Off | State::Forwarding(_) => None,
            State::Root(recorder) => Some(recorder),
            State::Active(span) => Some(span.recorder()),
        }
    }

    /// Takes the span, if there is one.
    pub(crate) fn take_span(&mut self) -> Option<ActiveSpan> {
        let span = self.active_span().cloned();
        if span.is_some() {
            self.0 = State::Off;
        }
        span
    }

    pub(crate) fn active_span(&self) -> Option<&ActiveSpan> {
        match &self.0 {
            State::Active(span) => Some(span),
            _ => None,
        }
    }

    pub(crate) fn begin(&self, start: impl FnOnce() -> SpanStart) -> Option<ActiveSpan> {
        let recorder = self.recorder()?;
        let (ancestor, baggage, forwarded) = match self.active_span() {
            Some(span) => (
                Ancestor::Active(span),
                span.record().baggage.clone(),
                span.record().forwarded.clone(),
            ),
            None => (Ancestor::None, None, None),
        };
        Some(ActiveSpan::begin(
            recorder,
            start(),
            &ancestor,
            baggage,
            forwarded,
        ))
    }
}

tokio::task_local! {
    static CURRENT: Option<Ids>;
}

/// The ids of a span, for log lines. Displays as `trace_id=… span_id=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The id of the trace. It displays as 32 hexadecimal digits.
    pub trace_id: TraceId,
    /// The id of the span. It displays as 16 hexadecimal digits.
    pub span_id: SpanId,
}

impl Ids {
    fn from_context(context: &TraceContext) -> Self {
        Self {
            trace_id: context.trace_id(),
            span_id: context.span_id(),
        }
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace_id={} span_id={}", self.trace_id, self.span_id)
    }
}

/// The ids of the span that the running task works for: of the innermost
/// [`Parent::scope`](crate::Parent::scope) around this code.
pub fn current() -> Option<Ids> {
    CURRENT.try_with(|current| *current).ok().flatten()
}

/// Runs `work` with this span as the current one.
pub(crate) fn within<F: Future>(
    span: Option<Ids>,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    CURRENT.scope(span, work)
}
