//! Many concurrent requests over one stream of messages, identified by their ids. Shared by stdio
//! and the legacy SSE transport.

mod pending;
mod reader;

use std::future::{Ready, pending, ready};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{BackendError, Pending};
use fanlight_protocol::{Method, Revision};
use fanlight_telemetry::Propagation;
use futures_util::future::{BoxFuture, Either};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::request::deadline::PausableDeadline;
use crate::request::server_request::{CALL_HAS_ENDED, OpenServerRequests, ServerRequestReply};
use crate::request::{
    ActiveRequest, OutgoingRequest, Reply, SessionSigns, TransportContext, cancelled_text,
};
use crate::settings::OPEN_SERVER_REQUESTS;
use pending::{Outcome, PendingCall, PendingCalls, ServerRequestEvent};
pub(crate) use reader::Reader;

/// A channel to a server. Dropping it ends the channel.
pub(crate) struct Channel {
    pub(crate) shared: Arc<Shared>,
    _end: DropGuard,
}

/// The state that a channel shares with its reader and its writer.
pub(crate) struct Shared {
    pub(crate) context: Arc<TransportContext>,
    pending: PendingCalls,
    pub(crate) liveness: Liveness,
    writer: Box<dyn MessageWriter>,
    /// The agreed revision.
    revision: OnceLock<Revision>,
    /// Asks the channel to end.
    pub(crate) end: CancellationToken,
    /// Cancelled once nothing can be answered any more.
    pub(crate) gone: CancellationToken,
    /// Replies to the server that outlast their calls.
    pub(crate) replies: TaskTracker,
    /// Whether the server has ended without reading a message.
    is_unread: AtomicBool,
}

impl Channel {
    /// A channel that sends with `writer`. The transport reads with a [`Reader`] until
    /// [`Shared::end`] is cancelled, and then calls [`Shared::close`].
    pub(crate) fn new(
        writer: impl MessageWriter + 'static,
        context: Arc<TransportContext>,
    ) -> Self {
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            liveness: Liveness::new(context.health.policy.timeouts),
            context,
            pending: PendingCalls::default(),
            writer: Box::new(writer),
            revision: OnceLock::new(),
            end: end.clone(),
            gone: CancellationToken::new(),
            replies: TaskTracker::new(),
            is_unread: AtomicBool::new(false),
        });
        Self {
            shared,
            _end: end.drop_guard(),
        }
    }

    /// Sets the revision that the handshake agreed on.
    pub(crate) fn adopt(&self, revision: Revision) {
        let _ = self.shared.revision.set(revision);
    }

    /// Sends a request and waits for its answer. The caller must poll the future at once.
    pub(crate) fn exchange<'a>(
        &'a self,
        outgoing: OutgoingRequest<'a>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        let OutgoingRequest {
            request,
            task,
            text,
            propagation,
            ..
        } = outgoing;
        let (answer, answered) = oneshot::channel();
        // Without declared capabilities the server must not send requests.
        let (asks, asked) = if self.shared.context.declared.is_empty() {
            (None, None)
        } else {
            Some(mpsc::channel(2 * OPEN_SERVER_REQUESTS)).unzip()
        };
        let waiting = PendingCall {
            answer,
            token: request.token,
            task,
            messages: request.messages.clone(),
            context: Arc::clone(request.context),
            deadline: Arc::clone(request.deadline),
            subscription: *request.method == Method::Listen,
            asks,
            trace: request.sending.parent(),
        };
        let shared = &self.shared;
        let begun = match shared.pending.insert(request.id, waiting) {
            Ok(()) => shared.writer.begin(
                text,
                shared.revision(),
                Some((&propagation, &request)),
                Some(request.deadline),
            ),
            // The channel had already ended, so nothing was sent.
            Err(_) => Either::Left(ready(Err(shared.writer.end_error()))),
        };
        let received = shared.liveness.received();
        let place = PendingGuard {
            shared,
            id: request.id,
            sent: false,
            cancellable: request.cancellable,
            received,
            is_open: true,
        };
        shared.converse(place, begun, answered, asked)
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, text: Bytes) -> Result<(), BackendError> {
        let sent = match self
            .shared
            .writer
            .begin(text, self.shared.revision(), None, None)
            .await?
        {
            Some(sending) => sending.await?,
            None => Sent::Accepted,
        };
        match sent {
            Sent::Rejected {
                status: status @ (401 | 403),
                ..
            } => Err(BackendError::Unauthorized { status }),
            Sent::Rejected { status, .. } => {
                tracing::debug!(
                    backend = &*self.shared.context.name,
                    status,
                    "notification not accepted"
                );
                Ok(())
            }
            Sent::Accepted => Ok(()),
        }
    }
}

/// The outcome of sending a message; never resolves again after that.
async fn next_sent(sending: &mut Option<SendFuture>) -> Result<Sent, BackendError> {
    let Some(under_way) = sending else {
        return pending().await;
    };
    let sent = under_way.await;
    *sending = None;
    sent
}

async fn next_asked(asked: &mut Option<mpsc::Receiver<ServerRequestEvent>>) -> ServerRequestEvent {
    if let Some(receiver) = asked
        && let Some(next) = receiver.recv().await
    {
        return next;
    }
    pending().await
}

/// Adds messages that have arrived but were not processed, such as a request right before the
/// answer to its call. They need a reply as well.
fn take_waiting(
    asked: &mut Option<mpsc::Receiver<ServerRequestEvent>>,
    requests: &mut OpenServerRequests,
) {
    while let Some(event) = asked.as_mut().and_then(|asked| asked.try_recv().ok()) {
        event.apply_to(requests);
    }
}

impl Shared {
    /// Waits for the answer to a request, and replies to server requests meanwhile.
    fn converse<'a>(
        self: &'a Arc<Self>,
        place: PendingGuard<'a>,
        begun: Begun<'a>,
        mut answered: oneshot::Receiver<Outcome>,
        asked: Option<mpsc::Receiver<ServerRequestEvent>>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        async move {
            let mut place = place;
            let mut sending = begun.await?;
            place.sent = true;
            let mut open = OpenRequestsGuard {
                shared: self,
                requests: OpenServerRequests::default(),
                asked,
            };
            let OpenRequestsGuard {
                requests, asked, ..
            } = &mut open;
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut answered => {
                        if let Some(sending) = sending {
                            self.writer.detach(sending);
                        }
                        take_waiting(asked, requests);
                        let response = outcome.unwrap_or(Err(BackendError::ClosedEarly))?;
                        if !requests.is_empty() {
                            self.reply_after_call(std::mem::take(requests));
                        }
                        return Ok(Reply::Answer { response, session: None });
                    }
                    sent = next_sent(&mut sending) => match sent {
                        Ok(Sent::Accepted) => {}
                        Ok(Sent::Rejected { status, pause }) => {
                            (place.sent, place.is_open) = (false, false);
                            let session = SessionSigns::default();
                            return Ok(Reply::Rejected { status, error: None, session, pause });
                        }
                        Err(error) => {
                            (place.sent, place.is_open) = (error.may_have_run(), false);
                            return Err(error);
                        }
                    },
                    asked = next_asked(asked) => asked.apply_to(requests),
                    reply = requests.next() => self.writer.reply(reply, self.revision()).await?,
                }
            }
        }
    }

    /// Handles the open server requests of a call that the server has ended. The client answers
    /// them if it still can. Otherwise the server gets an error, at the latest when the client's
    /// time is over or the channel ends.
    fn reply_after_call(self: &Arc<Self>, mut requests: OpenServerRequests) {
        let shared = Arc::clone(self);
        self.context
            .tasks
            .spawn(self.replies.track_future(async move {
                while !requests.is_empty() {
                    let Some(reply) = shared.end.run_until_cancelled(requests.next()).await else {
                        return requests
                            .refuse_all(CALL_HAS_ENDED)
                            .into_iter()
                            .for_each(|text| shared.send_detached(text));
                    };
                    if shared.writer.reply(reply, shared.revision()).await.is_err() {
                        return;
                    }
                }
            }));
    }

    /// The agreed revision; the oldest one before the agreement.
    fn revision(&self) -> Revision {
        let agreed = self.revision.get();
        agreed.copied().unwrap_or(Revision::V2024_11_05)
    }

    /// Sends a message without waiting.
    fn send_detached(&self, text: Bytes) {
        if !self.writer.send_detached(text, self.revision()) {
            tracing::debug!(
                backend = &*self.context.name,
                "message to server dropped: queue full"
            );
        }
    }

    /// Ends the channel because the server misbehaves. `reason` completes "was ended: …".
    pub(crate) fn give_up(&self, reason: String) {
        tracing::warn!(
            backend = &*self.context.name,
            reason,
            "connection to server given up"
        );
        self.liveness.give_up(reason);
        self.end.cancel();
    }

    /// Records, before the channel is closed, that the server certainly read no message.
    pub(crate) fn set_unread(&self) {
        self.is_unread.store(true, Ordering::Release);
    }

    /// Whether the server, which has ended, certainly read no message.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Acquire)
    }

    /// Handles the end of the message stream: fails every pending and every later request. `error`
    /// is the reason, unless the channel was given up.
    pub(crate) fn close(&self, error: &BackendError) {
        self.end.cancel();
        // Cancelled first, so that a repeated request uses the next connection.
        self.gone.cancel();
        self.pending
            .close(&self.liveness.failure().unwrap_or_else(|| error.clone()));
    }
}

/// The open server requests during a call. If the call is cancelled or fails, the server gets
/// errors for them.
struct OpenRequestsGuard<'a> {
    shared: &'a Shared,
    requests: OpenServerRequests,
    asked: Option<mpsc::Receiver<ServerRequestEvent>>,
}

impl Drop for OpenRequestsGuard<'_> {
    fn drop(&mut self) {
        take_waiting(&mut self.asked, &mut self.requests);
        for text in self.requests.refuse_all(CALL_HAS_ENDED) {
            self.shared.send_detached(text);
        }
    }
}

/// Removes a pending request when the future that waits for it is dropped, and cancels it at the
/// server.
struct PendingGuard<'a> {
    shared: &'a Shared,
    id: i64,
    sent: bool,
    cancellable: bool,
    /// The number of received messages when the request was sent.
    received: u64,
    /// Whether the request is open: it was not refused, and the channel has not failed.
    is_open: bool,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        let Some(unanswered) = self.shared.pending.remove(self.id) else {
            return;
        };
        // Fanlight drops its own requests only when they take too long.
        let is_own = unanswered.context.caller.is_gateway();
        if self.is_open && (is_own || unanswered.deadline.has_expired()) {
            self.shared.liveness.timeout(self.received);
        }
        if self.sent && self.cancellable {
            self.shared
                .send_detached(cancelled_text(self.id, &unanswered.context));
        }
    }
}

/// The signs of life on a channel.
pub(crate) struct Liveness {
    /// The number of consecutive timeouts that make the server suspect even if other messages
    /// arrive.
    most_timeouts: usize,
    /// The number of received messages.
    received: AtomicU64,
    /// The number of requests that timed out since the last answer.
    timeouts: AtomicUsize,
    doubted: Notify,
    /// The reason why the channel was given up.
    given_up: OnceLock<BackendError>,
}

impl Liveness {
    /// Starts without any signs; `most_timeouts` timeouts in a row are doubtful.
    fn new(most_timeouts: usize) -> Self {
        Self {
            most_timeouts,
            received: AtomicU64::new(0),
            timeouts: AtomicUsize::new(0),
            doubted: Notify::new(),
            given_up: OnceLock::new(),
        }
    }

    /// The number of received messages.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Records a message.
    fn message(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Records an answer.
    fn answer(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
    }

    /// Records a timeout. `received` is the number of received messages when the request was sent.
    fn timeout(&self, received: u64) {
        let timeouts = self
            .timeouts
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if received == self.received() || timeouts >= self.most_timeouts {
            self.doubted.notify_one();
        }
    }

    /// Waits until it is doubtful whether the server still answers.
    pub(crate) async fn doubted(&self) {
        self.doubted.notified().await;
    }

    /// Gives the channel up. The first reason counts.
    fn give_up(&self, reason: String) {
        let _ = self.given_up.set(BackendError::GivenUp { reason });
    }

    /// The reason why the channel was given up, if it was.
    pub(crate) fn failure(&self) -> Option<BackendError> {
        self.given_up.get().cloned()
    }
}

#[cfg(test)]
mod liveness_tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_doubted(liveness: &Liveness) -> bool {
        liveness.doubted().now_or_never().is_some()
    }

    #[test]
    fn timeout_without_a_sign_of_life_is_doubtful() {
        let liveness = Liveness::new(3);
        let sent = liveness.received();
        assert!(!is_doubted(&liveness));
        liveness.timeout(sent);
        assert!(is_doubted(&liveness));
        assert!(!is_doubted(&liveness), "once for each reason");
    }

    #[test]
    fn timeouts_beside_other_messages_are_doubtful_in_a_row_only() {
        let liveness = Liveness::new(3);
        let timeout = || {
            let sent = liveness.received();
            liveness.message();
            liveness.timeout(sent);
            is_doubted(&liveness)
        };
        assert_eq!([timeout(), timeout(), timeout()], [false, false, true]);
        liveness.answer();
        assert_eq!([timeout(), timeout(), timeout()], [false, false, true]);
    }
}

/// Sends messages to one server.
pub(crate) trait MessageWriter: Send + Sync {
    /// Begins to send a message; waits while the queue is full. `of` is the request and its trace
    /// context, for the message's headers, if the transport has headers. `deadline` belongs to the
    /// message's call. It is notified once part of the message may have been written.
    fn begin(
        &self,
        text: Bytes,
        revision: Revision,
        of: Option<(&Propagation, &ActiveRequest<'_>)>,
        deadline: Option<&Arc<PausableDeadline>>,
    ) -> Begun<'_>;

    /// Sends the reply to a server's request. The call stays paused until the reply has been sent,
    /// or until the server has it.
    fn reply(&self, reply: ServerRequestReply, revision: Revision) -> Pending<'_, ()>;

    /// Sends a message without waiting; returns false if it was dropped because the queue is full.
    fn send_detached(&self, text: Bytes, revision: Revision) -> bool;

    /// Finishes sending a message in the background; its outcome is not needed.
    fn detach(&self, sending: SendFuture);

    /// The error of requests after the transport's end.
    fn end_error(&self) -> BackendError;
}

/// Resolves once the server has accepted or refused a message.
pub(crate) type SendFuture = BoxFuture<'static, Result<Sent, BackendError>>;

/// The outcome of [`MessageWriter::begin`]: `None` if the server neither accepts nor refuses
/// messages. Most are ready at once, without an allocation.
pub(crate) type Begun<'a> =
    Either<Ready<Result<Option<SendFuture>, BackendError>>, Pending<'a, Option<SendFuture>>>;

/// The server's reaction to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Accepted,
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The pause that the server asks for.
        pause: Option<Duration>,
    },
}
