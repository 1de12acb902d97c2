//! The span of one message to a server, from before it is written until its answer is there.
//!
//! Must not know: how messages travel, or what a retry is.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use fanlight_protocol::{Json, Method, Request, Response};
use fanlight_telemetry::{
    Arrival, Carriers, ClientSpan, Departure, ErrorType, Moment, Outcome, Parent, Propagation, ServerSpan, Subject,
};

use crate::deadline::PausableDeadline;
use crate::exchange::{LinkContext, Reply};
use fanlight_canonical::BackendError;
use fanlight_canonical::ServerMessages;

/// A message on its way.
pub(crate) struct Sending {
    /// `None` once it has ended, or is not this one's any more.
    span: Option<ClientSpan>,
    /// What stands under a span that is not this one's any more.
    parent: Parent,
    /// The deadline of its call.
    deadline: Option<Arc<PausableDeadline>>,
}

/// The message that is sent.
#[derive(Clone, Copy)]
pub(crate) struct Departing<'a> {
    pub(crate) method: &'a Method,
    pub(crate) params: Option<&'a Json>,
    /// The member of these that it is about, where that has been found.
    pub(crate) name: Option<&'a Json>,
    pub(crate) id: i64,
    pub(crate) attempt: u32,
}

impl Sending {
    /// Begins the span, and gives the trace context that goes along.
    pub(crate) fn begin(context: &LinkContext, within: &Parent, message: Departing<'_>) -> (Self, Propagation) {
        let Departing { method, id, attempt, .. } = message;
        let subject = match message.name {
            Some(name) => Subject::found(method, |_| Some(name.value())),
            None => Subject::of(method, message.params),
        };
        let departure = Departure { method, target: subject.target(), id: Some(id.into()), attempt };
        let span = within.client(&context.telemetry, &departure);
        if let Some(params) = message.params.filter(|_| *method == Method::CallTool) {
            span.record_arguments_in(params);
        }
        let propagation = span.propagation();
        (Self { span: Some(span), parent: Parent::default(), deadline: None }, propagation)
    }

    /// Records a timeout if this is dropped after `deadline` has expired.
    pub(crate) fn timed_by(&mut self, deadline: &Arc<PausableDeadline>) {
        self.deadline = Some(Arc::clone(deadline));
    }

    pub(crate) fn span(&mut self) -> Option<&mut ClientSpan> {
        self.span.as_mut()
    }

    /// What the server asks meanwhile stands under this.
    pub(crate) fn parent(&self) -> Parent {
        self.span.as_ref().map_or_else(|| self.parent.clone(), ClientSpan::parent)
    }

    /// The reply is there, or never will be.
    pub(crate) fn ended(&mut self, method: &Method, outcome: &Result<Reply, BackendError>) {
        let Some(span) = self.span.take() else { return };
        match outcome {
            Ok(Reply::Answer { response, .. }) => span.answered(method, response),
            Ok(Reply::Rejected { status, .. }) => span.finish(&Outcome::failed(ErrorType::HttpStatus(*status))),
            Err(error) => span.finish(&Outcome::failed(error.error_type())),
        }
    }

    /// The same message, whose span ends with the first of `messages`: what is under way for as long
    /// as anybody likes has ended for its span when it is acknowledged.
    pub(crate) fn until_acknowledged(mut self, messages: &ServerMessages) -> (Self, ServerMessages) {
        self.parent = self.parent();
        let span = Mutex::new(self.span.take());
        let messages = messages.mapped(move |message| {
            if let Some(span) = span.lock().unwrap_or_else(PoisonError::into_inner).take() {
                span.finish(&Outcome::Finished);
            }
            Some(message)
        });
        (self, messages)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.deadline.as_ref().is_some_and(|deadline| deadline.has_expired())
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
    let with = if over_http { propagation.within_http().into_params(params) } else { propagation.into_params(params) };
    with.map(Cow::Owned)
}

/// The span of a question of the server's.
pub(crate) fn asked(context: &LinkContext, within: &Parent, request: &Request) -> ServerSpan {
    let meta = request.params.as_ref().and_then(|params| params.get("_meta"));
    let subject = Subject::of(&request.method, request.params.as_ref());
    within.server(
        &context.telemetry,
        &Arrival {
            method: &request.method,
            target: subject.target(),
            id: Some(&request.id),
            received: Moment::now(),
            carriers: Carriers { meta: meta.as_ref(), ..Carriers::default() },
        },
    )
}

/// The question has been answered.
pub(crate) fn question_answered(span: ServerSpan, method: &Method, answer: &Response) {
    let verdict = span.verdict(method, answer);
    span.finish(&verdict.outcome());
}
