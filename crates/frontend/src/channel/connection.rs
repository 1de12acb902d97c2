//! One client on one channel. Messages are read one by one; each request is a task.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use fanlight_gateway::Gateway;
use fanlight_protocol::Era;
use fanlight_protocol::json::on_one_line;
use fanlight_telemetry::recording::fresh_number;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{ChannelOptions, Outbound, RunningHook};
use crate::call::{Answer, RenderedCall, ResponseItem};
use crate::eras::fault;
use crate::ingress::{Ingress, Origin, Reason, Received, Refusal, RequestKind, Transport};
use crate::session::RunningRequests;
use crate::streams::{ActiveSession, SessionStreams};
use crate::trace::Ending;
use crate::{FrontendError, FrontendSettings};

/// A client on a channel.
pub(crate) struct ChannelConnection {
    /// The number of the connection in recordings.
    pub(crate) number: u64,
    pub(crate) ingress: Ingress,
    out: ClientSender,
    /// The session of the last `initialize`.
    session: Mutex<Option<Arc<SessionStreams>>>,
    /// Running requests of both eras.
    running: Arc<RunningRequests>,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Cancelled when no more input is read; subscriptions end then.
    closing: CancellationToken,
    cut: CancellationToken,
    only: Option<Era>,
    running_hook: Option<RunningHook>,
}

impl ChannelConnection {
    /// Creates a client that reads its messages from the other end of `queue`.
    pub(crate) fn new(
        core: Arc<Gateway>,
        settings: &Arc<FrontendSettings>,
        queue: mpsc::Sender<Outbound>,
        options: ChannelOptions,
    ) -> Result<Arc<Self>, FrontendError> {
        let ChannelOptions {
            only,
            write_timeout,
            cut,
            running: running_hook,
        } = options;
        Ok(Arc::new(Self {
            number: fresh_number(),
            ingress: Ingress::new(core, settings, &cut)?,
            out: ClientSender::new(queue, write_timeout, cut.clone()),
            session: Mutex::default(),
            running: Arc::default(),
            permits: Arc::new(Semaphore::new(
                settings.max_concurrent.clamp(1, Semaphore::MAX_PERMITS),
            )),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            cut,
            only,
            running_hook,
        }))
    }

    /// Handles one message or batch. Returns once its requests run; waits only while sending a
    /// refusal. The caller refuses text that is not a message.
    pub(crate) async fn take(
        self: &Arc<Self>,
        origin: &Origin<'_>,
        text: Bytes,
    ) -> Result<(), Box<Refusal>> {
        match self.ingress.receive(self, origin, text).await {
            Ok(Received::Request(call, kind)) => self.run(*call, kind),
            Ok(Received::Batch(_, requests)) => {
                for request in requests {
                    match request {
                        Ok(call) => self.run(*call, RequestKind::Call(None)),
                        Err(refusal) => self.refuse(*refusal).await,
                    }
                }
            }
            Ok(Received::Accepted) => {}
            Ok(Received::Ignored(refusal)) => {
                tracing::debug!(
                    error = refusal.error.message,
                    "notification or response ignored"
                );
            }
            // Refusals for missing scopes and rate limits go on to the transport, which can say
            // more.
            Err(refusal)
                if refusal.ending.is_some()
                    && !matches!(refusal.reason, Reason::Scopes | Reason::TooMany) =>
            {
                self.refuse(*refusal).await;
            }
            Err(refusal) => return Err(refusal),
        }
        Ok(())
    }

    /// Sends a refusal.
    pub(super) async fn refuse(&self, refusal: Refusal) {
        self.out.refuse(refusal).await;
    }

    /// Waits until no request is running. New requests may still arrive.
    pub(crate) async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        // From here on, no request can resume a suspended call.
        self.ingress.suspended_calls.end().await;
    }

    /// Ends subscriptions and the stream of messages outside of calls.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Ends everything without answers.
    pub(crate) fn cut(&self) {
        self.cut.cancel();
    }

    /// Whether a request is running.
    pub(crate) fn is_working(&self) -> bool {
        self.running.count() > 0
    }

    /// Waits until the connection is cut.
    pub(crate) async fn is_cut(&self) {
        self.cut.cancelled().await;
    }

    /// Ends the session, if there is one, and all its requests.
    pub(crate) fn end(&self) {
        self.close();
        self.cut();
        if let Some(session) = self.replace_session(None) {
            session.end();
        }
    }

    /// The session of the last `initialize`.
    pub(super) fn current_session(&self) -> Option<Arc<SessionStreams>> {
        self.session.lock().clone()
    }

    fn replace_session(&self, session: Option<Arc<SessionStreams>>) -> Option<Arc<SessionStreams>> {
        std::mem::replace(&mut *self.session.lock(), session)
    }

    /// Runs a request and sends its results. `initialize` opens a session at once, so that messages
    /// sent before the answer find it. An error answer closes it again.
    fn run(self: &Arc<Self>, mut call: RenderedCall, kind: RequestKind) {
        let replaced = match kind {
            RequestKind::Initialize(session) => Some(self.replace_session(Some(session))),
            RequestKind::Call(_) | RequestKind::Subscription => None,
        };
        let connection = Arc::clone(self);
        let running = self.running_hook.as_ref().map(|hook| hook());
        self.spawn(async move {
            let _running = running;
            while let Some(item) = call.next().await {
                match item {
                    ResponseItem::Message(text) => {
                        connection.out.send(text.into_bytes(), None).await;
                    }
                    ResponseItem::Stream(_) => {}
                    ResponseItem::Response(Answer {
                        text,
                        error,
                        ending,
                    }) => {
                        match (replaced, error) {
                            (Some(previous), Some(_)) => drop(connection.replace_session(previous)),
                            (Some(Some(previous)), None) => previous.end_streams(),
                            (Some(None) | None, _) => {}
                        }
                        return connection.out.send(text.into_bytes(), ending).await;
                    }
                }
            }
        });
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        // Boxed, because spawning copies a future several times.
        let work = Box::pin(work);
        self.tasks.spawn(async move {
            tokio::select! { () = work => {} () = cut.cancelled() => {} }
        });
    }

    /// Sends messages outside of calls until the session ends or the connection closes.
    async fn send_notifications(self: Arc<Self>, session: Weak<SessionStreams>) {
        loop {
            let next = poll_fn(|cx| match session.upgrade() {
                Some(session) => session.poll_notification(cx),
                None => Poll::Ready(None),
            });
            let text = tokio::select! {
                text = next => text,
                () = self.closing.cancelled() => None,
            };
            let Some(text) = text else { break };
            self.out.send(text.into_bytes(), None).await;
        }
        if let Some(session) = session.upgrade() {
            session.end_streams();
        }
    }
}

impl Transport for Arc<ChannelConnection> {
    fn serves(&self, era: Era) -> bool {
        self.only.is_none_or(|only| only == era)
    }

    async fn session(&self, origin: &Origin<'_>) -> Result<Option<ActiveSession>, Box<Refusal>> {
        let session = self
            .current_session()
            .filter(|session| session.session.belongs_to(&origin.holder));
        Ok(session.map(|session| ActiveSession::new(&session)))
    }

    fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    fn running_requests(&self) -> Option<&Arc<RunningRequests>> {
        Some(&self.running)
    }

    fn permits(&self) -> Option<&Arc<Semaphore>> {
        Some(&self.permits)
    }

    /// "The server SHOULD NOT send requests other than pings and logging before receiving the
    /// initialized notification" (2025-11-25 basic/lifecycle, Initialization).
    fn initialized(&self) {
        if let Some(session) = self.current_session() {
            drop(self.listen(&ActiveSession::new(&session)));
        }
    }

    fn listen(&self, session: &ActiveSession) -> Option<BoxFuture<'static, ()>> {
        if self.closing.is_cancelled() {
            return None;
        }
        let opened = session.begin_listening();
        if session.claim_notifications() {
            self.spawn(Arc::clone(self).send_notifications(Arc::downgrade(session)));
        }
        let (opened, closing, limit) = (
            opened?,
            self.closing.clone(),
            self.ingress.settings.stream_after,
        );
        Some(Box::pin(async move {
            tokio::select! { _ = timeout(limit, opened.cancelled()) => {} () = closing.cancelled() => {} }
        }))
    }
}

/// Sends messages to a client; waits while its queue is full.
struct ClientSender {
    queue: mpsc::Sender<Outbound>,
    /// The longest wait; `None` for no limit.
    timeout: Option<Duration>,
    /// Cancelled when the client does not read its messages in time.
    cut: CancellationToken,
}

impl ClientSender {
    fn new(
        queue: mpsc::Sender<Outbound>,
        timeout: Option<Duration>,
        cut: CancellationToken,
    ) -> Self {
        Self {
            queue,
            timeout,
            cut,
        }
    }

    async fn refuse(&self, refusal: Refusal) {
        let text = fault::message(refusal.id.as_ref(), &refusal.error).into_bytes();
        self.send(text, refusal.ending).await;
    }

    async fn send(&self, message: Bytes, ending: Option<Box<Ending>>) {
        let sent = self.queue.send(Outbound {
            text: on_one_line(&message),
            ending,
        });
        // An error means that the client is gone.
        match self.timeout {
            None => drop(sent.await),
            Some(limit) if timeout(limit, sent).await.is_err() => {
                tracing::debug!(?limit, "client disconnected: it does not read its messages");
                self.cut.cancel();
            }
            Some(_) => {}
        }
    }
}
