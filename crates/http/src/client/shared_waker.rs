//! A single waker for everything that a connection waits for. It wakes the task that currently
//! polls the connection.
//!
//! A connection changes hands with each request. With the tasks' own wakers, each change would have
//! to poll hyper's connection again, and writing a request would wake the reaper. A response that
//! arrives in the very poll that reads it would have its task polled twice.
//!
//! `cargo test -p fanlight-http --lib --features loom loom` checks the interleavings of polls,
//! wake-ups and changes of hands.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

#[cfg(not(all(test, feature = "loom")))]
use futures_util::task::AtomicWaker;
#[cfg(all(test, feature = "loom"))]
use loom::{future::AtomicWaker, sync::atomic::AtomicU8, sync::atomic::Ordering};
#[cfg(not(all(test, feature = "loom")))]
use std::sync::atomic::{AtomicU8, Ordering};

/// The connection is being polled, and no event has come since [`SharedWaker::begin_poll`].
const POLLING: u8 = 0;
/// An event has come that no poll has seen.
const WOKEN: u8 = 1;
/// No poll is in progress; the next event wakes the task.
const WAITING: u8 = 2;
/// How often a connection with an event after each poll is polled before other tasks get a turn.
const ROUNDS: usize = 4;

/// The shared state; its waker is made from an `Arc` of it.
pub(crate) struct SharedWaker {
    /// The state of the waker. Only an event sets `WOKEN`; only the polling task sets `POLLING` and
    /// `WAITING`. It becomes `WAITING` only after `task` was registered, and only from `POLLING`,
    /// so that no event in between is lost.
    phase: AtomicU8,
    /// The task that polled last. **Every** poll that ends pending registers it again, even one
    /// that finds nothing to do. An event of another thread may have taken it before its wake-up is
    /// visible here.
    task: AtomicWaker,
}

impl Default for SharedWaker {
    fn default() -> Self {
        Self {
            phase: AtomicU8::new(POLLING),
            task: AtomicWaker::new(),
        }
    }
}

impl SharedWaker {
    /// Announces a poll: events until its end wake no task.
    pub(crate) fn begin_poll(&self) {
        // Not a store, which the processor may delay until after the poll's loads: it could then
        // overwrite an event that the poll has not seen.
        self.phase.swap(POLLING, Ordering::AcqRel);
    }

    /// Polls `step` with `own`, this waker, until it is ready or no event is left. A pending result
    /// means that the next event wakes `cx`. Without an event since the last poll, `step` is not
    /// polled.
    pub(crate) fn poll<T>(
        &self,
        own: &Waker,
        cx: &mut Context<'_>,
        mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if self.phase.load(Ordering::Acquire) == WAITING && !self.end_poll(cx.waker()) {
            return Poll::Pending;
        }
        for _ in 0..ROUNDS {
            self.begin_poll();
            if let Poll::Ready(outcome) = step(&mut Context::from_waker(own)) {
                return Poll::Ready(outcome);
            }
            if !self.end_poll(cx.waker()) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Makes the next event wake `task`. Returns whether there has already been one; `task` is not
    /// woken then.
    pub(crate) fn end_poll(&self, task: &Waker) -> bool {
        #[cfg(not(all(test, feature = "loom")))]
        self.task.register(task);
        #[cfg(all(test, feature = "loom"))]
        self.task.register_by_ref(task);
        self.phase
            .compare_exchange(POLLING, WAITING, Ordering::AcqRel, Ordering::Acquire)
            == Err(WOKEN)
    }
}

impl Wake for SharedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.phase.swap(WOKEN, Ordering::AcqRel) == WAITING {
            self.task.wake();
        }
    }
}

#[cfg(all(test, feature = "loom"))]
mod loom_tests {
    use std::future::poll_fn;

    use loom::future::block_on;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;

    /// Explores the interleavings with at most three preemptions; all of them would take hours.
    fn explore(test: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(test);
    }

    /// Waits until `events` has reached `number`. loom reports a deadlock if a wake-up is lost.
    fn wait_for(shared: &SharedWaker, own: &Waker, events: &AtomicUsize, number: usize) {
        block_on(poll_fn(|cx| {
            shared.poll(own, cx, |_| {
                if events.load(Ordering::Acquire) >= number {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
        }));
    }

    fn event(own: &Waker, events: &AtomicUsize) {
        events.fetch_add(1, Ordering::Release);
        own.wake_by_ref();
    }

    #[test]
    fn loom_events_of_two_threads_wake_the_task() {
        explore(|| {
            let (shared, events) = (Arc::<SharedWaker>::default(), Arc::new(AtomicUsize::new(0)));
            let own: Waker = Arc::clone(&shared).into();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (own, events) = (own.clone(), Arc::clone(&events));
                    thread::spawn(move || event(&own, &events))
                })
                .collect();
            wait_for(&shared, &own, &events, 2);
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        });
    }

    /// An interleaving that made a waiting task deaf in other code. The task is polled for another
    /// reason between the change of the phase and the wake-up, and again by that late wake-up.
    #[test]
    fn loom_events_wake_a_task_that_is_polled_for_other_reasons() {
        explore(|| {
            let (shared, events) = (Arc::<SharedWaker>::default(), Arc::new(AtomicUsize::new(0)));
            let own: Waker = Arc::clone(&shared).into();
            let other = {
                let (own, events) = (own.clone(), Arc::clone(&events));
                thread::spawn(move || {
                    event(&own, &events);
                    event(&own, &events);
                })
            };
            let mut polls = 0;
            block_on(poll_fn(|cx| {
                polls += 1;
                if polls <= 2 {
                    cx.waker().wake_by_ref();
                }
                shared.poll(&own, cx, |_| {
                    if events.load(Ordering::Acquire) == 2 {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
            }));
            other.join().unwrap();
        });
    }

    /// A request gives a connection back, and the reaper waits for its end.
    #[test]
    fn loom_events_after_a_change_of_hands_wake_the_new_task() {
        explore(|| {
            let (shared, events) = (Arc::<SharedWaker>::default(), Arc::new(AtomicUsize::new(0)));
            let own: Waker = Arc::clone(&shared).into();
            let other = {
                let (own, events) = (own.clone(), Arc::clone(&events));
                thread::spawn(move || event(&own, &events))
            };
            // The first task polls once and leaves.
            let first = shared.poll(&own, &mut Context::from_waker(Waker::noop()), |_| {
                if events.load(Ordering::Acquire) == 1 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            });
            if first.is_pending() {
                wait_for(&shared, &own, &events, 1);
            }
            other.join().unwrap();
        });
    }
}

#[cfg(all(test, not(feature = "loom")))]
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

    fn parts() -> (Arc<SharedWaker>, Waker, Arc<Counter>, Waker) {
        let (shared, counter) = (Arc::<SharedWaker>::default(), Arc::<Counter>::default());
        let (own, task) = (Arc::clone(&shared).into(), Arc::clone(&counter).into());
        (shared, own, counter, task)
    }

    #[test]
    fn waiting_task_is_woken_once() {
        let (shared, own, counter, task) = parts();
        let mut cx = Context::from_waker(&task);
        assert!(
            shared
                .poll(&own, &mut cx, |_| Poll::<()>::Pending)
                .is_pending()
        );
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        own.wake_by_ref();
        own.wake_by_ref();
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn step_is_polled_again_only_after_an_event() {
        let (shared, own, _, task) = parts();
        let mut polled = 0;
        for happens in [false, false, true] {
            if happens {
                own.wake_by_ref();
            }
            let outcome = shared.poll(&own, &mut Context::from_waker(&task), |_| {
                polled += 1;
                Poll::<()>::Pending
            });
            assert!(outcome.is_pending());
        }
        assert_eq!(polled, 2);
    }

    #[test]
    fn event_during_a_poll_is_seen_without_waking_the_task() {
        let (shared, own, counter, task) = parts();
        let mut rounds = 0;
        let outcome = shared.poll(&own, &mut Context::from_waker(&task), |cx| {
            rounds += 1;
            cx.waker().wake_by_ref();
            if rounds == 2 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        assert!(outcome.is_ready());
        assert_eq!((rounds, counter.0.load(Ordering::Relaxed)), (2, 0));
    }

    #[test]
    fn step_with_endless_events_gives_other_tasks_a_turn() {
        let (shared, own, counter, task) = parts();
        let outcome = shared.poll(&own, &mut Context::from_waker(&task), |cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(outcome.is_pending());
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn task_registered_last_is_the_one_woken() {
        let (shared, own, counter, reaper) = parts();
        shared.begin_poll();
        own.wake_by_ref();
        assert!(shared.end_poll(&reaper), "an event has come");
        shared.begin_poll();
        assert!(!shared.end_poll(&reaper));
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        own.wake_by_ref();
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }
}
