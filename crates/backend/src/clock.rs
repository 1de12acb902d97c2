//! How far a call has come, and how long it may go on: its time stands still while the server
//! waits for an answer of the client, since then a person may be thinking; and it ends with its backend.
//!
//! Nearly all calls are answered before any of this matters, so what could end one is looked at when it
//! has happened, and not each time a call is polled.
//!
//! Must not know: what is asked.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use slab::Slab;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};

/// How far a call has come.
#[derive(Default)]
pub(crate) struct Course {
    /// Whether it may be running at the server.
    pub(crate) sent: AtomicBool,
    /// The id it was sent with last, which is its progress token as well.
    pub(crate) id: AtomicI64,
    /// How often the request that is sent at the moment has been.
    pub(crate) attempts: AtomicU32,
    /// The progress token of an earlier request, if its progress goes on with this one (2025-11-25
    /// basic/utilities/tasks, Task Progress Notifications). Then this one has no token of its own.
    pub(crate) carries_on: Option<i64>,
    pub(crate) clock: Arc<Clock>,
}

/// The time of one call.
#[derive(Default)]
pub(crate) struct Clock {
    stops: AtomicUsize,
    /// The backend has ended.
    ended: AtomicBool,
    /// How often either has changed.
    changes: AtomicUsize,
    changed: AtomicWaker,
    up: AtomicBool,
}

/// Why a call did not come to its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Its time was up.
    Late,
    /// Its backend has ended.
    Ended,
}

/// While this lives, the clock stands still.
pub(crate) struct Stopped(Arc<Clock>);

impl Clock {
    /// Runs a future for at most `limit`, not counting the time while the clock stands still. One caller
    /// at a time. The future is pinned by the caller: here it would have a second place in the future
    /// that this makes.
    pub(crate) fn bound<T>(
        &self,
        limit: Duration,
        mut future: Pin<&mut (impl Future<Output = T> + Send)>,
    ) -> impl Future<Output = Result<T, Over>> + Send {
        async move {
            let mut timer = pin!(sleep(limit));
            // What is left, while the clock stands still.
            let mut left = None;
            // Who is woken, by the timer as well, and by which changes it has not been yet.
            let (mut whom, mut seen) = (None::<Waker>, 0);
            poll_fn(|cx| {
                if let Poll::Ready(outcome) = future.as_mut().poll(cx) {
                    return Poll::Ready(Ok(outcome));
                }
                let is_known = whom.as_ref().is_some_and(|whom| whom.will_wake(cx.waker()));
                if is_known && self.changes.load(Ordering::Acquire) == seen && !timer.is_elapsed() {
                    return Poll::Pending;
                }
                whom = Some(cx.waker().clone());
                // Before the look, so that no change after it is missed.
                self.changed.register(cx.waker());
                seen = self.changes.load(Ordering::Acquire);
                if self.ended.load(Ordering::Acquire) {
                    return Poll::Ready(Err(Over::Ended));
                }
                match (self.stops.load(Ordering::Acquire), left) {
                    (0, Some(rest)) => {
                        timer.as_mut().reset(Instant::now() + rest);
                        left = None;
                    }
                    (1.., None) => left = Some(timer.deadline().saturating_duration_since(Instant::now())),
                    _ => {}
                }
                // Registered with in any case, even where the task's turn is used up.
                if left.is_none() && Pin::new(&mut unconstrained(timer.as_mut())).poll(cx).is_ready() {
                    self.up.store(true, Ordering::Relaxed);
                    return Poll::Ready(Err(Over::Late));
                }
                Poll::Pending
            })
            .await
        }
    }

    /// Whether the time is up. It is before the future that was bound is dropped.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Stops the clock, unless it is stopped `most` times already.
    pub(crate) fn stop(self: &Arc<Self>, most: usize) -> Option<Stopped> {
        let one_more = |stops| (stops < most).then_some(stops + 1);
        self.stops.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        self.change();
        Some(Stopped(Arc::clone(self)))
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.wake();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.stops.fetch_sub(1, Ordering::AcqRel);
        self.0.change();
    }
}

/// The clocks of a backend's calls, by which they end with it.
#[derive(Default)]
pub(crate) struct Clocks(Mutex<Running>);

#[derive(Default)]
struct Running {
    clocks: Slab<Arc<Clock>>,
    ended: bool,
}

/// A call that has not ended.
pub(crate) struct Entered<'a> {
    clocks: &'a Clocks,
    key: usize,
}

impl Clocks {
    /// Lets a call end with the backend, until the result is dropped.
    pub(crate) fn enter(&self, clock: &Arc<Clock>) -> Entered<'_> {
        let mut running = self.lock();
        if running.ended {
            clock.ended.store(true, Ordering::Release);
        }
        Entered { clocks: self, key: running.clocks.insert(Arc::clone(clock)) }
    }

    /// Ends all calls, and those to come.
    pub(crate) fn end(&self) {
        let mut running = self.lock();
        running.ended = true;
        for (_, clock) in &running.clocks {
            clock.ended.store(true, Ordering::Release);
            clock.change();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // Nothing that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Dropped without the lock.
        let _clock = self.clocks.lock().clocks.try_remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One thread pauses the time, and is preempted between counting the change and waking. The call is
    /// polled meanwhile, and once more for the late wake-up. Then the backend ends.
    #[tokio::test(start_paused = true)]
    async fn end_of_the_backend_wakes_the_call_after_a_delayed_wake_of_a_pause() {
        let (clocks, clock) = (Clocks::default(), Arc::<Clock>::default());
        let _entered = clocks.enter(&clock);
        let wakes = Arc::<CountingWaker>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = &mut Context::from_waker(&waker);
        let mut answer = pin!(pending::<()>());
        let mut call = pin!(clock.bound(LIMIT, answer.as_mut()));
        assert!(call.as_mut().poll(cx).is_pending());
        clock.stops.fetch_add(1, Ordering::AcqRel);
        clock.changes.fetch_add(1, Ordering::Release);
        assert!(call.as_mut().poll(cx).is_pending());
        clock.changed.wake();
        assert_eq!(wakes.0.swap(0, Ordering::Relaxed), 1);
        assert!(call.as_mut().poll(cx).is_pending());
        clocks.end();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "the call is not told that its backend has ended");
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_anything_stops_it() {
        let clock = Arc::<Clock>::default();
        let began = Instant::now();
        let stops = async {
            sleep(Duration::from_secs(4)).await;
            let first = clock.stop(2).unwrap();
            sleep(Duration::from_secs(100)).await;
            let second = clock.stop(2).unwrap();
            assert!(clock.stop(2).is_none());
            drop(first);
            sleep(Duration::from_secs(100)).await;
            drop(second);
            pending::<()>().await;
        };
        assert_eq!(clock.bound(LIMIT, pin!(stops)).await, Err(Over::Late));
        assert_eq!(began.elapsed().as_secs(), 210);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unstopped_clock_is_a_timeout() {
        let clock = Clock::default();
        let began = Instant::now();
        assert_eq!(clock.bound(LIMIT, pin!(pending::<()>())).await, Err(Over::Late));
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
        assert_eq!(clock.bound(LIMIT, pin!(async { 7 })).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_end_with_their_backend() {
        let (clocks, clock) = (Clocks::default(), Arc::<Clock>::default());
        let _entered = clocks.enter(&clock);
        drop(clocks.enter(&Arc::default()));
        let began = Instant::now();
        let ended = async {
            // Polled meanwhile without anything having changed.
            sleep(Duration::from_secs(1)).await;
            let _stopped = clock.stop(1);
            sleep(Duration::from_secs(1)).await;
            clocks.end();
            pending::<()>().await;
        };
        assert_eq!(clock.bound(LIMIT, pin!(ended)).await, Err(Over::Ended));
        assert_eq!(began.elapsed().as_secs(), 2);
        let late = Arc::<Clock>::default();
        let _entered = clocks.enter(&late);
        assert_eq!(late.bound(LIMIT, pin!(pending::<()>())).await, Err(Over::Ended));
    }
}
