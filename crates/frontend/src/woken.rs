//! Asking what has not been woken costs nothing: whoever is polled for several reasons passes the
//! poll on only to what has something to do.
//!
//! A connection asks a stream for more after each event and after each write, and what a stream asks
//! in turn is the whole way to a server.
//!
//! Must not know: what is polled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Notes whether something has been woken since it was polled last.
#[derive(Debug)]
pub(crate) struct Woken {
    state: Arc<State>,
    waker: Waker,
}

#[derive(Debug)]
struct State {
    woken: AtomicBool,
    /// Of whoever polls. Kept until it is woken.
    parent: AtomicWaker,
    /// Which one that is, by its address: as long as it is kept, no other has that.
    whose: AtomicUsize,
}

impl Woken {
    /// For what has not been polled yet, or with another waker.
    pub(crate) fn new() -> Self {
        let state =
            Arc::new(State { woken: AtomicBool::new(true), parent: AtomicWaker::new(), whose: AtomicUsize::new(0) });
        Self { waker: Waker::from(Arc::clone(&state)), state }
    }

    /// Polls by `poll`, always with the same waker, if that has been woken since `poll` was pending.
    pub(crate) fn poll<T>(&self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        if !self.look(cx) {
            return Poll::Pending;
        }
        let polled = poll(&mut self.context());
        if polled.is_ready() {
            self.again();
        }
        polled
    }

    /// Whether to poll: something has been woken since the last look. If not, whoever looks is woken
    /// once it is.
    pub(crate) fn look(&self, cx: &mut Context<'_>) -> bool {
        let state = &self.state;
        // Only who polls changes it.
        let whose = cx.waker().data().addr();
        if state.whose.load(Ordering::Relaxed) == whose && !state.woken.load(Ordering::Acquire) {
            return false;
        }
        state.whose.store(whose, Ordering::Relaxed);
        // Before the look, so that no waking after it is missed.
        state.parent.register(cx.waker());
        state.woken.swap(false, Ordering::AcqRel)
    }

    /// What to poll with.
    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    /// There may be more, though nothing is woken.
    pub(crate) fn again(&self) {
        self.state.woken.store(true, Ordering::Release);
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Whoever polls has been woken before, and has not looked since.
        if !self.is_flagged() {
            self.parent.wake();
        }
    }
}

impl State {
    /// Sets the flag; returns whether it was set before.
    fn is_flagged(&self) -> bool {
        self.woken.swap(true, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_has_not_been_woken_is_not_polled() {
        let (woken, polls) = (Woken::new(), Cell::new(0));
        let inner = Cell::new(None::<Waker>);
        let poll = |cx: &mut Context<'_>| {
            woken.poll(cx, |cx| {
                polls.set(polls.get() + 1);
                inner.set(Some(cx.waker().clone()));
                if polls.get() == 3 { Poll::Ready(()) } else { Poll::Pending }
            })
        };
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(poll(cx).is_pending() && poll(cx).is_pending());
        assert_eq!(polls.get(), 1);
        inner.take().unwrap().wake();
        assert!(poll(cx).is_pending() && poll(cx).is_pending());
        assert_eq!(polls.get(), 2);
        inner.take().unwrap().wake_by_ref();
        assert!(poll(cx).is_ready());
        // There may be more after something.
        assert!(poll(cx).is_pending());
        assert_eq!(polls.get(), 4);
    }

    #[tokio::test]
    async fn whoever_polls_is_woken_be_it_another_task() {
        let woken = Arc::new(Woken::new());
        let (sender, receiver) = oneshot::channel::<()>();
        let receiver = Arc::new(std::sync::Mutex::new(receiver));
        let wait = || {
            let (woken, receiver) = (Arc::clone(&woken), Arc::clone(&receiver));
            poll_fn(move |cx| {
                woken
                    .poll(cx, |cx| std::pin::Pin::new(&mut *receiver.lock().unwrap()).poll(cx))
                    .map(|sent| sent.unwrap())
            })
        };
        let first = tokio::spawn(wait());
        tokio::task::yield_now().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let second = tokio::spawn(wait());
        tokio::task::yield_now().await;
        sender.send(()).unwrap();
        second.await.unwrap();
    }

    /// One thread has set the flag and is preempted before it wakes the parent; the parent is polled for another
    /// reason in between.
    #[test]
    fn woken_keeps_a_wake_that_is_delayed_between_flag_and_parent() {
        let (woken, wakes) = (Woken::new(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = &mut Context::from_waker(&waker);
        let mut polls = 0;
        let mut poll = |cx: &mut Context<'_>| {
            woken.poll(cx, |_| {
                polls += 1;
                Poll::<()>::Pending
            })
        };
        assert!(poll(cx).is_pending());
        let wakes_parent = !woken.state.is_flagged();
        assert!(wakes_parent);
        assert!(poll(cx).is_pending());
        woken.state.parent.wake();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        // The delayed wake has the parent poll again, which finds nothing new.
        assert!(poll(cx).is_pending());
        // Whatever comes next has to reach the parent.
        woken.context().waker().wake_by_ref();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 2, "the wake after the delayed one is lost");
        assert!(poll(cx).is_pending());
        assert_eq!(polls, 3);
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}
