//! The bounded way from a backend to the client of one call, or to one listener.
//!
//! Most calls are answered without a word before, and most listeners wait for long: a way takes next
//! to no room until something is sent on it.
//!
//! Must not know: what the messages say.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::sync::Semaphore;
use tokio::task::coop;

use crate::client::ServerMessage;

/// Room for so many messages is kept by a way that is empty.
const SPARE: usize = 4;

/// The bounded way from a backend to the client of one call, or to one listener, in order.
#[derive(Clone, Default)]
pub struct ServerMessages(Option<Outlet>, Option<Arc<Map>>);

/// What becomes of a message on its way; `None` if it goes no further.
type Map = dyn Fn(ServerMessage) -> Option<ServerMessage> + Send + Sync;

/// The other end of a way.
pub struct Inbox(Arc<Way>);

/// One of the senders.
struct Outlet(Arc<Way>);

struct Way {
    /// Places for messages that have not been taken; closed once the inbox is gone.
    places: Semaphore,
    senders: AtomicUsize,
    /// Whether one of the two sides is gone.
    ended: AtomicBool,
    /// Whether there is a message. Written under the lock; looked at without it, since for most calls there never is one.
    has_any: AtomicBool,
    /// Whether whoever takes messages waits. While that one looks for messages, or does what brings them, it need not
    /// be woken: it looks again before it waits. Becomes true under the lock.
    waits: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Takes no room until something is sent.
    queue: VecDeque<ServerMessage>,
    /// Of whoever takes messages.
    waker: Option<Waker>,
}

impl ServerMessages {
    /// A way that holds at most `capacity` messages, and its other end.
    #[must_use]
    pub fn channel(capacity: usize) -> (Self, Inbox) {
        let places = Semaphore::new(capacity.clamp(1, Semaphore::MAX_PERMITS));
        let way = Arc::new(Way {
            places,
            senders: AtomicUsize::new(1),
            ended: AtomicBool::new(false),
            has_any: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            state: Mutex::default(),
        });
        (Self(Some(Outlet(Arc::clone(&way))), None), Inbox(way))
    }

    /// A way to nobody: notifications are dropped and questions stay unanswered.
    #[must_use]
    pub fn nowhere() -> Self {
        Self(None, None)
    }

    /// The same way, on which each message first goes through `map`, which may change it or keep
    /// it. Called by the transport for each message as it is sent, so it must not wait for
    /// anything. A way to nobody calls it for nothing.
    #[must_use]
    pub fn mapped(&self, map: impl Fn(ServerMessage) -> Option<ServerMessage> + Send + Sync + 'static) -> Self {
        let map: Arc<Map> = match self.1.clone() {
            None => Arc::new(map),
            Some(next) => Arc::new(move |message| next(map(message)?)),
        };
        Self(self.0.clone(), Some(map))
    }

    /// Whether there is somebody at the other end.
    pub(crate) fn reach_client(&self) -> bool {
        self.0.as_ref().is_some_and(|outlet| !outlet.0.ended.load(Ordering::Acquire))
    }

    /// Sends, waiting while the way is full. For transports on which waiting holds up nobody else.
    pub async fn send(&self, message: ServerMessage) {
        let Some((way, message)) = self.sending(message) else { return };
        // An error means that the client has gone, and its call is about to be cancelled.
        if let Ok(place) = way.places.acquire().await {
            place.forget();
            way.push(message);
        }
    }

    /// Sends unless the way is full; says whether it was sent or nobody wants it. For transports
    /// that several clients share, where waiting for one would hold up the others.
    pub fn try_send(&self, message: ServerMessage) -> bool {
        let Some((way, message)) = self.sending(message) else { return true };
        match way.places.try_acquire() {
            Ok(place) => {
                place.forget();
                way.push(message);
                true
            }
            Err(_) => way.places.is_closed(),
        }
    }

    /// The message as it goes, and where; `None` if it is for nobody.
    fn sending(&self, message: ServerMessage) -> Option<(&Way, ServerMessage)> {
        let outlet = self.0.as_ref()?;
        let message = match &self.1 {
            Some(map) => map(message)?,
            None => message,
        };
        Some((&outlet.0, message))
    }
}

impl Inbox {
    /// The next message, once there is one; `None` once all senders are gone.
    pub async fn recv(&mut self) -> Option<ServerMessage> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next message; `None` once all senders are gone.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServerMessage>> {
        // Whoever sends faster than is taken would keep others from their turn.
        let turn = ready!(coop::poll_proceed(cx));
        let mut state = self.0.lock();
        if let Some(message) = self.0.take(&mut state) {
            turn.made_progress();
            return Poll::Ready(Some(message));
        }
        if self.0.ended.load(Ordering::Acquire) {
            turn.made_progress();
            return Poll::Ready(None);
        }
        self.0.waits.store(true, Ordering::Release);
        if state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let before = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Whether no message is there to be taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().queue.is_empty()
    }

    /// The next message, if it is there already. Whoever asks is not woken for messages until it waits
    /// for them by [`Inbox::poll_recv`] again.
    pub fn try_recv(&mut self) -> Option<ServerMessage> {
        self.0.waits.store(false, Ordering::Release);
        if !self.0.has_any.load(Ordering::Acquire) {
            return None;
        }
        self.0.take(&mut self.0.lock())
    }
}

impl Way {
    /// Puts in a message that has a place.
    fn push(&self, message: ServerMessage) {
        let mut state = self.lock();
        if self.ended.load(Ordering::Acquire) {
            // It may do something when dropped, and is dropped without the lock.
            drop(state);
            return;
        }
        state.queue.push_back(message);
        self.has_any.store(true, Ordering::Release);
        let waker = if self.waits.swap(false, Ordering::AcqRel) { state.waker.clone() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn take(&self, state: &mut State) -> Option<ServerMessage> {
        let message = state.queue.pop_front()?;
        self.waits.store(false, Ordering::Release);
        self.has_any.store(!state.queue.is_empty(), Ordering::Release);
        // What lasts is not to hold more than it needs.
        if state.queue.is_empty() && state.queue.capacity() > SPARE {
            state.queue = VecDeque::new();
        }
        self.places.add_permits(1);
        Some(message)
    }

    /// Nothing more is sent; what has been sent is still to be taken. Returns whom that concerned, and
    /// whether it waits: else it looks again before it does.
    fn end(&self) -> (Option<Waker>, bool) {
        let mut state = self.lock();
        self.ended.store(true, Ordering::Release);
        (state.waker.take(), self.waits.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Outlet {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1
            && let (Some(waker), true) = self.0.end()
        {
            waker.wake();
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // As a rule its senders have gone before.
        if !self.0.ended.load(Ordering::Acquire) {
            drop(self.0.end());
            self.0.places.close();
        }
        // Nothing is put in any more. Whatever is in it may do something when dropped, and is dropped without the lock.
        if self.0.has_any.load(Ordering::Acquire) {
            let queue = std::mem::take(&mut self.0.lock().queue);
            drop(queue);
        }
    }
}

impl std::fmt::Debug for ServerMessages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let to_somebody = self.0.is_some();
        f.debug_struct("ServerMessages").field("to_somebody", &to_somebody).field("mapped", &self.1.is_some()).finish()
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("waiting", &self.0.lock().queue.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;
    use std::time::Duration;

    use fanlight_protocol::{Method, Notification};

    use super::*;

    fn message(name: &str) -> ServerMessage {
        ServerMessage::Notification(Notification::new(Method::from_name(name), None))
    }

    fn name(message: Option<ServerMessage>) -> Option<String> {
        match message? {
            ServerMessage::Notification(notification) => Some(notification.method.as_str().to_owned()),
            other => panic!("unexpected {other:?}"),
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_the_first_message_gets_it_and_all_after_it() {
        let (messages, mut inbox) = ServerMessages::channel(2);
        let other = messages.mapped(|_| Some(message("mapped")));
        let taken = tokio::spawn(async move {
            let mut names = Vec::new();
            while let Some(name) = name(inbox.recv().await) {
                names.push(name);
            }
            names
        });
        tokio::task::yield_now().await;
        messages.send(message("a")).await;
        drop(messages);
        tokio::task::yield_now().await;
        other.send(message("b")).await;
        other.send(message("c")).await;
        drop(other);
        assert_eq!(taken.await.unwrap(), ["a", "mapped", "mapped"]);
    }

    #[tokio::test]
    async fn what_was_sent_is_there_though_its_sender_has_gone() {
        let (messages, mut inbox) = ServerMessages::channel(1);
        assert!(inbox.try_recv().is_none());
        assert!(messages.try_send(message("a")));
        assert!(!messages.try_send(message("b")), "it is full");
        drop(messages);
        assert_eq!(name(inbox.try_recv()).as_deref(), Some("a"));
        assert!(inbox.recv().await.is_none());
    }

    #[tokio::test]
    async fn the_end_is_noticed_where_nothing_was_sent() {
        let (messages, mut inbox) = ServerMessages::channel(1);
        let ended = tokio::spawn(async move { inbox.recv().await.is_none() });
        tokio::task::yield_now().await;
        drop(messages.clone());
        tokio::task::yield_now().await;
        assert!(!ended.is_finished());
        drop(messages);
        assert!(ended.await.unwrap());
    }

    #[test]
    fn the_end_wakes_whoever_waits_and_nobody_who_has_looked_since() {
        #[derive(Default)]
        struct Counter(AtomicUsize);

        impl Wake for Counter {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        for (looks, woken) in [(false, 1), (true, 0)] {
            let counter = Arc::<Counter>::default();
            let waker = Waker::from(Arc::clone(&counter));
            let mut cx = Context::from_waker(&waker);
            let (messages, mut inbox) = ServerMessages::channel(1);
            assert!(inbox.poll_recv(&mut cx).is_pending());
            if looks {
                assert!(inbox.try_recv().is_none());
            }
            drop(messages);
            assert_eq!(counter.0.load(Ordering::Relaxed), woken, "looks: {looks}");
            // Either way, whoever looks again learns of it.
            assert!(matches!(inbox.poll_recv(&mut cx), Poll::Ready(None)));
            assert_eq!(Arc::strong_count(&counter), 2, "the way keeps no waker after its end");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_way_to_nobody_takes_everything_and_waits_for_nothing() {
        let (messages, inbox) = ServerMessages::channel(1);
        assert!(messages.reach_client());
        assert!(messages.try_send(message("a")));
        let waits = {
            let messages = messages.clone();
            tokio::spawn(async move { messages.send(message("b")).await })
        };
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(inbox);
        waits.await.unwrap();
        assert!(!messages.reach_client() && messages.try_send(message("c")));
        tokio::time::timeout(Duration::from_secs(1), messages.send(message("d"))).await.unwrap();
        assert!(!ServerMessages::nowhere().reach_client() && ServerMessages::nowhere().try_send(message("e")));
    }
}
