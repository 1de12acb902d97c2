//! One request on its way through the core: the answer that is being made, and what the server
//! sends before it.
//!
//! There is no task per request: the owner of a [`CoreCall`] polls it, an HTTP response body included.
//! Dropping it cancels the request, unless it is a legacy one that is to outlive its connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::{
    CallContext, Core, MessageReceiver, ResolvedOperation as _, ServerMessage, ServerMessages,
    cancelled_by_operator,
};
use fanlight_protocol::{Response, RpcError};
use fanlight_telemetry::Parent;
use tokio_util::sync::CancellationToken;

use super::detached::Ends;
use super::{DetachedCalls, ResponseItem, input_rounds};
use crate::approval::{ApprovedCall, CallBeforeApproval};
use crate::hooked_call::HookedCall;
use crate::protection::Turn;
use crate::recording::{RequestRecording, not_recorded};
use crate::session::{Cancellation, SessionGuard};
use crate::validity::{Ended, RequestValidity, request_ended};

type Item = ResponseItem<ServerMessage, Response>;

type PendingAnswer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A request to the core.
#[derive(Debug)]
pub(crate) struct CoreRequest<R> {
    /// The operation that runs. It has been admitted.
    pub(crate) operation: R,
    /// The number of messages that the server may send ahead of its answer without waiting for the
    /// client; `None` if the client can take none.
    pub(crate) messages: Option<usize>,
    /// What it waits for before it runs.
    pub(crate) before: BeforeRun,
    /// Guardrails that are asked about it and its result; `None` for none.
    pub(crate) hooked: Option<Box<HookedCall>>,
    /// Puts on record what comes of it; `None` if that is not wanted.
    pub(crate) recording: Option<Box<RequestRecording>>,
    /// Bounds the rounds of input where a server's answer asks for input and this side is to get it;
    /// `None` if the client gets that answer.
    pub(crate) input_rounds: Option<input_rounds::RoundLimits>,
}

/// What a request waits for before it reaches the core.
#[derive(Debug, Default)]
pub(crate) struct BeforeRun {
    /// Its turn.
    pub(crate) turn: Option<Turn>,
    /// The word of somebody who has to agree to it.
    pub(crate) approval: Option<Box<CallBeforeApproval>>,
}

impl BeforeRun {
    fn is_nothing(&self) -> bool {
        self.turn.is_none() && self.approval.is_none()
    }
}

impl BeforeRun {
    /// Waits for all of it.
    async fn passed(self, messages: ServerMessages) -> Result<Option<ApprovedCall>, RpcError> {
        if let Some(turn) = self.turn {
            turn.come().await;
        }
        match self.approval {
            Some(call) => call.agreed(messages).await.map(Some),
            None => Ok(None),
        }
    }
}

/// What ends a request before its answer.
pub(crate) struct RequestEnds {
    /// `None` if only dropping the request cancels it.
    pub(crate) cancellation: Option<Cancellation>,
    /// `None` if its client is not authenticated.
    pub(crate) validity: Option<Box<RequestValidity>>,
}

/// A request on its way through the core.
pub(crate) struct CoreCall {
    /// `None` once it has resolved or been cancelled.
    answer: Option<PendingAnswer>,
    /// Delivered after the messages before it; nearly always there are none.
    response: Option<Box<Response>>,
    messages: Option<MessageReceiver>,
    cancellation: Option<Cancellation>,
    /// `None` if its client is not authenticated.
    validity: Option<Box<RequestValidity>>,
    /// Keeps the session from expiring.
    session: Option<SessionGuard>,
    detached: Option<Arc<DetachedCalls>>,
    /// The trace of the request that it was started for, whose span is the parent of the work.
    context: Arc<CallContext>,
    /// The span of the request that gets the answer, if that is another.
    answered_span: Option<Parent>,
}

impl CoreCall {
    /// Starts a request. Nothing happens until it is polled.
    pub(crate) fn start<C: Core>(core: &Arc<C>, request: CoreRequest<C::Resolved>) -> Self {
        Self::start_after(None, core, request)
    }

    /// Starts a request that reaches the core once `first` has resolved.
    pub(crate) fn start_after<C: Core>(
        first: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        core: &Arc<C>,
        request: CoreRequest<C::Resolved>,
    ) -> Self {
        let (sender, messages) = match request.messages {
            Some(capacity) => {
                let (sender, receiver) = ServerMessages::channel(capacity);
                (sender, Some(receiver))
            }
            None => (ServerMessages::discard(), None),
        };
        let CoreRequest {
            mut operation,
            input_rounds,
            before,
            hooked,
            recording,
            ..
        } = request;
        let context = Arc::clone(operation.context());
        let (core, trace) = (Arc::clone(core), &context.trace);
        // What waits is decided about again when it has: the policy may have changed.
        let waits = !before.is_nothing() || hooked.is_some();
        let is_plain = !waits && recording.is_none();
        let decided = waits.then(|| (operation.decided(), Arc::clone(&core), Arc::clone(&context)));
        let around = (!is_plain).then(|| (before, hooked, recording, sender.clone(), decided));
        let run: PendingAnswer = match (first, input_rounds) {
            (None, Some(limits)) => Box::pin(trace.scope(input_rounds::resolve_input_rounds(
                core, operation, sender, limits,
            ))),
            (None, None) => {
                Box::pin(trace.scope(async move { core.run(&mut operation, sender).await }))
            }
            (Some(first), _) => Box::pin(trace.scope(async move {
                first.await;
                core.run(&mut operation, sender).await
            })),
        };
        let answer = match around {
            None => run,
            Some((before, mut hooked, recording, messages, decided)) => Box::pin(async move {
                // First of all: what is denied need not wait, and nobody need agree to it.
                if let Some(hooked) = &mut hooked
                    && let Err(error) = hooked.before(messages.clone()).await
                {
                    return Response::from_error(&error);
                }
                let approved = match before.passed(messages).await {
                    Ok(approved) => approved,
                    Err(error) => return Response::from_error(&error),
                };
                if let Some((decided, core, context)) = decided
                    && let Err(error) = core.may_go_on(&decided, &context)
                {
                    return Response::from_error(&error);
                }
                let run = async move {
                    let response = run.await;
                    if let Some(call) = &approved {
                        // Before its client can bring the input, to whichever process.
                        call.answered(&response).await;
                    }
                    match &hooked {
                        Some(hooked) => hooked.after(response).await,
                        None => response,
                    }
                };
                let Some(mut recording) = recording else {
                    return run.await;
                };
                // After everything else that it waits for: once it is on record, it runs.
                match recording.announce() {
                    Ok(None) => {}
                    Ok(Some(acknowledged)) => {
                        if let Err(error) = acknowledged.await {
                            return Response::from_error(&not_recorded(&error));
                        }
                    }
                    Err(error) => return Response::from_error(&error),
                }
                recording.begin();
                let response = run.await;
                recording.end(&response);
                response
            }),
        };
        Self {
            answer: Some(answer),
            response: None,
            messages,
            cancellation: None,
            validity: None,
            session: None,
            detached: None,
            context,
            answered_span: None,
        }
    }

    /// The context of the request that it was started for.
    pub(crate) fn context(&self) -> &CallContext {
        &self.context
    }

    /// From now on, `cancellation` cancels the request; `None` if only dropping it does.
    pub(crate) fn set_cancellation(&mut self, cancellation: Option<Cancellation>) {
        self.cancellation = cancellation;
    }

    /// From now on, the request ends with these.
    pub(crate) fn set_ends(&mut self, ends: RequestEnds) {
        (self.cancellation, self.validity) = (ends.cancellation, ends.validity);
    }

    /// Has the request outlast its identity; returns the token that is cancelled when that is revoked.
    pub(crate) fn take_revocation(&mut self) -> Option<CancellationToken> {
        self.validity
            .take()
            .map(|validity| validity.revoked().clone())
    }

    /// From now on, notifications are recorded on the span of the request that gets the answer.
    pub(crate) fn set_answered_span(&mut self, span: Parent) {
        self.answered_span = Some(span);
    }

    /// Keeps the session from expiring until the request is done.
    pub(crate) fn keep_session(&mut self, session: SessionGuard) {
        self.session = Some(session);
    }

    /// If this is dropped before it is answered, the request runs on in `detached`.
    pub(crate) fn outlive_in(&mut self, detached: &Arc<DetachedCalls>) {
        self.detached = Some(Arc::clone(detached));
    }

    /// The next item; `None` after the response, or if the request has been cancelled.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Option<Item> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next item; `None` after the response, or if the request has been cancelled.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let cancelled =
            |cancellation: &mut Cancellation| Pin::new(cancellation).poll(cx).is_ready();
        if self.answer.is_some() && self.cancellation.as_mut().is_some_and(cancelled) {
            self.span().cancel();
            self.context.trace.cancel();
            self.answer = None;
            return Poll::Ready(None);
        }
        if self.answer.is_some()
            && let Some(Poll::Ready(ended)) = self
                .validity
                .as_mut()
                .map(|validity| validity.poll_before(cx))
        {
            return Poll::Ready(Some(self.end(ended)));
        }
        // `try_recv` registers no waker, so the answer sends without waking this task.
        if let Some(message) = self.messages.as_mut().and_then(MessageReceiver::try_recv) {
            return Poll::Ready(Some(self.message(message)));
        }
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(
                self.response
                    .take()
                    .map(|response| ResponseItem::Response(*response)),
            );
        };
        let Poll::Ready(response) = answer.as_mut().poll(cx) else {
            return match self
                .messages
                .as_mut()
                .map(|messages| messages.poll_recv(cx))
            {
                Some(Poll::Ready(Some(message))) => Poll::Ready(Some(self.message(message))),
                _ => self.poll_end(cx),
            };
        };
        self.answer = None;
        // Messages are sent before the answer resolves, but it may have resolved in the poll that sent
        // them. `try_recv`, unlike `poll_recv`, never yields early.
        Poll::Ready(Some(
            match self.messages.as_mut().and_then(MessageReceiver::try_recv) {
                Some(message) => {
                    self.response = Some(Box::new(response));
                    self.message(message)
                }
                None => ResponseItem::Response(response),
            },
        ))
    }

    /// The answer to a request that ends while it waits: with its credentials, or because an operator cancels it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Some(Poll::Ready(ended)) = self.validity.as_mut().map(|validity| validity.poll(cx)) {
            return Poll::Ready(Some(self.end(ended)));
        }
        self.span()
            .poll_cancelled_by_operator(cx)
            .map(|()| Some(self.answer_with(&cancelled_by_operator())))
    }

    /// Ends the request, whose client may not use its credentials any more.
    fn end(&mut self, ended: Ended) -> Item {
        tracing::debug!(
            ?ended,
            "running request ended: its credentials are not valid any more"
        );
        self.answer_with(&request_ended(ended))
    }

    /// Cancels the request, and answers it with an error.
    pub(crate) fn refuse(&mut self, error: &RpcError) -> Response {
        self.context.trace.cancel();
        (self.answer, self.messages) = (None, None);
        Response::from_error(error)
    }

    fn answer_with(&mut self, error: &RpcError) -> Item {
        ResponseItem::Response(self.refuse(error))
    }

    fn span(&self) -> &Parent {
        self.answered_span.as_ref().unwrap_or(&self.context.trace)
    }

    fn message(&self, message: ServerMessage) -> Item {
        if let ServerMessage::Notification(notification) = &message {
            self.span().notified(notification);
        }
        match message {
            ServerMessage::Stream(signal) => ResponseItem::Stream(signal),
            message => ResponseItem::Message(message),
        }
    }
}

impl Drop for CoreCall {
    fn drop(&mut self) {
        if let (Some(answer), Some(detached)) = (self.answer.take(), self.detached.take()) {
            let ends = Ends {
                cancellation: self.cancellation.take(),
                revoked: self.take_revocation(),
            };
            detached.finish(
                answer,
                ends,
                self.session.take(),
                self.context.trace.clone(),
            );
        }
    }
}

impl std::fmt::Debug for CoreCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoreCall")
            .field("answered", &self.answer.is_none())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
