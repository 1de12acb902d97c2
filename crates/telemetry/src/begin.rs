//! Spans that begin under a parent.

use crate::active::{ActiveSpan, Ancestor};
use crate::names::Kind;
use crate::record::SpanStart;
use crate::{
    Arrival, BackendTelemetry, ClientSpan, Departure, InternalSpan, Parent, ServerSpan, Subject,
    TraceContext, content,
};

impl Parent {
    /// Begins the span of a message to a server. Each attempt has its own span.
    pub fn client(&self, backend: &BackendTelemetry, message: &Departure<'_>) -> ClientSpan {
        if !self.is_recording() && backend.shared().registry.is_none() {
            return ClientSpan::off(self.clone(), Some(backend.clone()));
        }
        let began = self.now();
        if content::has_content(message.method)
            && let (Some(above), Some(recorder)) = (self.record(), self.recorder())
        {
            let (rules, endpoint) = (&recorder.content, above.endpoint());
            let endpoint = endpoint.as_deref().unwrap_or_default();
            above.keep_content(rules.choose(&backend.shared().name, endpoint), rules.most);
        }
        let span = self.begin(|| ClientSpan::start(Some(backend), message, began));
        ClientSpan::new(span, self.clone(), Some(backend), message, began)
    }

    /// Begins the span of a message to the client: a request of a server.
    pub fn to_client(&self, message: &Departure<'_>) -> ClientSpan {
        if !self.is_recording() {
            return ClientSpan::off(self.clone(), None);
        }
        let began = self.now();
        let span = self.begin(|| ClientSpan::start(None, message, began));
        ClientSpan::new(span, self.clone(), None, message, began)
    }

    /// Begins the span of a message from a server: a request to the client, or a notification
    /// outside of calls. Its parent is the context in the message, if that belongs to the same
    /// trace. Otherwise its parent is this span.
    pub fn server(&self, backend: &BackendTelemetry, message: &Arrival<'_>) -> ServerSpan {
        let registry = backend.shared().registry.clone();
        let span = self.recorder().map(|recorder| {
            ServerSpan::begin(recorder, message, Some(backend), self.active_span())
        });
        ServerSpan::new(
            span.map_or_else(Self::default, Self::from_span),
            registry,
            Some(backend),
            message,
        )
    }

    /// Begins the span of a copy of this request for a mirror. The client does not wait for the
    /// copy, so the span begins a trace of its own, with a link to this span.
    pub fn mirroring(&self) -> InternalSpan {
        let span = self.recorder().map(|recorder| {
            let links = self.record().map(|span| span.context.clone());
            let start = self.without_message(None, links.into_iter().collect());
            ActiveSpan::begin(recorder, start, &Ancestor::None, None, None)
        });
        InternalSpan::new(span)
    }

    /// Begins the span of connecting a server for this call.
    pub fn begin_connecting(&self, backend: &BackendTelemetry) -> InternalSpan {
        let start = || self.without_message(Some(backend.clone()), Vec::new());
        InternalSpan::new(self.begin(start))
    }

    fn without_message(
        &self,
        backend: Option<BackendTelemetry>,
        links: Vec<TraceContext>,
    ) -> SpanStart {
        SpanStart {
            kind: Kind::Internal,
            method: None,
            subject: Subject::None,
            id: None,
            backend,
            attempt: None,
            began: self.now(),
            links,
        }
    }
}
