//! The load of one endpoint: its running requests, and the recent latency of its calls.
//!
//! The latency is a moving average that rises at once and falls slowly (Peak EWMA). A slow endpoint
//! is avoided after the first call that shows it, and tried again as the memory fades. There are no
//! locks: two calls that end at the same moment may overwrite each other's value, which the next
//! call corrects.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The time in which a known latency fades to about a third. A constant: long compared to most
/// calls, short compared to an endpoint's recovery.
const MEMORY: Duration = Duration::from_secs(10);
/// The minimum latency that counts, so that running requests decide between fast endpoints.
const LEAST: Duration = Duration::from_millis(10);
/// The minimum latency of a call without an answer. Otherwise an endpoint that fails fast would
/// seem to be the fastest.
const FAILED: Duration = Duration::from_secs(1);
/// The maximum latency that counts: a call that waited for a person says nothing about its
/// endpoint.
const MOST: Duration = Duration::from_secs(10);

/// The load of one endpoint.
pub(super) struct Load {
    running: AtomicUsize,
    /// The latency in nanoseconds, as of `noted`.
    latency: AtomicU64,
    /// The time of the last update, in nanoseconds since `origin`.
    noted: AtomicU64,
    /// Whether the latency comes from a call without an answer.
    is_of_failure: AtomicBool,
    origin: Instant,
}

/// A running request, until this is dropped.
pub(super) struct Running<'a> {
    load: &'a Load,
    /// The start of the call, if its duration matters.
    since: Option<Instant>,
    end: End,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client gave it up, or the endpoint is not the cause.
    Open,
    Answered,
    Failed,
}

impl Load {
    pub(super) fn new() -> Self {
        let (running, latency, noted, is_of_failure) = Default::default();
        Self {
            running,
            latency,
            noted,
            is_of_failure,
            origin: Instant::now(),
        }
    }

    /// The number of running requests.
    pub(super) fn running_count(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// The expected duration of a call. A failure counts for a limited time, as an endpoint that is
    /// back shows that only in a call.
    pub(super) fn latency(&self) -> Duration {
        if self.is_of_failure.load(Ordering::Relaxed) && self.noted_ago() >= MEMORY {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.latency.load(Ordering::Relaxed)).mul_f64(faded(self.noted_ago()))
    }

    /// An estimate of the duration of a further call; less is better.
    pub(super) fn cost(&self) -> u128 {
        self.latency().max(LEAST).as_nanos() * (self.running_count() as u128 + 1)
    }

    /// Begins a request; `is_timed` says whether its duration matters.
    pub(super) fn begin(&self, is_timed: bool) -> Running<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running {
            load: self,
            since: is_timed.then(Instant::now),
            end: End::Open,
        }
    }

    fn note(&self, took: Duration, end: End) {
        let took = if end == End::Failed {
            took.max(FAILED)
        } else {
            took
        }
        .min(MOST);
        let known = self.latency();
        let latency = match end {
            _ if took >= known => took,
            // `known` has already faded; the new value replaces the faded part.
            End::Answered => known + took.mul_f64(1.0 - faded(self.noted_ago())),
            End::Open | End::Failed => return,
        };
        self.latency.store(nanos(latency), Ordering::Relaxed);
        self.is_of_failure
            .store(end == End::Failed, Ordering::Relaxed);
        self.noted
            .store(nanos(self.origin.elapsed()), Ordering::Relaxed);
    }

    fn noted_ago(&self) -> Duration {
        self.origin
            .elapsed()
            .saturating_sub(Duration::from_nanos(self.noted.load(Ordering::Relaxed)))
    }
}

impl Running<'_> {
    /// Ends the request with an answer.
    pub(super) fn end_answered(mut self) {
        self.end = End::Answered;
    }

    /// Ends the request without an answer, though the endpoint is there.
    pub(super) fn end_failed(mut self) {
        self.end = End::Failed;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.load.running.fetch_sub(1, Ordering::Relaxed);
        if let Some(since) = self.since {
            self.load.note(since.elapsed(), self.end);
        }
    }
}

/// The remaining weight of a value that was noted this long ago.
fn faded(ago: Duration) -> f64 {
    (-ago.as_secs_f64() / MEMORY.as_secs_f64()).exp()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    async fn call(load: &Load, took: Duration, end: End) {
        let running = load.begin(true);
        advance(took).await;
        match end {
            End::Answered => running.end_answered(),
            End::Failed => running.end_failed(),
            End::Open => drop(running),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn latency_rises_at_once_and_falls_slowly() {
        let load = Load::new();
        assert_eq!(load.latency(), Duration::ZERO);
        call(&load, Duration::from_secs(2), End::Answered).await;
        assert_eq!(load.latency(), Duration::from_secs(2));
        call(&load, Duration::from_millis(10), End::Answered).await;
        assert!(
            load.latency() > Duration::from_millis(1900),
            "{:?}",
            load.latency()
        );
        advance(3 * MEMORY).await;
        assert!(
            load.latency() < Duration::from_millis(150),
            "{:?}",
            load.latency()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failures_make_an_endpoint_no_faster() {
        let load = Load::new();
        call(&load, Duration::from_millis(1), End::Failed).await;
        assert_eq!(load.latency(), FAILED);
        call(&load, Duration::from_millis(1), End::Open).await;
        assert!(load.latency() > FAILED / 2);
        advance(MEMORY).await;
        assert_eq!(load.latency(), Duration::ZERO);
        // A call that was given up took at least this long.
        call(&load, Duration::from_secs(3600), End::Open).await;
        assert_eq!((load.latency(), load.running_count()), (MOST, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn running_requests_cost() {
        let (idle, busy) = (Load::new(), Load::new());
        let _running = [busy.begin(false), busy.begin(true)];
        assert!(idle.cost() < busy.cost());
        call(&idle, Duration::from_millis(50), End::Answered).await;
        assert!(idle.cost() > busy.cost());
    }
}
