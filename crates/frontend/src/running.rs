//! One request on its way through the core: the answer that is being made, and what the server
//! sends before it.
//!
//! There is no task per request: whoever holds a [`Running`] drives it, an HTTP response body
//! included. Dropping it cancels the request, unless it is a legacy one that has to go on.
//!
//! Must not know: transports.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::{Call, CallContext, MessageReceiver, ServerMessage, ServerMessages};
use fanlight_protocol::{Json, Method, Response};
use fanlight_telemetry::Parent;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cancel::Stop;
use crate::session::InUse;
use crate::unroll;
use fanlight_canonical::Core;

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// What is asked of the core for a client.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) params: Option<Json>,
    pub(crate) context: CallContext,
    /// How much of what the server sends before its answer may wait; `None` if there is no way to
    /// take any of it.
    pub(crate) messages: Option<usize>,
    /// How far to go when a server's answer is a wish for input; `None` if the client gets to see
    /// that answer itself.
    pub(crate) unroll: Option<unroll::Limits>,
}

/// What comes of a request, in order.
#[derive(Debug)]
pub(crate) enum Event {
    /// What the server sends before its answer.
    Message(ServerMessage),
    /// The answer. Nothing comes after it.
    Response(Response),
    /// The client cancelled the request; there will be no answer.
    Cancelled,
}

/// A request on its way. See the module.
pub(crate) struct Running {
    /// `None` once it has resolved or been cancelled.
    answer: Option<Answer>,
    /// Kept back until what came before it is delivered; nearly always there is no such.
    response: Option<Box<Response>>,
    messages: Option<MessageReceiver>,
    stop: Option<Stop>,
    /// Keeps the session from expiring.
    session: Option<InUse>,
    detached: Option<Arc<Detached>>,
    /// That of the request it was started for, below whose span the work stands.
    context: Arc<CallContext>,
    /// The span of the request it is answered with, if that is another.
    answers: Option<Parent>,
}

impl Running {
    /// Starts a request. Nothing happens until it is polled.
    pub(crate) fn start<C: Core>(core: &Arc<C>, ask: Ask) -> Self {
        let (sender, messages) = match ask.messages {
            Some(capacity) => {
                let (sender, receiver) = ServerMessages::channel(capacity);
                (sender, Some(receiver))
            }
            None => (ServerMessages::discard(), None),
        };
        let context = Arc::new(ask.context);
        let call = Call { method: ask.method, params: ask.params, context: Arc::clone(&context), messages: sender };
        let (core, trace) = (Arc::clone(core), &context.trace);
        let answer: Answer = match ask.unroll {
            Some(limits) => Box::pin(trace.scope(unroll::handle(core, call, limits))),
            None => Box::pin(trace.scope(async move { core.handle(call).await })),
        };
        Self {
            answer: Some(answer),
            response: None,
            messages,
            stop: None,
            session: None,
            detached: None,
            context,
            answers: None,
        }
    }

    /// Of the request that it was started for.
    pub(crate) fn context(&self) -> &CallContext {
        &self.context
    }

    /// Lets `stop` cancel the request.
    pub(crate) fn stoppable(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Lets `stop` cancel the request from now on, or nothing but being dropped.
    pub(crate) fn set_stop(&mut self, stop: Option<Stop>) {
        self.stop = stop;
    }

    /// Tells what the server sends on another span from now on.
    pub(crate) fn set_trace(&mut self, trace: Parent) {
        self.answers = Some(trace);
    }

    /// Keeps `session` in use until the request is done.
    pub(crate) fn within(mut self, session: InUse) -> Self {
        self.session = Some(session);
        self
    }

    /// Lets the request go on in `detached` if this is dropped before it has been answered.
    pub(crate) fn outliving(mut self, detached: &Arc<Detached>) -> Self {
        self.detached = Some(Arc::clone(detached));
        self
    }

    /// What comes next.
    pub(crate) async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// What comes next. After an answer or a cancellation, only [`Event::Cancelled`] does.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.answer.is_some() && self.stop.as_mut().is_some_and(|stop| Pin::new(stop).poll(cx).is_ready()) {
            self.trace().cancel();
            self.context.trace.cancel();
            self.answer = None;
            return Poll::Ready(Event::Cancelled);
        }
        // From here on nobody is woken for what the answer sends, nor for the end of it.
        if let Some(message) = self.messages.as_mut().and_then(MessageReceiver::try_recv) {
            return Poll::Ready(self.message(message));
        }
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(self.response.take().map_or(Event::Cancelled, |response| Event::Response(*response)));
        };
        let Poll::Ready(response) = answer.as_mut().poll(cx) else {
            // What that sent is here by now, and need not wake anybody.
            return match self.messages.as_mut().map(|messages| messages.poll_recv(cx)) {
                Some(Poll::Ready(Some(message))) => Poll::Ready(self.message(message)),
                _ => Poll::Pending,
            };
        };
        self.answer = None;
        // Messages are handed over before the answer resolves, but the answer may have resolved in
        // the same poll. `try_recv`, unlike `poll_recv`, never yields early.
        Poll::Ready(match self.messages.as_mut().and_then(MessageReceiver::try_recv) {
            Some(message) => {
                self.response = Some(Box::new(response));
                self.message(message)
            }
            None => Event::Response(response),
        })
    }
}

impl Running {
    fn trace(&self) -> &Parent {
        self.answers.as_ref().unwrap_or(&self.context.trace)
    }

    fn message(&self, message: ServerMessage) -> Event {
        if let ServerMessage::Notification(notification) = &message {
            self.trace().notified(notification);
        }
        Event::Message(message)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let (Some(answer), Some(detached)) = (self.answer.take(), self.detached.take()) {
            detached.finish(answer, self.stop.take(), self.session.take(), self.context.trace.clone());
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("answered", &self.answer.is_none()).finish_non_exhaustive()
    }
}

/// Legacy requests whose client has gone: "Disconnection SHOULD NOT be interpreted as the client
/// cancelling its request" (2025-11-25 basic/transports, Sending Messages to the Server). They run
/// on, bounded in number, until they are done or cancelled; the core bounds their time.
#[derive(Debug)]
pub(crate) struct Detached {
    runtime: Handle,
    tasks: TaskTracker,
    slots: Arc<Semaphore>,
    cut: CancellationToken,
}

impl Detached {
    /// Room for `limit` requests, all of which end when `cut` is cancelled.
    pub(crate) fn new(limit: usize, cut: CancellationToken) -> Arc<Self> {
        let slots = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { runtime: Handle::current(), tasks: TaskTracker::new(), slots, cut })
    }

    /// Waits until none is left; more may be added meanwhile.
    pub(crate) async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs `work`, which is known to end, until it does or everything must.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        let run = async move {
            tokio::select! { () = work => {} () = cut.cancelled() => {} }
        };
        self.tasks.spawn_on(run, &self.runtime);
    }

    /// Room for one more request, for as long as the result lives; `None` if there is none.
    pub(crate) fn slot(&self) -> Option<OwnedSemaphorePermit> {
        let slot = if self.cut.is_cancelled() { None } else { Arc::clone(&self.slots).try_acquire_owned().ok() };
        if slot.is_none() {
            tracing::warn!("too many requests of clients that are gone; one is not kept for its client to come back");
        }
        slot
    }

    fn finish(&self, answer: Answer, stop: Option<Stop>, session: Option<InUse>, trace: Parent) {
        if self.cut.is_cancelled() {
            return;
        }
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            tracing::warn!("too many requests of clients that are gone; one is cancelled");
            return;
        };
        let cut = self.cut.clone();
        let run = async move {
            let _held = (slot, session);
            let stopped = async move {
                match stop {
                    // Said before the work is dropped, which then knows why.
                    Some(stop) => {
                        stop.await;
                        trace.cancel();
                    }
                    None => pending().await,
                }
            };
            tokio::select! { _ = answer => {} () = stopped => {} () = cut.cancelled() => {} }
        };
        self.tasks.spawn_on(run, &self.runtime);
    }
}

#[cfg(test)]
mod tests;
