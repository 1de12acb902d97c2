//! One request on its way through the core: its pending answer, and the server's messages before
//! it.
//!
//! There is no task per request. The owner of a [`CoreCall`], for example an HTTP response body,
//! polls it. Dropping it cancels the request, except a legacy request that may outlive its
//! connection. A request ends soon after its client's credentials expire or are revoked.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use fanlight_canonical::identity::{Identity, Source};
use fanlight_canonical::{
    CallContext, MessageReceiver, ServerMessage, ServerMessages, cancelled_by_operator,
};
use fanlight_gateway::{Gateway, Operation};
use fanlight_protocol::{Response, RpcError, code};
use fanlight_telemetry::Parent;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{ResponseItem, input_rounds};
use crate::gates::Gates;
use crate::session::{Cancellation, SessionGuard};

type Item = ResponseItem<ServerMessage, Response>;

type PendingAnswer = BoxFuture<'static, Response>;

/// The events that end a request before its answer.
pub(crate) struct RequestEnds {
    /// Cancels the request; `None` if the request can only be dropped.
    pub(crate) cancellation: Option<Cancellation>,
    /// Ends the request with its credentials; `None` if its client is not authenticated.
    pub(crate) validity: Option<Box<RequestValidity>>,
}

/// A running request.
pub(crate) struct CoreCall {
    /// `None` after it has resolved or been cancelled.
    answer: Option<PendingAnswer>,
    /// The response, while messages before it are still to be delivered. Rarely set.
    response: Option<Box<Response>>,
    messages: Option<MessageReceiver>,
    /// Replaces the cancellation; with `None`, only dropping cancels the request.
    pub(crate) cancellation: Option<Cancellation>,
    /// Ends the request with its credentials; `None` if its client is not authenticated.
    validity: Option<Box<RequestValidity>>,
    /// Keeps the session from expiring.
    pub(crate) session: Option<SessionGuard>,
    /// Lets the request continue in `detached` if this is dropped before the answer.
    pub(crate) detached: Option<Arc<DetachedCalls>>,
    /// The context of the request that started the work. Its span is the parent of the work's
    /// spans.
    context: Arc<CallContext>,
    /// The span of the request that gets the answer, if that is another request.
    answered_span: Option<Parent>,
}

impl CoreCall {
    /// Creates the request, with `messages` server messages that may wait for the client; `None` if
    /// the client can take none. It passes `gates` before it reaches the core, and they see its
    /// response. It does not run before the first poll.
    pub(crate) fn start(
        core: &Arc<Gateway>,
        operation: Operation,
        gates: Gates,
        messages: Option<usize>,
    ) -> Self {
        Self::start_after(None, core, operation, gates, messages, None)
    }

    /// Like [`start`](Self::start), but the request waits for `first` before it reaches the core.
    /// With `input_rounds`, the gateway collects input for the server within these limits;
    /// otherwise the client gets the server's request for input itself.
    pub(crate) fn start_after(
        first: Option<BoxFuture<'static, ()>>,
        core: &Arc<Gateway>,
        mut operation: Operation,
        gates: Gates,
        messages: Option<usize>,
        input_rounds: Option<input_rounds::RoundLimits>,
    ) -> Self {
        let (sender, messages) = match messages {
            Some(capacity) => {
                let (sender, receiver) = ServerMessages::channel(capacity);
                (sender, Some(receiver))
            }
            None => (ServerMessages::discard(), None),
        };
        let context = Arc::clone(operation.context());
        let (core, trace) = (Arc::clone(core), &context.trace);
        let around = (!gates.are_none()).then(|| (gates, sender.clone()));
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
            Some((gates, messages)) => {
                Box::pin(gates.run_gated(Arc::clone(&context), messages, run))
            }
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

    /// The context of the request that started the work.
    pub(crate) fn context(&self) -> &CallContext {
        &self.context
    }

    /// Replaces the events that end the request.
    pub(crate) fn set_ends(&mut self, ends: RequestEnds) {
        (self.cancellation, self.validity) = (ends.cancellation, ends.validity);
    }

    /// Lets the request outlast the expiry of its identity; returns the token that a revocation
    /// cancels.
    pub(crate) fn take_revocation(&mut self) -> Option<CancellationToken> {
        self.validity
            .take()
            .map(|validity| validity.revoked().clone())
    }

    /// Records later notifications on the span of the request that gets the answer.
    pub(crate) fn set_answered_span(&mut self, span: Parent) {
        span.continues(&self.context.trace);
        self.answered_span = Some(span);
    }

    /// The next item; `None` after the response or a cancellation.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Option<Item> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next item; `None` after the response or a cancellation.
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
        // The poll that resolved the answer may have sent messages before it. `try_recv`, unlike
        // `poll_recv`, never yields early.
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

    /// Ends a waiting request if its credentials end or an operator cancels it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Some(Poll::Ready(ended)) = self.validity.as_mut().map(|validity| validity.poll(cx)) {
            return Poll::Ready(Some(self.end(ended)));
        }
        self.span()
            .poll_cancelled_by_operator(cx)
            .map(|()| Some(self.answer_with(&cancelled_by_operator())))
    }

    /// Ends the request because its client's credentials are no longer valid.
    fn end(&mut self, ended: Ended) -> Item {
        tracing::debug!(
            ?ended,
            "running request ended: its credentials are not valid any more"
        );
        self.answer_with(&request_ended(ended))
    }

    /// Cancels the request and returns an error response.
    pub(crate) fn refuse(&mut self, error: &RpcError) -> Response {
        self.context.trace.cancel();
        if let Some(noted) = &self.context.noted {
            let _ = noted.code.set(error.code);
        }
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
            self.span().record_notification(notification);
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

/// The events that end a detached call before its answer.
pub(super) struct Ends {
    pub(super) cancellation: Option<Cancellation>,
    /// A revocation of the call's identity cancels this token.
    pub(super) revoked: Option<CancellationToken>,
}

/// Calls that run on without their client until they are done or cancelled. Their number is
/// bounded; the core bounds their time.
#[derive(Debug)]
pub(crate) struct DetachedCalls {
    runtime: Handle,
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
    cut: CancellationToken,
}

impl DetachedCalls {
    /// Allows at most `limit` calls; cancelling `cut` ends all of them.
    pub(crate) fn new(limit: usize, cut: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            permits: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            cut,
        })
    }

    /// Waits until no call is running. Calls may be added meanwhile.
    pub(crate) async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs `work`, which bounds its own time, until it is done or `cut` is cancelled.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        let run = async move {
            tokio::select! { () = work => {} () = cut.cancelled() => {} }
        };
        self.tasks.spawn_on(run, &self.runtime);
    }

    /// A permit for one more call; `None` at the limit.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if self.cut.is_cancelled() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        if permit.is_none() {
            tracing::warn!(
                "stream of a disconnected client dropped: too many calls without a client"
            );
        }
        permit
    }

    /// Runs a call without its client until `answer` resolves or one of `ends` happens.
    pub(super) fn finish<T>(
        &self,
        answer: impl Future<Output = T> + Send + 'static,
        ends: Ends,
        session: Option<SessionGuard>,
        trace: Parent,
    ) {
        if self.cut.is_cancelled() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            tracing::warn!(
                "call of a disconnected client cancelled: too many calls without a client"
            );
            return;
        };
        self.run(async move {
            let _until_done = (permit, session);
            let cancelled = async move {
                let cancelled = async {
                    match ends.cancellation {
                        Some(cancellation) => cancellation.await,
                        None => pending().await,
                    }
                };
                match ends.revoked {
                    Some(revoked) => {
                        tokio::select! { () = cancelled => {} () = revoked.cancelled() => {} }
                    }
                    None => cancelled.await,
                }
                // Cancel the trace before the work is dropped, so that the work's spans get the
                // reason.
                trace.cancel();
            };
            tokio::select! { _ = answer => {} () = cancelled => {} }
        });
    }
}

/// How long a running request may outlast its credentials. A constant: the docs promise at most a
/// minute, and timers are late.
pub(crate) const REQUEST_GRACE: Duration = Duration::from_secs(45);

/// The way credentials ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Expired,
    Revoked,
}

/// Resolves when an identity must no longer be used.
pub(crate) type ValidityEnd = BoxFuture<'static, Ended>;

/// The end of `identity`; an expiry counts `grace` later. `None` for an unauthenticated client,
/// whose requests need no such check and no memory for it.
pub(crate) fn end_of(identity: &Identity, grace: Duration) -> Option<ValidityEnd> {
    if identity.source == Source::Anonymous {
        return None;
    }
    let revoked = identity.validity.revoked.clone().cancelled_owned();
    let left = identity.validity.expires.map(|expires| {
        expires
            .duration_since(SystemTime::now())
            .unwrap_or_default()
    });
    Some(match left {
        None => Box::pin(async move {
            revoked.await;
            Ended::Revoked
        }),
        Some(left) => Box::pin(async move {
            tokio::select! {
                biased;
                () = revoked => Ended::Revoked,
                () = sleep(left.saturating_add(grace)) => Ended::Expired,
            }
        }),
    })
}

/// The identity of a running request, which ends soon after the identity does.
pub(crate) struct RequestValidity {
    identity: Arc<Identity>,
    /// Set once the request has to wait; most wait only briefly.
    end: Option<ValidityEnd>,
}

impl RequestValidity {
    /// `None` for an unauthenticated client.
    pub(crate) fn from_identity(identity: &Arc<Identity>) -> Option<Box<Self>> {
        let is_authenticated = identity.source != Source::Anonymous;
        is_authenticated.then(|| {
            Box::new(Self {
                identity: Arc::clone(identity),
                end: None,
            })
        })
    }

    /// Ready if the request must end; does not register the task.
    pub(crate) fn poll_before(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        let end = self.end.as_mut();
        end.map_or(Poll::Pending, |end| end.as_mut().poll(cx))
    }

    /// Ready once the request must end; wakes the task then.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        if self.end.is_none() {
            self.end = end_of(&self.identity, REQUEST_GRACE);
        }
        self.poll_before(cx)
    }

    /// Cancelled when the identity is revoked.
    pub(crate) fn revoked(&self) -> &CancellationToken {
        &self.identity.validity.revoked
    }
}

/// The error for a request whose credentials ended while it was running.
pub(crate) fn request_ended(ended: Ended) -> RpcError {
    let how = match ended {
        Ended::Expired => "have expired",
        Ended::Revoked => "have been revoked",
    };
    let message = format!(
        "the credentials of the request {how} while it was running; it may have been carried out"
    );
    RpcError::new(code::NOT_AUTHENTICATED, message).may_have_run(true)
}

#[cfg(test)]
mod tests;
