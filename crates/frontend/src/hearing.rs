//! What a legacy client hears outside of calls: notifications, and questions of servers.
//!
//! There is one of it per session, begun when the client first has a way to hear it or something to
//! hear of. Whoever can send to the client drives it; while nobody can, what comes waits in a
//! mailbox.
//!
//! Source: 2025-11-25 basic/transports, Listening for Messages from the Server. Must not know:
//! transports.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fanlight_canonical::{Interest, Listen, Listening, ListeningGuard, MessageReceiver, ServerMessage, ServerMessages};
use fanlight_protocol::{Era, Json, Method, Notification, RpcError};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::notify::{self, LogGate};
use crate::session::Session;
use crate::streams::mailbox::{Mailbox, Room, Waiting};
use crate::{legacy, subscription};
use fanlight_canonical::Core;

type Opening = Pin<Box<dyn Future<Output = Listening> + Send>>;

/// How long to wait before asking a core again that has refused: doubled each time within these
/// bounds, up to half as long again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// See the module.
#[derive(Default)]
pub(crate) struct Hearing {
    state: State,
    mailbox: Mailbox,
    room: Option<Room>,
    /// Questions that the client has been asked, or that wait in the mailbox.
    open: Vec<u64>,
}

#[derive(Default)]
enum State {
    /// Nobody listens. What had come before is in the mailbox.
    #[default]
    Deaf,
    /// The core is being told, again if need be. `opened` is cancelled once it has answered.
    Opening { opening: Opening, messages: MessageReceiver, opened: CancellationToken },
    /// Somebody listens.
    Listening { messages: MessageReceiver, _until_dropped: ListeningGuard },
}

impl Hearing {
    /// Begins to listen for `session`, unless that has been done. The result is cancelled once the
    /// core has been told, by whoever drives this. A core that has refused is asked again at once,
    /// and then from time to time.
    pub(crate) fn begin<C: Core>(&mut self, core: &Arc<C>, session: &Session, room: Room) -> Option<CancellationToken> {
        match &self.state {
            State::Listening { .. } => return None,
            State::Opening { opened, .. } if !opened.is_cancelled() => return Some(opened.clone()),
            State::Opening { .. } | State::Deaf => {}
        }
        let (sender, messages) = ServerMessages::channel(room.messages);
        let interest = Interest { tools: true, prompts: true, resources: true, session: true, ..Interest::default() };
        let listen = Listen { interest, context: Arc::new(session.context(false)), messages: sender };
        let core = Arc::clone(core);
        let opened = CancellationToken::new();
        self.room = Some(room);
        let answered = opened.clone();
        self.state = State::Opening {
            opening: Box::pin(async move { listen_in_the_end(&*core, listen, &answered).await }),
            messages,
            opened: opened.clone(),
        };
        Some(opened)
    }

    /// What the client of `session` is sent next.
    pub(crate) fn poll_next(&mut self, session: &Session, cx: &mut Context<'_>) -> Poll<Json> {
        loop {
            // A question that has waited may not be wanted any more.
            self.notice_withdrawn(session, cx);
            if let Some(waiting) = self.mailbox.pop() {
                return Poll::Ready(waiting.text);
            }
            ready!(self.poll_receive(session, cx));
        }
    }

    /// Puts what comes into the mailbox, for as long as nobody can send it.
    pub(crate) fn poll_keep(&mut self, session: &Session, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Questions that nobody wants answered any more would take the room of others.
            self.notice_withdrawn(session, cx);
            ready!(self.poll_receive(session, cx));
        }
    }

    /// Stops listening, and withdraws what the client has been asked.
    pub(crate) fn end(&mut self, session: &Session) {
        for number in self.open.drain(..) {
            drop(session.questions.withdraw(number));
        }
        let Self { state, mailbox, .. } = std::mem::take(self);
        drop((state, mailbox));
    }

    fn poll_receive(&mut self, session: &Session, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Opening { opening, .. } = &mut self.state
            && let Poll::Ready(listening) = opening.as_mut().poll(cx)
        {
            self.state = match std::mem::take(&mut self.state) {
                State::Opening { messages, .. } => {
                    State::Listening { messages, _until_dropped: listening.into_guard() }
                }
                other => other,
            };
        }
        let (State::Opening { messages, .. } | State::Listening { messages, .. }) = &mut self.state else {
            return Poll::Pending;
        };
        match ready!(messages.poll_recv(cx)) {
            Some(message) => self.take_in(session, message),
            // Nothing more comes of a future that has let go of its sender, nor of a core that has.
            None => self.state = State::Deaf,
        }
        Poll::Ready(())
    }

    fn take_in(&mut self, session: &Session, message: ServerMessage) {
        let Some(room) = self.room else { return };
        let dropped = match message {
            ServerMessage::Notification(notification) => {
                let method = notification.method.clone();
                match translate(notification, legacy::log_gate(session.log_level())) {
                    Some(text) => self.mailbox.notify(&method, text, room),
                    None => return,
                }
            }
            ServerMessage::Request(question) => match session.ask(question) {
                Some((number, text)) => {
                    self.open.push(number);
                    self.mailbox.push(Waiting { text, question: Some(number) }, room)
                }
                None => return,
            },
            ServerMessage::Pause { .. } | ServerMessage::Refused(_) => return,
        };
        for number in dropped.into_iter().filter_map(|waiting| waiting.question) {
            self.open.retain(|open| *open != number);
            drop(session.questions.withdraw(number));
        }
    }

    fn notice_withdrawn(&mut self, session: &Session, cx: &mut Context<'_>) {
        let (Self { open, mailbox, .. }, room) = (self, Room { messages: usize::MAX, bytes: usize::MAX });
        open.retain(|number| match session.questions.poll_open(*number, cx) {
            Ok(is_open) => is_open,
            Err(cancelled) => {
                if !mailbox.withdraw(*number) {
                    drop(mailbox.push(Waiting { text: cancelled, question: None }, room));
                }
                false
            }
        });
    }
}

/// Listens, as soon as the core lets it. `answered` is cancelled once the core has said anything.
async fn listen_in_the_end<C: Core>(core: &C, listen: Listen, answered: &CancellationToken) -> Listening {
    let (mut pause, most) = RETRY;
    loop {
        let outcome = core.listen(listen.clone()).await;
        let was_answered = answered.is_cancelled();
        answered.cancel();
        match outcome {
            Ok(listening) => return listening,
            Err(RpcError { message, .. }) if was_answered => {
                tracing::debug!(error = message, "a client still hears nothing outside of calls");
            }
            Err(RpcError { message, .. }) => {
                tracing::warn!(
                    error = message,
                    "a client hears nothing outside of calls; trying again from time to time"
                );
            }
        }
        sleep(pause.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(most);
    }
}

/// The text to send for `notification`, or nothing if a legacy client is not to have it here.
fn translate(notification: Notification, logs: LogGate) -> Option<Json> {
    match notification.method {
        // Belong to a request, which this side cannot know.
        Method::Progress | Method::Cancelled => None,
        Method::LogMessage if !logs.lets_through(&notification) => None,
        ref method if !notify::is_known_to(Era::Legacy, method) => None,
        _ => Some(subscription::without_id(&notification)),
    }
}

impl std::fmt::Debug for Hearing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hearing").field("deaf", &matches!(self.state, State::Deaf)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::fake_core::Listened;

    const ROOM: Room = Room { messages: 8, bytes: 1000 };

    /// A core that refuses the first `refusals`, and tells those it does not at once that tools have
    /// changed. How often it was asked.
    fn reluctant(refusals: usize) -> (Arc<Listened>, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        let core = Listened::by(move |Listen { interest, messages, .. }| {
            if count.fetch_add(1, Ordering::Relaxed) < refusals {
                return Err(RpcError::new(-31001, "as asked"));
            }
            assert!(messages.try_send(ServerMessage::Notification(Notification::new(Method::ToolsChanged, None))));
            Ok(Listening::new(interest, messages))
        });
        (core, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_core_refuses_is_asked_for_again() {
        let (core, asked) = reluctant(4);
        let (session, mut hearing) = (core.session(), Hearing::default());
        let opened = hearing.begin(&core, &session, ROOM).unwrap();
        let began = Instant::now();
        let mut keep = async |patience| {
            timeout(patience, poll_fn(|cx| hearing.poll_keep(&session, cx))).await.unwrap_err();
        };
        keep(Duration::ZERO).await;
        assert!(opened.is_cancelled(), "nobody waits for the second time");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        keep(Duration::from_secs(60)).await;
        assert_eq!(asked.load(Ordering::Relaxed), 5);
        let text = poll_fn(|cx| hearing.poll_next(&session, cx)).await;
        assert!(text.as_text().contains("tools/list_changed") && began.elapsed() == Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_opens_another_stream_need_not_wait_for_that() {
        let (core, asked) = reluctant(1);
        let (session, mut hearing) = (core.session(), Hearing::default());
        for times in 1..=3 {
            let opened = hearing.begin(&core, &session, ROOM);
            timeout(Duration::ZERO, poll_fn(|cx| hearing.poll_keep(&session, cx))).await.unwrap_err();
            assert_eq!(asked.load(Ordering::Relaxed), times.min(2));
            assert_eq!(opened.is_some_and(|opened| opened.is_cancelled()), times < 3);
        }
    }
}
