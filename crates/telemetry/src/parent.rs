//! What a call carries so that what is done for it stands under it.
//!
//! Must not know: which crate the call is in.

use std::sync::Arc;

use fanlight_protocol::message::Notification;

use crate::backend::BackendTelemetry;
use crate::current::Ids;
use crate::event::Event;
use crate::inbound::HeaderContext;
use crate::live::{Ancestor, Live};
use crate::message::{Arrival, Departure, Moment};
use crate::names::Kind;
use crate::record::{Beginning, Record};
use crate::recorder::Recorder;
use crate::span::{ClientSpan, ConnectSpan, ServerSpan};
use crate::subject::Subject;

/// The span that a call belongs to, by which others become its children. Cheap to clone; one that
/// belongs to nothing does nothing.
#[derive(Clone, Debug, Default)]
pub struct Parent(State);

#[derive(Clone, Debug, Default)]
enum State {
    /// Nothing is recorded.
    #[default]
    Off,
    /// Nothing is recorded, but the client's header context is carried on.
    Passing(Arc<HeaderContext>),
    /// Spans begin traces of their own.
    Root(Recorder),
    /// Spans are children of this one.
    Live(Live),
}

impl Parent {
    pub(crate) fn passing(context: HeaderContext) -> Self {
        Self(State::Passing(Arc::new(context)))
    }

    pub(crate) fn root(recorder: Recorder) -> Self {
        Self(State::Root(recorder))
    }

    pub(crate) fn live(live: Live) -> Self {
        Self(State::Live(live))
    }

    pub(crate) fn passed(&self) -> Option<&HeaderContext> {
        match &self.0 {
            State::Passing(context) => Some(context),
            State::Off | State::Root(_) | State::Live(_) => None,
        }
    }

    /// A message to a backend: one span per attempt.
    #[must_use]
    pub fn client(&self, backend: &BackendTelemetry, message: &Departure<'_>) -> ClientSpan {
        if !self.is_recording() && backend.registry().is_none() {
            return ClientSpan::off(self.clone(), Some(backend.clone()));
        }
        let began = self.now();
        let live = self.begin(|| ClientSpan::beginning(Some(backend), message, began));
        ClientSpan::new(live, self.clone(), Some(backend), message, began)
    }

    /// A message to the client that connected: a question that a backend asked.
    #[must_use]
    pub fn to_client(&self, message: &Departure<'_>) -> ClientSpan {
        if !self.is_recording() {
            return ClientSpan::off(self.clone(), None);
        }
        let began = self.now();
        let live = self.begin(|| ClientSpan::beginning(None, message, began));
        ClientSpan::new(live, self.clone(), None, message, began)
    }

    /// A message from a backend: a question it asks, or a notification outside of calls. The
    /// context it sent is its parent if it is of the same trace, this span otherwise.
    #[must_use]
    pub fn server(&self, backend: &BackendTelemetry, message: &Arrival<'_>) -> ServerSpan {
        let registry = backend.registry().cloned();
        let live =
            self.recorder().map(|recorder| ServerSpan::begin(recorder, message, Some(backend), self.live_span()));
        ServerSpan::new(live.map_or_else(Self::default, Self::live), registry, Some(backend), message)
    }

    /// Connecting a backend, when that happens for this call.
    #[must_use]
    pub fn connecting(&self, backend: &BackendTelemetry) -> ConnectSpan {
        ConnectSpan::new(self.begin(|| Beginning {
            kind: Kind::Internal,
            method: None,
            subject: Subject::None,
            id: None,
            backend: Some(backend.clone()),
            attempt: None,
            began: self.now(),
            links: Vec::new(),
        }))
    }

    /// Something happened on the way.
    pub fn event(&self, event: &Event) {
        if let Some(span) = self.record() {
            span.event(|| *event);
        }
    }

    /// A notification passed on the way, which most kinds of them make no event of.
    pub fn notified(&self, notification: &Notification) {
        if let Some(event) = Event::of(notification)
            && let Some(span) = self.record()
        {
            span.event(event);
        }
    }

    /// The answer came from the catalogue without asking a backend, or it did not. Say it once.
    pub fn cache_hit(&self, hit: bool) {
        if let Some(span) = self.record() {
            span.note(|found| found.cache_hit = Some(hit));
        }
    }

    /// So many backends contributed nothing to the merged answer, or not all of it. Say it once; of
    /// none there is nothing to say.
    pub fn partial_failures(&self, count: usize) {
        if let Some(span) = self.record().filter(|_| count > 0) {
            span.note(|found| found.partial_failures = Some(count));
        }
    }

    /// The request has been cancelled: what is given up for it from now on is so for that reason.
    pub fn cancel(&self) {
        if let Some(span) = self.record() {
            span.cancel();
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.record().is_some_and(Record::is_cancelled)
    }

    /// The ids of the span, for log lines.
    #[must_use]
    pub fn ids(&self) -> Option<Ids> {
        match &self.0 {
            State::Live(live) => Some(Ids::of(&live.record().context)),
            State::Off | State::Root(_) => None,
            State::Passing(header) => Some(Ids::of(&header.context)),
        }
    }

    /// Whether anything is recorded, for callers that would have to compute what they record.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        matches!(self.0, State::Root(_) | State::Live(_))
    }

    /// The span, if this is one that is recorded.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.live_span().map(Live::record)
    }

    /// Now, for what begins under this.
    fn now(&self) -> Moment {
        self.record().map_or_else(Moment::now, |span| span.beginning.began.later())
    }

    fn recorder(&self) -> Option<&Recorder> {
        match &self.0 {
            State::Off | State::Passing(_) => None,
            State::Root(recorder) => Some(recorder),
            State::Live(live) => Some(live.recorder()),
        }
    }

    /// Takes the span away, if there is one; what is carried on without one stays.
    pub(crate) fn take_live(&mut self) -> Option<Live> {
        match std::mem::take(&mut self.0) {
            State::Live(live) => Some(live),
            other => {
                self.0 = other;
                None
            }
        }
    }

    pub(crate) fn live_span(&self) -> Option<&Live> {
        match &self.0 {
            State::Live(live) => Some(live),
            State::Off | State::Passing(_) | State::Root(_) => None,
        }
    }

    fn begin(&self, beginning: impl FnOnce() -> Beginning) -> Option<Live> {
        let recorder = self.recorder()?;
        let (ancestor, baggage, passing) = match self.live_span() {
            Some(live) => (Ancestor::Live(live), live.record().baggage.clone(), live.record().passing.clone()),
            None => (Ancestor::None, None, None),
        };
        Some(Live::begin(recorder, beginning(), &ancestor, baggage, passing))
    }
}
