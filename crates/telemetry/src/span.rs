//! The spans of a received message, of a sent message, of connecting a server, and of a copy that
//! goes to a mirror.
//!
//! A span that is dropped without an outcome was given up, and is recorded as abandoned.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_protocol::{
    INPUT_RESPONSES, InputRequired, Json, Method, Response, Revision, RpcError,
};

use crate::active::{ActiveSpan, Ancestor};
use crate::content::{ContentKind, MOST, has_content};
use crate::inbound::Inbound;
use crate::metrics::{Metrics, Side, Timer, names};
use crate::names::Kind;
use crate::pipeline::Recorder;
use crate::record::{Record, SpanStart};
use crate::rounds::StateId;
use crate::stored::{self, SessionId};
use crate::{
    Arrival, BackendTelemetry, ClientName, Departure, ErrorType, Moment, Network, Outcome, Parent,
    Propagation, Target, Verdict,
};

/// The span of a received message (kind SERVER). It lasts from the message's arrival until the last
/// frame of the response is sent.
#[derive(Debug, Default)]
pub struct ServerSpan {
    /// The span, or the context that is forwarded if nothing is recorded.
    parent: Parent,
    timer: Option<Timer>,
    from_backend: bool,
    network: Option<Network>,
    /// The method and `params` of a call whose content may be recorded.
    call: Option<(Method, Json)>,
}

impl ServerSpan {
    /// A span that records nothing.
    pub fn off() -> Self {
        Self::default()
    }

    pub(crate) fn begin(
        recorder: &Arc<Recorder>,
        message: &Arrival<'_>,
        backend: Option<&BackendTelemetry>,
        within: Option<&ActiveSpan>,
    ) -> ActiveSpan {
        let mut inbound = recorder
            .propagators
            .filter(Inbound::read(&message.carriers));
        // A server's request within a call belongs to that call, even if the server names another
        // trace.
        if let (Some(remote), Some(span)) = (&inbound.parent, within)
            && remote.trace_id() != span.record().trace_id()
        {
            inbound.links.extend(inbound.parent.take());
        }
        let start = SpanStart {
            kind: Kind::Server,
            method: Some(stored::method(message.method)),
            subject: stored::subject(message.target),
            id: message.id.and_then(|id| stored::id(id.into())),
            backend: backend.cloned(),
            attempt: None,
            began: message.received,
            links: inbound.links,
        };
        let ancestor = match (&inbound.parent, within) {
            (Some(remote), _) => Ancestor::Remote(remote),
            (None, Some(span)) => Ancestor::Active(span),
            (None, None) => Ancestor::None,
        };
        // Requests of servers have no headers of a client.
        let forwarded = if recorder.is_delivered || within.is_some() {
            None
        } else {
            recorder.propagators.header(&message.carriers)
        };
        ActiveSpan::begin(
            recorder,
            start,
            &ancestor,
            inbound.baggage,
            forwarded.map(Arc::new),
        )
    }

    pub(crate) fn new(
        parent: Parent,
        registry: Option<Arc<Metrics>>,
        backend: Option<&BackendTelemetry>,
        message: &Arrival<'_>,
    ) -> Self {
        let timer = registry.map(|registry| {
            Timer::start(
                registry,
                Side::Server,
                backend.map(BackendTelemetry::labels),
                message.method,
                message.target,
                message.received,
            )
        });
        Self {
            parent,
            timer,
            from_backend: backend.is_some(),
            network: None,
            call: None,
        }
    }

    /// The parent of work for the message.
    pub fn parent(&self) -> Parent {
        self.parent.clone()
    }

    /// The parent of work that ends before this span, as a reference.
    pub fn within(&self) -> &Parent {
        &self.parent
    }

    /// The trace context with which another process continues to work on the message.
    pub fn propagation(&self) -> Propagation {
        self.parent.propagation()
    }

    /// Sets the transport of the message, once. A message from a server has it already.
    pub fn set_network(&mut self, network: Network) {
        if self.from_backend {
            return;
        }
        self.network = Some(network);
        if let Some(timer) = &mut self.timer {
            timer.set_network(network);
        }
        self.parent.update(|fields| fields.network = Some(network));
    }

    /// The transport of the message, if it is set.
    pub fn network(&self) -> Option<Network> {
        self.network
    }

    /// Sets the negotiated revision, once.
    pub fn set_revision(&mut self, revision: Revision) {
        set_revision(self.parent.record(), self.timer.as_mut(), revision);
    }

    /// Sets the listed tool that the message turned out to call.
    pub fn set_tool(&mut self, name: &str) {
        if let Some(timer) = &mut self.timer {
            timer.set_tool(name);
        }
        let tool = || Some(stored::subject(Target::Tool(name)));
        self.parent
            .update(|fields| fields.optional().subject = tool());
    }

    /// Sets the id of the message's session, once. Only a digest is shown.
    pub fn set_session(&self, id: &str) {
        set_session(self.parent.record(), id);
    }

    /// Sets the client that sent the message, once. `client` is called only if the span is
    /// recorded.
    pub fn set_client(&self, client: impl FnOnce() -> Option<Arc<ClientName>>) {
        self.parent.update(|fields| fields.client = client());
    }

    /// Makes the span, and those within it, part of a recorded exchange with the client.
    pub fn set_exchange(&self, number: u64) {
        if let Some(span) = self.parent.record().filter(|_| number > 0) {
            span.set_exchange(number);
        }
    }

    /// Sets the path of the endpoint that received the request.
    pub fn set_endpoint(&self, path: &Arc<str>) {
        self.parent
            .update(|fields| fields.optional().endpoint = Some(Arc::clone(path)));
    }

    /// Keeps the `params` of the message. They become content once the server of the call is known.
    pub fn keep_content(&mut self, method: &Method, params: Option<&Json>) {
        let (Some(span), Some(params)) = (self.parent.record(), params) else {
            return;
        };
        if self.from_backend {
            span.keep_params(method, params);
        } else if has_content(method) {
            self.call = Some((method.clone(), params.clone()));
        }
    }

    /// Records the state that the request brings back, which names the call that the request
    /// continues.
    pub fn set_continued(&self, state: &Json) {
        let state = state.as_str().and_then(|state| StateId::derive(&state));
        if state.is_some() {
            self.parent
                .update(|fields| fields.optional().continued = state);
        }
    }

    /// Begins to keep content, if the call has reached no server.
    fn keep_unreached(&self) {
        if let (Some(_), Some(span), Some(recorder)) =
            (&self.call, self.parent.record(), self.parent.recorder())
            && span.content.get().is_none()
        {
            let (rules, endpoint) = (&recorder.content, span.endpoint());
            let choice = rules.choose_unreached(endpoint.as_deref().unwrap_or_default());
            span.keep_content(choice, rules.most);
        }
    }

    /// How a refusal ends the span.
    pub fn refusal_verdict(&self, error: &RpcError) -> Verdict {
        let method = self
            .call
            .as_ref()
            .map_or(&Method::Ping, |(method, _)| method);
        self.verdict(method, &Response::from_error(error))
    }

    /// How `answer` ends the span. This also makes the names in a list labels of metrics.
    pub fn verdict(&self, method: &Method, answer: &Response) -> Verdict {
        if let Some(registry) = self.timer.as_ref().map(Timer::registry) {
            names::learn(registry, None, method, answer);
        }
        self.keep_unreached();
        if let Some(span) = self.parent.record() {
            span.keep_answer(method, answer);
            let asked = method.may_need_input().then(|| input(answer));
            if let Some(state) = asked.flatten().and_then(|input| input.state) {
                let state = state.as_str().and_then(|state| StateId::derive(&state));
                span.update(|fields| fields.optional().issued = state);
            }
        }
        let unseen = self.parent.active_span().is_none() && self.timer.is_none();
        if unseen {
            Verdict::default()
        } else {
            Verdict::judge(method, answer)
        }
    }

    /// Ends the span. The last frame has been sent, or never will be.
    pub fn finish(mut self, outcome: &Outcome<'_>) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: &Outcome<'_>) {
        self.keep_unreached();
        if let Some((method, params)) = self.call.take()
            && let Some(span) = self.parent.record()
        {
            span.keep_params(&method, &params);
        }
        end(self.timer.take(), self.parent.take_span(), outcome);
    }
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        self.end(&Outcome::Abandoned);
    }
}

/// The span of a sent message (kind CLIENT). It lasts until the response has arrived. Each attempt
/// has its own span.
#[derive(Debug)]
pub struct ClientSpan {
    span: Option<ActiveSpan>,
    within: Parent,
    backend: Option<BackendTelemetry>,
    timer: Option<Timer>,
}

impl ClientSpan {
    /// A span that records nothing and reads no clock.
    pub(crate) fn off(within: Parent, backend: Option<BackendTelemetry>) -> Self {
        Self {
            span: None,
            within,
            backend,
            timer: None,
        }
    }

    pub(crate) fn start(
        backend: Option<&BackendTelemetry>,
        message: &Departure<'_>,
        began: Moment,
    ) -> SpanStart {
        SpanStart {
            kind: Kind::Client,
            method: Some(stored::method(message.method)),
            subject: stored::subject(message.target),
            id: message.id.and_then(stored::id),
            backend: backend.cloned(),
            attempt: backend.map(|_| message.attempt),
            began,
            links: Vec::new(),
        }
    }

    pub(crate) fn new(
        span: Option<ActiveSpan>,
        within: Parent,
        backend: Option<&BackendTelemetry>,
        message: &Departure<'_>,
        began: Moment,
    ) -> Self {
        // Messages to clients are not counted: `mcp.client.operation.duration` counts by server.
        let timer = backend.and_then(|backend| {
            let registry = Arc::clone(backend.shared().registry.as_ref()?);
            Some(Timer::start(
                registry,
                Side::Client,
                Some(backend.labels()),
                message.method,
                message.target,
                began,
            ))
        });
        Self {
            span,
            within,
            backend: backend.cloned(),
            timer,
        }
    }

    /// The trace context that goes out with the message.
    pub fn propagation(&self) -> Propagation {
        let span = self.span.as_ref();
        span.map_or_else(|| self.within.propagation(), ActiveSpan::propagation)
    }

    /// The parent of work for this message: a request of the server, or a connection.
    pub fn parent(&self) -> Parent {
        self.span.as_ref().map_or_else(
            || self.within.clone(),
            |span| Parent::from_span(span.clone()),
        )
    }

    /// Sets the negotiated revision, once.
    pub fn set_revision(&mut self, revision: Revision) {
        set_revision(
            self.span.as_ref().map(ActiveSpan::record),
            self.timer.as_mut(),
            revision,
        );
    }

    /// Sets the id of the session with the receiver, once. Only a digest is shown.
    pub fn set_session(&self, id: &str) {
        set_session(self.span.as_ref().map(ActiveSpan::record), id);
    }

    /// Records the evidence of which client a request without a session comes from.
    pub fn set_told_by(&self, told_by: &str) {
        if let Some(span) = &self.span {
            span.record()
                .update(|fields| fields.optional().told_by = Some(told_by.to_owned()));
        }
    }

    /// Keeps the content in the `params` of a call.
    pub fn keep_params(&self, method: &Method, params: &Json) {
        if let Some(span) = &self.span {
            span.record().keep_params(method, params);
        }
    }

    /// Ends the span with the response.
    pub fn end_with_answer(self, method: &Method, answer: &Response) {
        if let Some(registry) = self.timer.as_ref().map(Timer::registry) {
            names::learn(
                registry,
                self.backend.as_ref().map(BackendTelemetry::metrics),
                method,
                answer,
            );
        }
        if self.span.is_none() && self.timer.is_none() {
            return self.finish(&Outcome::Finished);
        }
        if let Some(span) = self.span.as_ref().filter(|_| self.backend.is_some()) {
            span.record().keep_answer(method, answer);
            keep(span.record(), answer);
        }
        let verdict = Verdict::judge(method, answer);
        self.finish(&verdict.outcome());
    }

    /// Ends the span. The response has arrived, or never will.
    pub fn finish(mut self, outcome: &Outcome<'_>) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: &Outcome<'_>) {
        end(self.timer.take(), self.span.take(), outcome);
    }
}

impl Drop for ClientSpan {
    fn drop(&mut self) {
        let cancelled = self.within.is_cancelled();
        self.end(&if cancelled {
            Outcome::failed(ErrorType::Cancelled)
        } else {
            Outcome::Abandoned
        });
    }
}

/// A span without a message (kind INTERNAL): of connecting a server, or of a copied request, from
/// the sending to a mirror until the answers have been compared.
#[derive(Debug)]
pub struct InternalSpan {
    span: Option<ActiveSpan>,
}

impl InternalSpan {
    pub(crate) fn new(span: Option<ActiveSpan>) -> Self {
        Self { span }
    }

    /// The parent of the messages of the handshake, or of the copy.
    pub fn parent(&self) -> Parent {
        self.span
            .clone()
            .map_or_else(Parent::default, Parent::from_span)
    }

    /// Ends the span: the server is connected, or is not.
    pub fn finish(mut self, outcome: &Outcome<'_>) {
        self.end(outcome);
    }

    /// Ends the span with the result of the copy.
    pub fn finish_copy(self, outcome: &str) {
        if let Some(span) = &self.span {
            span.record()
                .update(|fields| fields.optional().mirror = Some(outcome.to_owned()));
        }
        self.finish(&Outcome::Finished);
    }

    fn end(&mut self, outcome: &Outcome<'_>) {
        end(None, self.span.take(), outcome);
    }
}

impl Drop for InternalSpan {
    fn drop(&mut self) {
        self.end(&Outcome::Abandoned);
    }
}

/// Ends a span. The caller takes timer and span from their owner, so only the first end counts.
fn end(timer: Option<Timer>, span: Option<ActiveSpan>, outcome: &Outcome<'_>) {
    // The timer and the span use the same duration.
    let began = span
        .as_ref()
        .map(|span| span.record().start.began)
        .or(timer.as_ref().map(Timer::began));
    let Some(lasted) = began.map(|began| began.elapsed()) else {
        return;
    };
    if let Some(timer) = timer {
        timer.stop(outcome.error(), lasted);
    }
    if let Some(span) = span {
        span.end(outcome, lasted);
    }
}

fn set_revision(span: Option<&Record>, timer: Option<&mut Timer>, revision: Revision) {
    if let Some(timer) = timer {
        timer.set_revision(revision);
    }
    if let Some(span) = span {
        span.update(|fields| fields.revision = Some(revision));
    }
}

fn set_session(span: Option<&Record>, id: &str) {
    if let Some(span) = span {
        let session = SessionId(id.into());
        span.update(|fields| fields.session = Some(session));
    }
}

/// The input that a result asks for. Longer results do not ask for any.
pub(crate) fn input(answer: &Response) -> Option<InputRequired> {
    (answer.size() <= MOST).then(|| InputRequired::from_response(answer))?
}

impl Record {
    /// Keeps a message of the span's call.
    pub(crate) fn keep(&self, at: SystemTime, kind: ContentKind, message: &Json) {
        if let Some(content) = self.content.get() {
            content.keep(self.context.span_id(), at, kind, message);
        }
    }

    /// Keeps the content in `params` of a call, or of a server's request.
    pub(crate) fn keep_params(&self, method: &Method, params: &Json) {
        let at = self.start.began.wall();
        if method.is_input_request() {
            return self.keep(at, ContentKind::Question, params);
        }
        let parts = [
            ("arguments", ContentKind::Arguments),
            (INPUT_RESPONSES, ContentKind::Answer),
        ];
        for (key, kind) in parts.into_iter().filter(|_| has_content(method)) {
            if let Some(part) = params.get(key) {
                self.keep(at, kind, &part);
            }
        }
    }

    /// Keeps the answer to a call, or to a server's request.
    fn keep_answer(&self, method: &Method, answer: &Response) {
        let is_answer = method.is_input_request();
        if self.content.get().is_none() || !(is_answer || has_content(method)) {
            return;
        }
        let questions = input(answer).and_then(|input| input.requests);
        let (kind, message) = match questions {
            _ if is_answer => (ContentKind::Answer, answer.body()),
            Some(questions) => (ContentKind::Question, questions),
            None if answer.is_error() => (ContentKind::Error, answer.body()),
            None => (ContentKind::Result, answer.body()),
        };
        self.keep(self.start.began.later().wall(), kind, &message);
    }
}

/// Keeps the spans in `answer` with the content of the call.
pub(crate) fn keep(record: &Record, answer: &Response) {
    if record.content.get().is_some()
        && let Some(spans) = read(answer)
    {
        let at = record.start.began.later().wall();
        record.keep(at, ContentKind::ServerSpans, &spans);
    }
}

/// The spans in `answer`, unless they are too long to be kept whole.
fn read(answer: &Response) -> Option<Json> {
    let result = answer.result()?;
    let traces = result.get("_meta")?.get("otel")?.get("traces")?;
    let spans = traces.get("resourceSpans")?;
    (spans.kind() == fanlight_protocol::json::Kind::Array && spans.bytes().len() <= MOST)
        .then_some(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_server_are_an_array_of_limited_size() {
        let spans = |result: String| {
            read(&Response::from_result(
                &Json::parse(result.into(), 32).unwrap(),
            ))
        };
        let with = |spans: &str| {
            format!(
                r#"{{"content":[],"_meta":{{"otel":{{"traces":{{"resourceSpans":{spans}}}}}}}}}"#
            )
        };
        let one = r#"[{"scopeSpans":[{"spans":[{"name":"db"}]}]}]"#;
        assert_eq!(spans(with(one)).unwrap().as_text(), one);
        assert_eq!(spans(with("{}")), None);
        assert_eq!(spans(with(&format!(r#"["{}"]"#, "x".repeat(MOST)))), None);
        assert_eq!(
            spans(r#"{"content":[],"_meta":{"otel":7}}"#.to_owned()),
            None
        );
        assert_eq!(spans(r#"{"content":[]}"#.to_owned()), None);
    }
}
