//! The spans: a message received, a message sent, a backend being connected.
//!
//! Each is owned by whoever knows its end. Dropping one without saying how it ended means that
//! nobody waited for it: it is recorded as abandoned.
//!
//! Must not know: HTTP, JSON-RPC framing, era.

use std::sync::Arc;

use fanlight_protocol::{Json, Method, Response, Revision};

use crate::backend::{BackendTelemetry, TraceContextPolicy};
use crate::error_type::{ErrorType, Outcome};
use crate::inbound::{HeaderContext, Inbound};
use crate::kept::{self, SessionId};
use crate::live::{Ancestor, Live};
use crate::message::{Arrival, Departure, Moment, Network};
use crate::metrics::{Metrics, Side, Timer};
use crate::names::Kind;
use crate::parent::Parent;
use crate::propagation::Propagation;
use crate::record::{Beginning, Found, Record, Seldom};
use crate::recorder::Recorder;
use crate::subject::Verdict;
use crate::{metrics::names, redact};

/// A message received, from its arrival until its answer's final frame has gone (kind SERVER).
#[derive(Debug)]
pub struct ServerSpan {
    /// The span itself, or what is carried on where nothing is recorded.
    parent: Parent,
    timer: Option<Timer>,
    from_backend: bool,
}

impl ServerSpan {
    /// A span that records nothing.
    #[must_use]
    pub fn off() -> Self {
        Self { parent: Parent::default(), timer: None, from_backend: false }
    }

    pub(crate) fn begin(
        recorder: &Recorder,
        message: &Arrival<'_>,
        backend: Option<&BackendTelemetry>,
        within: Option<&Live>,
    ) -> Live {
        let mut inbound = Inbound::read(&message.carriers);
        // What a backend asks within a call belongs to that call, whatever trace the backend is in.
        if let (Some(remote), Some(live)) = (&inbound.parent, within)
            && remote.trace_id() != live.record().trace_id()
        {
            inbound.links.extend(inbound.parent.take());
        }
        let beginning = Beginning {
            kind: Kind::Server,
            method: Some(kept::method(message.method)),
            subject: kept::subject(message.target),
            id: message.id.and_then(|id| kept::id(id.into())),
            backend: backend.cloned(),
            attempt: None,
            began: message.received,
            links: inbound.links,
        };
        let ancestor = match (&inbound.parent, within) {
            (Some(remote), _) => Ancestor::Remote(remote),
            (None, Some(live)) => Ancestor::Live(live),
            (None, None) => Ancestor::None,
        };
        // What a backend asks comes with no headers of a client's.
        let passing =
            if recorder.is_delivered() || within.is_some() { None } else { HeaderContext::read(&message.carriers) };
        Live::begin(recorder, beginning, &ancestor, inbound.baggage, passing.map(Arc::new))
    }

    pub(crate) fn new(
        parent: Parent,
        registry: Option<Arc<Metrics>>,
        backend: Option<&BackendTelemetry>,
        message: &Arrival<'_>,
    ) -> Self {
        let timer = registry.map(|registry| {
            Timer::start(registry, Side::Server, backend, message.method, message.target, message.received)
        });
        Self { parent, timer, from_backend: backend.is_some() }
    }

    /// What the call carries.
    #[must_use]
    pub fn parent(&self) -> Parent {
        self.parent.clone()
    }

    /// The same, for what is done while this lasts.
    #[must_use]
    pub fn within(&self) -> &Parent {
        &self.parent
    }

    /// How the message came. Say it once; a message from a backend has it already.
    pub fn set_network(&mut self, network: Network) {
        if self.from_backend {
            return;
        }
        if let Some(timer) = &mut self.timer {
            timer.set_transport(network.transport());
        }
        if let Some(span) = self.parent.record() {
            span.note(|found| found.network = Some(network));
        }
    }

    /// The revision it is spoken in. Say it once.
    pub fn set_revision(&mut self, revision: Revision) {
        set_revision(self.parent.record(), self.timer.as_mut(), revision);
    }

    /// The session it belongs to, of whose id a digest is recorded: whoever has the id is the client.
    /// Say it once.
    pub fn set_session(&self, id: &str) {
        set_session(self.parent.record(), id);
    }

    /// What an answer says of how this ends; names of a list become known to metrics.
    #[must_use]
    pub fn verdict(&self, method: &Method, answer: &Response) -> Verdict {
        if let Some(registry) = self.timer.as_ref().map(Timer::registry) {
            names::learn(registry, None, method, answer);
        }
        let unseen = self.parent.live_span().is_none() && self.timer.is_none();
        if unseen { Verdict::default() } else { Verdict::of(method, answer) }
    }

    /// The final frame has gone, or never will.
    pub fn finish(mut self, outcome: &Outcome<'_>) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: &Outcome<'_>) {
        end(self.timer.take(), self.parent.take_live(), outcome);
    }
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        self.end(&Outcome::Abandoned);
    }
}

/// A message sent, until its answer came (kind CLIENT). One per attempt.
#[derive(Debug)]
pub struct ClientSpan {
    live: Option<Live>,
    within: Parent,
    backend: Option<BackendTelemetry>,
    timer: Option<Timer>,
}

impl ClientSpan {
    /// One that records nothing, without looking at the clock.
    pub(crate) fn off(within: Parent, backend: Option<BackendTelemetry>) -> Self {
        Self { live: None, within, backend, timer: None }
    }

    pub(crate) fn beginning(backend: Option<&BackendTelemetry>, message: &Departure<'_>, began: Moment) -> Beginning {
        Beginning {
            kind: Kind::Client,
            method: Some(kept::method(message.method)),
            subject: kept::subject(message.target),
            id: message.id.and_then(kept::id),
            backend: backend.cloned(),
            attempt: backend.map(|_| message.attempt),
            began,
            links: Vec::new(),
        }
    }

    pub(crate) fn new(
        live: Option<Live>,
        within: Parent,
        backend: Option<&BackendTelemetry>,
        message: &Departure<'_>,
        began: Moment,
    ) -> Self {
        // What goes to clients is not counted: `mcp.client.operation.duration` is by backend.
        let timer = backend.and_then(|backend| {
            let registry = Arc::clone(backend.registry()?);
            Some(Timer::start(registry, Side::Client, Some(backend), message.method, message.target, began))
        });
        Self { live, within, backend: backend.cloned(), timer }
    }

    /// The trace context that goes out with the message.
    #[must_use]
    pub fn propagation(&self) -> Propagation {
        let policy = self.backend.as_ref().map(BackendTelemetry::trace_context).unwrap_or_default();
        match (&self.live, self.within.passed()) {
            _ if policy == TraceContextPolicy::Omit => Propagation::omitted(),
            (Some(live), _) => live.propagation(),
            (None, Some(passed)) => Propagation::of_headers(passed),
            (None, None) => Propagation::default(),
        }
    }

    /// What is done for this message: a question of the backend, a connection.
    #[must_use]
    pub fn parent(&self) -> Parent {
        self.live.as_ref().map_or_else(|| self.within.clone(), |live| Parent::live(live.clone()))
    }

    /// The revision it is spoken in. Say it once.
    pub fn set_revision(&mut self, revision: Revision) {
        set_revision(self.live.as_ref().map(Live::record), self.timer.as_mut(), revision);
    }

    /// The session with the receiver; a digest of the id is recorded. Say it once.
    pub fn set_session(&self, id: &str) {
        set_session(self.live.as_ref().map(Live::record), id);
    }

    /// The arguments in the `params` of a tool call; recorded only where that is switched on.
    pub fn record_arguments_in(&self, params: &Json) {
        self.note_arguments(|| params.get("arguments"));
    }

    /// The arguments of a tool call; recorded only where that is switched on.
    pub fn record_arguments(&self, arguments: &Json) {
        self.note_arguments(|| Some(arguments.clone()));
    }

    /// The result of a tool call; recorded only where that is switched on.
    pub fn record_result(&self, result: &Json) {
        self.note_result(|| Some(result.clone()));
    }

    /// The answer came.
    pub fn answered(self, method: &Method, answer: &Response) {
        if let Some(registry) = self.timer.as_ref().map(Timer::registry) {
            names::learn(registry, self.backend.as_ref().map(BackendTelemetry::metrics), method, answer);
        }
        if self.live.is_none() && self.timer.is_none() {
            return self.finish(&Outcome::Finished);
        }
        if *method == Method::CallTool {
            self.note_result(|| answer.result());
        }
        let verdict = Verdict::of(method, answer);
        self.finish(&verdict.outcome());
    }

    /// The answer came, or never will.
    pub fn finish(mut self, outcome: &Outcome<'_>) {
        self.end(outcome);
    }

    fn note_arguments(&self, arguments: impl FnOnce() -> Option<Json>) {
        let wanted = |backend: &BackendTelemetry| backend.content().arguments;
        self.record(arguments, wanted, |seldom, text| seldom.arguments = Some(text));
    }

    fn note_result(&self, result: impl FnOnce() -> Option<Json>) {
        let wanted = |backend: &BackendTelemetry| backend.content().results;
        self.record(result, wanted, |seldom, text| seldom.result = Some(text));
    }

    /// `content` is looked for only if it is wanted.
    fn record(
        &self,
        content: impl FnOnce() -> Option<Json>,
        wanted: impl Fn(&BackendTelemetry) -> bool,
        set: impl FnOnce(&mut Seldom, String),
    ) {
        if let (Some(live), Some(backend)) = (&self.live, self.backend.as_ref().filter(|backend| wanted(backend)))
            && let Some(content) = content()
        {
            let text = redact::redacted(&content, backend.content().max_bytes);
            live.record().note(|found: &mut Found| set(found.seldom(), text));
        }
    }

    fn end(&mut self, outcome: &Outcome<'_>) {
        end(self.timer.take(), self.live.take(), outcome);
    }
}

impl Drop for ClientSpan {
    fn drop(&mut self) {
        let cancelled = self.within.is_cancelled();
        self.end(&if cancelled { Outcome::failed(ErrorType::Cancelled) } else { Outcome::Abandoned });
    }
}

/// Connecting a backend (kind INTERNAL).
#[derive(Debug)]
pub struct ConnectSpan {
    live: Option<Live>,
}

impl ConnectSpan {
    pub(crate) fn new(live: Option<Live>) -> Self {
        Self { live }
    }

    /// What the messages of the handshake stand under.
    #[must_use]
    pub fn parent(&self) -> Parent {
        self.live.clone().map_or_else(Parent::default, Parent::live)
    }

    /// It is connected, or is not.
    pub fn finish(mut self, outcome: &Outcome<'_>) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: &Outcome<'_>) {
        end(None, self.live.take(), outcome);
    }
}

impl Drop for ConnectSpan {
    fn drop(&mut self) {
        self.end(&Outcome::Abandoned);
    }
}

/// Ends a span. What has been taken from its owner is there once only, so that only the first end counts.
fn end(timer: Option<Timer>, live: Option<Live>, outcome: &Outcome<'_>) {
    // One look at the clock for both.
    let began = live.as_ref().map(|live| live.record().beginning.began).or(timer.as_ref().map(Timer::began));
    let Some(lasted) = began.map(|began| began.elapsed()) else { return };
    if let Some(timer) = timer {
        timer.stop(outcome.error(), lasted);
    }
    if let Some(live) = live {
        live.end(outcome, lasted);
    }
}

fn set_revision(span: Option<&Record>, timer: Option<&mut Timer>, revision: Revision) {
    if let Some(timer) = timer {
        timer.set_revision(revision);
    }
    if let Some(span) = span {
        span.note(|found| found.revision = Some(revision));
    }
}

fn set_session(span: Option<&Record>, id: &str) {
    if let Some(span) = span {
        let session = SessionId(id.into());
        span.note(|found| found.session = Some(session));
    }
}
