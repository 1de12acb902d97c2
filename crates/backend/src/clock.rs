//! How far a call has come, and how long it may go on: its time stands still while the server
//! waits for an answer of the client, since then a person may be thinking.
//!
//! Must not know: what is asked.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
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
    changed: AtomicWaker,
    up: AtomicBool,
}

/// While this lives, the clock stands still.
pub(crate) struct Stopped(Arc<Clock>);

impl Clock {
    /// Runs a future for at most `limit`, not counting the time while the clock stands still.
    /// `None` if the time was up first. One caller at a time. The future is pinned by the caller: here
    /// it would have a second place in the future that this makes.
    pub(crate) fn bound<T>(
        &self,
        limit: Duration,
        mut future: Pin<&mut (impl Future<Output = T> + Send)>,
    ) -> impl Future<Output = Option<T>> + Send {
        async move {
            let mut timer = pin!(sleep(limit));
            // What is left, while the clock stands still.
            let mut left = None;
            poll_fn(|cx| {
                if let Poll::Ready(outcome) = future.as_mut().poll(cx) {
                    return Poll::Ready(Some(outcome));
                }
                self.changed.register(cx.waker());
                match (self.stops.load(Ordering::Acquire), left) {
                    (0, Some(rest)) => {
                        timer.as_mut().reset(Instant::now() + rest);
                        left = None;
                    }
                    (1.., None) => left = Some(timer.deadline().saturating_duration_since(Instant::now())),
                    _ => {}
                }
                if left.is_none() && timer.as_mut().poll(cx).is_ready() {
                    self.up.store(true, Ordering::Relaxed);
                    return Poll::Ready(None);
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
        self.changed.wake();
        Some(Stopped(Arc::clone(self)))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.stops.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

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
        assert_eq!(clock.bound(LIMIT, pin!(stops)).await, None);
        assert_eq!(began.elapsed().as_secs(), 210);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unstopped_clock_is_a_timeout() {
        let clock = Clock::default();
        let began = Instant::now();
        assert_eq!(clock.bound(LIMIT, pin!(pending::<()>())).await, None);
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
        assert_eq!(clock.bound(LIMIT, pin!(async { 7 })).await, Some(7));
    }
}
