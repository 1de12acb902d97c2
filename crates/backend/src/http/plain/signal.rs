//! One waker for all that a connection waits for, whoever attends to it at the time.
//!
//! What happens while the connection is being polled, such as a response arriving in the poll that
//! reads it, wakes nobody.
//!
//! Must not know: what a connection is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Nothing has happened since somebody began to attend.
const ATTENDED: u8 = 0;
/// Something has.
const RAISED: u8 = 1;
/// Somebody is to be woken when something does.
const WAITING: u8 = 2;
/// How often in a row is polled what has something to do each time.
const ROUNDS: usize = 4;

/// See the module. The waker is made of an `Arc` of it.
#[derive(Default)]
pub(super) struct Signal {
    phase: AtomicU8,
    whom: AtomicWaker,
}

impl Signal {
    /// Somebody will poll at once: nobody is to be woken before.
    pub(super) fn attend(&self) {
        self.phase.store(ATTENDED, Ordering::Release);
    }

    /// Polls `step` with `own`, the waker of this signal, until it is ready or there is nothing more to
    /// do but wait. Then whoever polls this is woken when something happens. `step` is left alone while
    /// it waits and nothing has happened.
    pub(super) fn attend_to<T>(
        &self,
        own: &Waker,
        cx: &mut Context<'_>,
        mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if self.phase.load(Ordering::Acquire) == WAITING && !self.rest(cx.waker()) {
            return Poll::Pending;
        }
        for _ in 0..ROUNDS {
            self.attend();
            if let Poll::Ready(outcome) = step(&mut Context::from_waker(own)) {
                return Poll::Ready(outcome);
            }
            if !self.rest(cx.waker()) {
                return Poll::Pending;
            }
        }
        // There is more to do, but it is the turn of others.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Has `whom` woken when something happens. Says whether that is so already.
    pub(super) fn rest(&self, whom: &Waker) -> bool {
        self.whom.register(whom);
        self.phase.compare_exchange(ATTENDED, WAITING, Ordering::AcqRel, Ordering::Acquire) == Err(RAISED)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.phase.swap(RAISED, Ordering::AcqRel) == WAITING {
            self.whom.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn parts() -> (Arc<Signal>, Waker, Arc<Counter>, Waker) {
        let (signal, counter) = (Arc::<Signal>::default(), Arc::<Counter>::default());
        let (own, others) = (Arc::clone(&signal).into(), Arc::clone(&counter).into());
        (signal, own, counter, others)
    }

    #[test]
    fn whoever_waits_is_woken_once() {
        let (signal, own, counter, task) = parts();
        let mut cx = Context::from_waker(&task);
        assert!(signal.attend_to(&own, &mut cx, |_| Poll::<()>::Pending).is_pending());
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        own.wake_by_ref();
        own.wake_by_ref();
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_waits_is_left_alone_until_something_happens() {
        let (signal, own, _, task) = parts();
        let mut polled = 0;
        for happens in [false, false, true] {
            if happens {
                own.wake_by_ref();
            }
            let outcome = signal.attend_to(&own, &mut Context::from_waker(&task), |_| {
                polled += 1;
                Poll::<()>::Pending
            });
            assert!(outcome.is_pending());
        }
        assert_eq!(polled, 2);
    }

    #[test]
    fn what_happens_meanwhile_is_seen_without_a_wake() {
        let (signal, own, counter, task) = parts();
        let mut rounds = 0;
        let outcome = signal.attend_to(&own, &mut Context::from_waker(&task), |cx| {
            rounds += 1;
            cx.waker().wake_by_ref();
            if rounds == 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        assert!(outcome.is_ready());
        assert_eq!((rounds, counter.0.load(Ordering::Relaxed)), (2, 0));
    }

    #[test]
    fn what_never_rests_lets_others_have_their_turn() {
        let (signal, own, counter, task) = parts();
        let outcome = signal.attend_to(&own, &mut Context::from_waker(&task), |cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(outcome.is_pending());
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_last_to_rest_is_woken_and_nobody_before_that() {
        let (signal, own, counter, keeper) = parts();
        signal.attend();
        own.wake_by_ref();
        assert!(signal.rest(&keeper), "something has happened");
        signal.attend();
        assert!(!signal.rest(&keeper));
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        own.wake_by_ref();
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }
}
