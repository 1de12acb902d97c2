//! The progress of a call and its time limit, which can be paused.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::concurrency::{CallPermit, Reacquiring};
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};

/// The progress of one call.
#[derive(Default)]
pub(crate) struct CallProgress {
    /// The id of the call's last request, which is also the progress token.
    pub(crate) id: AtomicI64,
    /// The number of times that the current request has been sent.
    pub(crate) attempts: AtomicU32,
    /// The number of earlier requests for the same call.
    pub(crate) earlier: u32,
    /// The progress token of an earlier request that this one continues (2025-11-25
    /// basic/utilities/tasks, Task Progress Notifications). This request then has no token of its
    /// own.
    pub(crate) carries_on: Option<i64>,
    pub(crate) deadline: Arc<PausableDeadline>,
}

/// The time limit of one call. It is paused while the server waits for the client, since a person
/// may be thinking.
#[derive(Default)]
pub(crate) struct PausableDeadline {
    /// The number of current [`Pause`]s.
    pauses: AtomicUsize,
    /// The number of pauses so far.
    paused: AtomicUsize,
    /// Notified after each change of `pauses`. Only [`PausableDeadline::limit`] waits for it, so a
    /// notification between two waits is kept for the next.
    changed: Notify,
    expired: AtomicBool,
    /// Whether it expired during a pause, while the server was waiting for the client.
    expired_in_pause: AtomicBool,
    /// Whether the request may be running at the server, because part of it may have been written.
    sent: AtomicBool,
    /// The time at which the limit is exceeded without a pause.
    due: OnceLock<Instant>,
    /// The call's permit, which is given back during pauses.
    pub(crate) permit: CallPermit,
}

/// The time limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallLimits {
    /// The limit without pauses.
    pub(crate) active: Duration,
    /// The limit including pauses: a server that keeps asking the client cannot keep a call alive
    /// for longer.
    pub(crate) total: Duration,
}

/// The limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired(pub(crate) Duration);

/// Limits for the pauses of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PauseLimits {
    /// The maximum number of concurrent pauses.
    pub(crate) open: usize,
    /// The maximum number over the whole call.
    pub(crate) ever: usize,
}

/// Pauses a deadline until it is dropped.
pub(crate) struct Pause(Arc<PausableDeadline>);

impl PausableDeadline {
    /// Runs a future within `limits`. At most one caller at a time. The caller pins the future,
    /// which would otherwise be stored twice.
    pub(crate) fn limit<T>(
        &self,
        limits: CallLimits,
        mut future: Pin<&mut (impl Future<Output = T> + Send)>,
    ) -> impl Future<Output = Result<T, Expired>> + Send {
        async move {
            let mut timer = pin!(sleep(limits.active));
            let _ = self.due.set(timer.deadline());
            let end = timer.deadline() + limits.total.saturating_sub(limits.active);
            // Set during a pause.
            let mut remaining = None;
            loop {
                let is_paused = self.is_paused();
                match remaining {
                    None if is_paused => {
                        remaining =
                            Some(timer.deadline().saturating_duration_since(Instant::now()));
                        timer.as_mut().reset(end);
                    }
                    Some(rest) if !is_paused => {
                        timer.as_mut().reset(end.min(Instant::now() + rest));
                        remaining = None;
                    }
                    _ => {}
                }
                tokio::select! {
                    biased;
                    outcome = future.as_mut() => return Ok(outcome),
                    () = self.changed.notified() => {}
                    // A server that always sends something uses up the task's budget, without which a
                    // timer is never ready.
                    () = unconstrained(timer.as_mut()) => {
                        self.expired_in_pause.store(remaining.is_some(), Ordering::Relaxed);
                        self.expired.store(true, Ordering::Relaxed);
                        let is_end = timer.deadline() == end && limits.total > limits.active;
                        return Err(Expired(if is_end { limits.total } else { limits.active }));
                    }
                }
            }
        }
    }

    /// Whether the server waits for the client.
    pub(crate) fn is_paused(&self) -> bool {
        self.pauses.load(Ordering::Acquire) > 0
    }

    /// Whether a call without pauses is over its limit, even if [`Self::limit`] has not noticed
    /// yet.
    pub(crate) fn is_over(&self) -> bool {
        self.due.get().is_some_and(|due| *due <= Instant::now())
    }

    /// Whether the limit was exceeded. Already true while the limited future is being dropped.
    pub(crate) fn has_expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    /// Whether the limit was exceeded while the server had the request and was not waiting for the
    /// client.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.has_expired() && self.is_sent() && !self.expired_in_pause.load(Ordering::Relaxed)
    }

    /// Whether the request may be running at the server.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    /// Records whether the request may be running at the server; returns the previous value.
    pub(crate) fn set_sent(&self, is_sent: bool) -> bool {
        self.sent.swap(is_sent, Ordering::AcqRel)
    }

    /// Pauses the deadline; `None` if that would exceed `limits`.
    pub(crate) fn pause(self: &Arc<Self>, limits: PauseLimits) -> Option<Pause> {
        let one_more = |most: usize| move |pauses: usize| (pauses < most).then_some(pauses + 1);
        self.paused
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more(limits.ever))
            .ok()?;
        self.pauses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more(limits.open))
            .ok()?;
        self.changed.notify_one();
        self.permit.give_back();
        Some(Pause(Arc::clone(self)))
    }
}

impl Pause {
    /// Prepares for the end of the pause. If it is the only one, the call must get a permit again
    /// before its server continues. If that takes time, the pause ends now, so that the wait
    /// counts.
    pub(crate) fn prepare_end(self) -> Result<Self, Continuing> {
        if self.0.pauses.load(Ordering::Acquire) > 1 {
            return Ok(self);
        }
        match self.0.permit.reacquire() {
            None => Ok(self),
            Some(reacquiring) => Err(Continuing {
                deadline: Arc::clone(&self.0),
                reacquiring,
            }),
        }
    }
}

/// A call that waits for a permit to continue.
pub(crate) struct Continuing {
    deadline: Arc<PausableDeadline>,
    reacquiring: Reacquiring,
}

impl Continuing {
    /// Ready once the call holds a permit.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.reacquiring
            .as_mut()
            .poll(cx)
            .map(|permit| self.deadline.permit.hold(permit))
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);
    const LIMITS: CallLimits = CallLimits {
        active: LIMIT,
        total: Duration::from_secs(1000),
    };

    const fn at_once(open: usize) -> PauseLimits {
        PauseLimits {
            open,
            ever: usize::MAX,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_does_not_pass_while_any_pause_exists() {
        let deadline = Arc::<PausableDeadline>::default();
        let began = Instant::now();
        let pauses = async {
            sleep(Duration::from_secs(4)).await;
            let first = deadline.pause(at_once(2)).unwrap();
            sleep(Duration::from_secs(100)).await;
            let second = deadline.pause(at_once(2)).unwrap();
            assert!(deadline.pause(at_once(2)).is_none());
            drop(first);
            sleep(Duration::from_secs(100)).await;
            drop(second);
            pending::<()>().await;
        };
        assert_eq!(
            deadline.limit(LIMITS, pin!(pauses)).await,
            Err(Expired(LIMIT))
        );
        assert_eq!(began.elapsed().as_secs(), 210);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_do_not_extend_the_total() {
        let total = Duration::from_secs(50);
        for (pause, between) in [(60, 1), (7, 3), (1000, 0)] {
            let deadline = Arc::<PausableDeadline>::default();
            let began = Instant::now();
            let pauses = async {
                loop {
                    let pause_now = deadline.pause(at_once(1));
                    sleep(Duration::from_secs(pause)).await;
                    drop(pause_now);
                    sleep(Duration::from_secs(between)).await;
                }
            };
            let outcome: Result<(), _> = deadline
                .limit(
                    CallLimits {
                        active: LIMIT,
                        total,
                    },
                    pin!(pauses),
                )
                .await;
            assert!(
                outcome.is_err() && began.elapsed() <= total,
                "{:?}",
                began.elapsed()
            );
        }
    }

    #[tokio::test]
    async fn future_that_always_continues_is_limited() {
        let active = Duration::from_millis(1);
        let limits = CallLimits { active, ..LIMITS };
        let mut busy = pin!(async {
            loop {
                tokio::task::consume_budget().await;
            }
        });
        let deadline = PausableDeadline::default();
        let limited = deadline.limit(limits, busy.as_mut());
        let outcome: Result<Result<(), _>, _> = tokio::time::timeout(LIMIT, limited).await;
        assert_eq!(outcome, Ok(Err(Expired(active))));
    }

    #[tokio::test]
    async fn pauses_of_one_call_are_counted() {
        let deadline = Arc::<PausableDeadline>::default();
        let limits = PauseLimits { open: 2, ever: 3 };
        for _ in 0..3 {
            drop(deadline.pause(limits).unwrap());
        }
        assert!(deadline.pause(limits).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_without_pauses_is_a_timeout() {
        let deadline = PausableDeadline::default();
        let began = Instant::now();
        assert_eq!(deadline.limit(LIMITS, pin!(async { 7 })).await, Ok(7));
        assert!(!deadline.has_expired());
        assert_eq!(
            deadline.limit(LIMITS, pin!(pending::<()>())).await,
            Err(Expired(LIMIT))
        );
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
        assert!(deadline.has_expired());
    }

    /// Another thread pauses and resumes while the call is polled for other reasons.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn deadline_passes_after_pauses_of_another_thread() {
        let deadline = Arc::<PausableDeadline>::default();
        let pausing = Arc::clone(&deadline);
        let pauses = tokio::task::spawn_blocking(move || {
            for _ in 0..10_000 {
                drop(pausing.pause(at_once(1)));
            }
        });
        let polled = async {
            loop {
                tokio::task::yield_now().await;
                if pauses.is_finished() {
                    return pending::<()>().await;
                }
            }
        };
        let active = Duration::from_millis(20);
        let limits = CallLimits {
            active,
            total: Duration::from_secs(60),
        };
        assert_eq!(
            deadline.limit(limits, pin!(polled)).await,
            Err(Expired(active))
        );
    }
}
