//! Messages of servers to a legacy client outside of calls: notifications and server requests.
//!
//! Each session has one such stream, which begins when the client first opens a GET stream or
//! subscribes. Its owner polls it for messages to send. While none can be sent, they wait in a
//! mailbox.
//!
//! Source: 2025-11-25 basic/transports, Listening for Messages from the Server.
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fanlight_canonical::{
    Backoff, CallContext, Interest, Listening, ListeningGuard, MessageReceiver, RetryDelays,
    ServerMessage, ServerMessages,
};
use fanlight_gateway::Gateway;
use fanlight_protocol::subscription::Lists;
use fanlight_protocol::{Json, Method, Notification, RpcError};
use futures_util::future::BoxFuture;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::eras::notifications::LogGate;
use crate::gates::{self, OwnRequest};
use crate::session::Session;
use crate::settings::FrontendSettings;

type Opening = BoxFuture<'static, Listening>;

/// The messages to one client outside of calls.
pub(crate) struct NotificationStream {
    session: Arc<Session>,
    settings: Arc<FrontendSettings>,
    /// `None` while not listening. Earlier messages may still be in the mailbox.
    listener: Option<Listener>,
    mailbox: Mailbox,
    /// The server requests that have been sent or wait in the mailbox.
    open: Vec<u64>,
}

struct Listener {
    /// The core is asked to listen, repeatedly if necessary; `None` once it does.
    opening: Option<Opening>,
    /// Cancelled once the core has answered.
    answered: CancellationToken,
    messages: MessageReceiver,
    _until_dropped: Option<ListeningGuard>,
}

impl NotificationStream {
    pub(crate) fn new(session: &Arc<Session>, settings: &Arc<FrontendSettings>) -> Self {
        Self {
            session: Arc::clone(session),
            settings: Arc::clone(settings),
            listener: None,
            mailbox: Mailbox::new(settings.notification_buffer, settings.replay_bytes),
            open: Vec::new(),
        }
    }

    /// Begins to listen, if not done yet. The result is cancelled once the core has
    /// answered; this stream must be polled until then. After a refusal the core is asked again at
    /// once, and then from time to time.
    pub(crate) fn begin(&mut self) -> Option<CancellationToken> {
        if let Some(listener) = &self.listener {
            listener.opening.as_ref()?;
            if !listener.answered.is_cancelled() {
                return Some(listener.answered.clone());
            }
        }
        let (session, settings) = (&self.session, Arc::clone(&self.settings));
        let (sender, messages) = ServerMessages::channel(settings.notification_buffer);
        let context = Arc::new(session.context(false));
        let (core, answered) = (Arc::clone(&session.core), CancellationToken::new());
        let moved = session.was_moved.then(|| session.subscriptions());
        let opened = answered.clone();
        let opening: Opening = Box::pin(async move {
            let listening =
                listen_until_accepted(&core, context, sender.clone(), &settings, &opened).await;
            // The other replica kept the session's events, and they are lost.
            if let Some(subscriptions) = moved {
                let missed = Interest {
                    lists: listening.honoured.lists,
                    uris: subscriptions.into_iter().map(Arc::from).collect(),
                    ..Interest::default()
                };
                missed.announce(&sender);
            }
            listening
        });
        self.listener = Some(Listener {
            opening: Some(opening),
            answered: answered.clone(),
            messages,
            _until_dropped: None,
        });
        Some(answered)
    }

    /// The next message for the client of `session`.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Json> {
        loop {
            // The server may no longer wait for a request in the mailbox.
            self.withdraw_closed(cx);
            if let Some(waiting) = self.mailbox.pop() {
                return Poll::Ready(waiting.text);
            }
            ready!(self.poll_receive(cx));
        }
    }

    /// Stores messages in the mailbox while none can be sent.
    pub(crate) fn poll_keep(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Requests without a waiting server would take the space of others.
            self.withdraw_closed(cx);
            ready!(self.poll_receive(cx));
        }
    }

    /// Stops listening, and withdraws the open server requests.
    pub(crate) fn end(&mut self) {
        for number in self.open.drain(..) {
            drop(self.session.server_requests.withdraw(number));
        }
        *self = Self::new(&self.session, &self.settings);
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(listener) = &mut self.listener else {
            return Poll::Pending;
        };
        if let Some(opening) = &mut listener.opening
            && let Poll::Ready(listening) = opening.as_mut().poll(cx)
        {
            listener._until_dropped = Some(listening.into_guard());
            listener.opening = None;
        }
        match ready!(listener.messages.poll_recv(cx)) {
            Some(message) => self.take_in(message),
            // The future or the core has dropped its sender.
            None => self.listener = None,
        }
        Poll::Ready(())
    }

    fn take_in(&mut self, message: ServerMessage) {
        let session = &*self.session;
        let dropped = match message {
            ServerMessage::Notification(notification)
                if !may_have(&self.settings, session, &notification) =>
            {
                return;
            }
            ServerMessage::Notification(notification) => {
                let method = notification.method.clone();
                match translate(notification, session) {
                    Some(text) => self.mailbox.notify(&method, text),
                    None => return,
                }
            }
            ServerMessage::TaskProgress(progress) => {
                let waiting = Waiting {
                    text: progress.text,
                    request: None,
                };
                self.mailbox.push(waiting)
            }
            ServerMessage::Request(request) => match session.open_server_request(request) {
                Some((number, text)) => {
                    self.open.push(number);
                    let request = Some(number);
                    self.mailbox.push(Waiting { text, request })
                }
                None => return,
            },
            ServerMessage::Stream(_) | ServerMessage::Refused(_) => return,
        };
        for number in dropped.into_iter().filter_map(|waiting| waiting.request) {
            self.open.retain(|open| *open != number);
            drop(session.server_requests.withdraw(number));
        }
    }

    fn withdraw_closed(&mut self, cx: &mut Context<'_>) {
        let Self {
            session,
            mailbox,
            open,
            ..
        } = self;
        open.retain(
            |number| match session.server_requests.poll_open(*number, cx) {
                Ok(is_open) => is_open,
                Err(text) => {
                    if !mailbox.withdraw(*number) {
                        let request = None;
                        mailbox.add(Waiting { text, request });
                    }
                    false
                }
            },
        );
    }
}

/// Whether the client may still get a notification. The policy may have changed since the client
/// subscribed to the resource.
fn may_have(settings: &FrontendSettings, session: &Session, notification: &Notification) -> bool {
    notification.method != Method::ResourceUpdated
        || gates::may(settings, session.client(), &OwnRequest(&Method::Subscribe)).is_ok()
}

/// Listens as soon as the core accepts; cancels `answered` at the core's first answer.
async fn listen_until_accepted(
    core: &Gateway,
    context: Arc<CallContext>,
    messages: ServerMessages,
    settings: &FrontendSettings,
    answered: &CancellationToken,
) -> Listening {
    let mut backoff = Backoff::new(RetryDelays::LISTEN);
    loop {
        let interest = Interest {
            lists: Lists::ALL,
            session: true,
            ..Interest::default()
        };
        let operation = core.resolve_listen(interest, Arc::clone(&context));
        let outcome = match gates::decide_for(settings, &context.caller, &operation) {
            Ok(()) => core.listen(operation, messages.clone()).await,
            Err(refused) => Err(refused.error),
        };
        answered.cancel();
        match outcome {
            Ok(listening) => return listening,
            Err(RpcError { message, .. }) if backoff.has_failed() => {
                tracing::debug!(
                    error = message,
                    "messages outside of calls still unavailable to a client"
                );
            }
            Err(RpcError { message, .. }) => {
                tracing::warn!(
                    error = message,
                    "messages outside of calls unavailable to a client: trying again"
                );
            }
        }
        sleep(backoff.next_delay()).await;
    }
}

/// The text to send for `notification`; `None` if a legacy client must not get it here.
fn translate(notification: Notification, session: &Session) -> Option<Json> {
    let revision = session.revision();
    let logs = LogGate::new(revision, session.log_level());
    match notification.method {
        // These belong to a request, which is unknown here.
        Method::Progress | Method::Cancelled => None,
        Method::LogMessage if !logs.lets_through(&notification) => None,
        ref method if !revision.has_notification(method) => None,
        _ => Some(notification.without_subscription_id().text),
    }
}

/// A waiting message.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The message's text for the client.
    pub(crate) text: Json,
    /// The number of a server request; `None` for a notification.
    pub(crate) request: Option<u64>,
}

/// Waiting messages in order.
#[derive(Debug)]
struct Mailbox {
    waiting: VecDeque<Waiting>,
    /// The maximum number of messages.
    most: usize,
    /// The maximum size of all messages.
    most_bytes: usize,
    dropped: u64,
}

impl Mailbox {
    fn new(most: usize, most_bytes: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            most: most.max(1),
            most_bytes,
            dropped: 0,
        }
    }

    /// Adds a notification; returns the dropped messages.
    #[must_use]
    fn notify(&mut self, method: &Method, text: Json) -> Vec<Waiting> {
        let repeats =
            only_says_changed(method) && self.waiting.iter().any(|waiting| waiting.text == text);
        if repeats {
            return Vec::new();
        }
        let request = None;
        self.push(Waiting { text, request })
    }

    /// Adds a message; returns the dropped ones.
    #[must_use]
    fn push(&mut self, waiting: Waiting) -> Vec<Waiting> {
        self.add(waiting);
        let mut dropped = Vec::new();
        while self.waiting.len() > self.most
            || (self.bytes() > self.most_bytes && self.waiting.len() > 1)
        {
            dropped.extend(self.pop());
        }
        self.dropped += dropped.len() as u64;
        if !dropped.is_empty() && self.dropped.is_power_of_two() {
            tracing::warn!(
                dropped = self.dropped,
                "messages for a client without a stream dropped: too many"
            );
        }
        dropped
    }

    /// Adds a message even above the limits.
    fn add(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Removes and returns the oldest message.
    fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// Removes the server request with this number; returns whether it was there.
    fn withdraw(&mut self, number: u64) -> bool {
        let before = self.waiting.len();
        self.waiting
            .retain(|waiting| waiting.request != Some(number));
        self.waiting.len() < before
    }

    fn bytes(&self) -> usize {
        let texts = self.waiting.iter().map(|waiting| &waiting.text);
        texts.map(|text| text.bytes().len()).sum()
    }
}

/// Whether the notification only says that something has changed, without details.
fn only_says_changed(method: &Method) -> bool {
    matches!(
        method,
        Method::ToolsChanged
            | Method::PromptsChanged
            | Method::ResourcesChanged
            | Method::ResourceUpdated
    )
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use fanlight_canonical::Listen;
    use fanlight_canonical::identity::Scopes;
    use fanlight_protocol::json::ObjectBuilder;
    use fanlight_protocol::meta::LogLevel;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::protection::{ProtectionSettings, ScopeSettings};
    use crate::session::testing::ListenCore;

    fn settings() -> Arc<FrontendSettings> {
        let base = FrontendSettings::default();
        Arc::new(FrontendSettings {
            notification_buffer: 8,
            replay_bytes: 1000,
            ..base
        })
    }

    /// A core that refuses the first `refusals` times and then announces changed tools at once;
    /// also returns the number of attempts.
    fn reluctant(refusals: usize) -> (ListenCore, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        let core = ListenCore::new(
            move |Listen {
                      interest, messages, ..
                  }| {
                if count.fetch_add(1, Ordering::Relaxed) < refusals {
                    return Err(RpcError::new(-31001, "as asked"));
                }
                assert!(
                    messages.try_send(ServerMessage::Notification(Notification::new(
                        Method::ToolsChanged,
                        None
                    )))
                );
                Ok(Listening::new(interest, messages))
            },
        );
        (core, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn refused_listening_is_tried_again() {
        let (core, asked) = reluctant(4);
        let session = Arc::new(core.session());
        let mut notifications = NotificationStream::new(&session, &settings());
        let opened = notifications.begin().unwrap();
        let began = Instant::now();
        let mut keep = async |patience| {
            timeout(patience, poll_fn(|cx| notifications.poll_keep(cx)))
                .await
                .unwrap_err();
        };
        keep(Duration::ZERO).await;
        assert!(opened.is_cancelled(), "only the first answer is waited for");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        keep(Duration::from_secs(60)).await;
        assert_eq!(asked.load(Ordering::Relaxed), 5);
        let text = poll_fn(|cx| notifications.poll_next(cx)).await;
        assert!(
            text.as_text().contains("tools/list_changed")
                && began.elapsed() == Duration::from_secs(60)
        );
    }

    #[tokio::test]
    async fn update_of_a_resource_needs_the_scopes_of_now() {
        let core = ListenCore::new(
            |Listen {
                 interest, messages, ..
             }| {
                for method in [Method::ResourceUpdated, Method::ToolsChanged] {
                    assert!(
                        messages
                            .try_send(ServerMessage::Notification(Notification::new(method, None)))
                    );
                }
                Ok(Listening::new(interest, messages))
            },
        );
        let (settings, held) = (settings(), Scopes::parse("mcp:read"));
        for (needed, first) in [
            ("mcp:read", "resources/updated"),
            ("mcp:other", "tools/list_changed"),
        ] {
            let scopes = ScopeSettings {
                read: vec![needed.into()],
                ..ScopeSettings::default()
            };
            settings.protection.replace(ProtectionSettings {
                scopes,
                ..ProtectionSettings::default()
            });
            let session = Arc::new(core.session_with(held.clone()));
            let mut notifications = NotificationStream::new(&session, &settings);
            notifications.begin();
            let text = poll_fn(|cx| notifications.poll_next(cx)).await;
            assert!(text.as_text().contains(first), "{needed}: {text}");
        }
    }

    /// Servers whose connection is shared send each session the messages of all levels.
    #[tokio::test]
    async fn log_message_below_the_level_of_the_session_is_dropped() {
        let core = ListenCore::new(
            |Listen {
                 interest, messages, ..
             }| {
                for level in ["info", "error"] {
                    let params = ObjectBuilder::new().string("level", level).finish();
                    let logged = Notification::new(Method::LogMessage, Some(&params));
                    assert!(messages.try_send(ServerMessage::Notification(logged)));
                }
                Ok(Listening::new(interest, messages))
            },
        );
        for (level, first) in [(None, "info"), (Some(LogLevel::Error), "error")] {
            let session = Arc::new(core.session());
            session.set_log_level(level);
            let mut notifications = NotificationStream::new(&session, &settings());
            notifications.begin();
            let text = poll_fn(|cx| notifications.poll_next(cx)).await;
            assert!(text.as_text().contains(first), "{level:?}: {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_stream_tries_refused_listening_at_once() {
        let (core, asked) = reluctant(1);
        let session = Arc::new(core.session());
        let mut notifications = NotificationStream::new(&session, &settings());
        for times in 1..=3 {
            let opened = notifications.begin();
            timeout(Duration::ZERO, poll_fn(|cx| notifications.poll_keep(cx)))
                .await
                .unwrap_err();
            assert_eq!(asked.load(Ordering::Relaxed), times.min(2));
            assert_eq!(
                opened.is_some_and(|opened| opened.is_cancelled()),
                times < 3
            );
        }
    }

    fn mailbox() -> Mailbox {
        Mailbox::new(3, 20)
    }

    fn texts(mailbox: &mut Mailbox) -> Vec<String> {
        std::iter::from_fn(|| Some(mailbox.pop()?.text.as_text().to_owned())).collect()
    }

    #[test]
    fn oldest_messages_are_dropped_first() {
        let mut mailbox = mailbox();
        for (count, text) in ["1", "2", "3", "4"].into_iter().enumerate() {
            let dropped = mailbox.notify(&Method::LogMessage, Json::literal(text));
            assert_eq!(dropped.len(), usize::from(count == 3));
        }
        let request = Waiting {
            text: Json::string(&"x".repeat(15)),
            request: Some(7),
        };
        assert_eq!(mailbox.push(request).len(), 1);
        let dropped = mailbox.notify(&Method::LogMessage, Json::literal("123456"));
        assert_eq!(
            dropped
                .iter()
                .map(|waiting| waiting.request)
                .collect::<Vec<_>>(),
            [None, None, Some(7)]
        );
        assert_eq!(
            (texts(&mut mailbox), mailbox.bytes(), mailbox.dropped),
            (vec!["123456".to_owned()], 0, 5)
        );
    }

    #[test]
    fn repeated_change_notification_is_entered_once() {
        let mut mailbox = mailbox();
        for text in ["1", "2", "1", "2"] {
            assert!(
                mailbox
                    .notify(&Method::ResourceUpdated, Json::literal(text))
                    .is_empty()
            );
        }
        assert!(
            mailbox
                .notify(&Method::LogMessage, Json::literal("1"))
                .is_empty()
        );
        assert_eq!(texts(&mut mailbox), ["1", "2", "1"]);
    }

    #[test]
    fn waiting_server_request_can_be_withdrawn() {
        let mut mailbox = mailbox();
        let request = Waiting {
            text: Json::null(),
            request: Some(7),
        };
        assert!(mailbox.push(request).is_empty());
        assert!(!mailbox.withdraw(8) && mailbox.withdraw(7) && !mailbox.withdraw(7));
        assert!(mailbox.waiting.is_empty() && mailbox.bytes() == 0);
    }
}
