//! The spans of messages to a server and of its server requests.

use std::borrow::Cow;
use std::sync::Arc;

use fanlight_protocol::{Json, Method, Request, Response};
use fanlight_telemetry::{
    Arrival, BackendTelemetry, Carriers, ClientSpan, Departure, ErrorType, Moment, Outcome, Parent,
    Propagation, ServerSpan, Subject,
};
use parking_lot::Mutex;

use crate::request::deadline::PausableDeadline;
use fanlight_canonical::ServerMessages;

/// The span of a message that is being sent or waits for its answer.
pub(crate) struct RequestSpan {
    /// `None` once it has ended or was handed over.
    span: Option<ClientSpan>,
    /// The parent of further spans after the hand-over.
    parent: Parent,
    /// The deadline of its call.
    deadline: Option<Arc<PausableDeadline>>,
}

#[derive(Clone, Copy)]
pub(crate) struct SentMessage<'a> {
    pub(crate) method: &'a Method,
    pub(crate) params: Option<&'a Json>,
    /// The member of `params` that names its subject, if already known.
    pub(crate) name: Option<&'a Json>,
    pub(crate) id: i64,
    pub(crate) attempt: u32,
}

impl RequestSpan {
    /// Begins the span; also returns the trace context to send along.
    pub(crate) fn begin(
        telemetry: &BackendTelemetry,
        within: &Parent,
        message: SentMessage<'_>,
    ) -> (Self, Propagation) {
        let SentMessage {
            method,
            id,
            attempt,
            ..
        } = message;
        let subject = match message.name {
            Some(name) => Subject::from_members(method, |_| Some(name.value())),
            None => Subject::new(method, message.params),
        };
        let departure = Departure {
            method,
            target: subject.target(),
            id: Some(id.into()),
            attempt,
        };
        let span = within.client(telemetry, &departure);
        if let Some(params) = message.params {
            span.keep_params(method, params);
        }
        let propagation = span.propagation();
        (
            Self {
                span: Some(span),
                parent: Parent::default(),
                deadline: None,
            },
            propagation,
        )
    }

    /// Records a timeout if this is dropped after `deadline` has expired.
    pub(crate) fn timed_by(&mut self, deadline: &Arc<PausableDeadline>) {
        self.deadline = Some(Arc::clone(deadline));
    }

    pub(crate) fn span(&mut self) -> Option<&mut ClientSpan> {
        self.span.as_mut()
    }

    /// The parent of the spans of server requests during the call.
    pub(crate) fn parent(&self) -> Parent {
        self.span
            .as_ref()
            .map_or_else(|| self.parent.clone(), ClientSpan::parent)
    }

    /// Ends the span with the outcome of the request.
    pub(crate) fn end(&mut self, method: &Method, outcome: Result<&Response, ErrorType>) {
        let Some(span) = self.span.take() else { return };
        match outcome {
            Ok(response) => span.end_with_answer(method, response),
            Err(error) => span.finish(&Outcome::failed(error)),
        }
    }

    /// Ends the span without an error, whatever the answer was.
    pub(crate) fn end_without_error(&mut self) {
        if let Some(span) = self.span.take() {
            span.finish(&Outcome::Finished);
        }
    }

    /// Ends the span at the first of `messages`, which acknowledges the request. For requests that
    /// stay open as long as their client likes.
    pub(crate) fn until_acknowledged(
        mut self,
        messages: &ServerMessages,
    ) -> (Self, ServerMessages) {
        self.parent = self.parent();
        let span = Mutex::new(self.span.take());
        let messages = messages.with_map(move |message| {
            if let Some(span) = span.lock().take() {
                span.finish(&Outcome::Finished);
            }
            Some(message)
        });
        (self, messages)
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if self
            .deadline
            .as_ref()
            .is_some_and(|deadline| deadline.has_expired())
            && let Some(span) = self.span.take()
        {
            span.finish(&Outcome::failed(ErrorType::Timeout));
        }
    }
}

/// `params` with the trace context in their `_meta`.
pub(crate) fn params_with<'a>(
    propagation: &Propagation,
    params: Option<&'a Json>,
    over_http: bool,
) -> Option<Cow<'a, Json>> {
    if propagation.leaves_untouched() {
        return params.map(Cow::Borrowed);
    }
    let with = if over_http {
        propagation.within_http().into_params(params)
    } else {
        propagation.into_params(params)
    };
    with.map(Cow::Owned)
}

/// The span of a server request.
pub(crate) fn server_request_span(
    telemetry: &BackendTelemetry,
    within: &Parent,
    request: &Request,
) -> ServerSpan {
    let meta = request.param("_meta");
    let subject = Subject::new(&request.method, request.params.as_ref());
    let mut span = within.server(
        telemetry,
        &Arrival {
            method: &request.method,
            target: subject.target(),
            id: Some(&request.id),
            received: Moment::now(),
            carriers: Carriers {
                meta: meta.as_ref(),
                ..Carriers::default()
            },
        },
    );
    span.keep_content(&request.method, request.params.as_ref());
    span
}

/// Ends the span of a server request with its answer.
pub(crate) fn server_request_answered(span: ServerSpan, method: &Method, answer: &Response) {
    let verdict = span.verdict(method, answer);
    span.finish(&verdict.outcome());
}
