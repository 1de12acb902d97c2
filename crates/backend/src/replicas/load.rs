//! How busy one endpoint is: its running requests, and how long its calls have taken lately.
//!
//! The latency is a moving average that rises at once and falls slowly (Peak EWMA): an endpoint that has become slow is
//! avoided after the first call that shows it, and tried again as the memory fades. Nothing is locked. Two calls that end at
//! the same moment may overwrite each other's note, which the next one corrects.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The time in which what is known of the latency fades to about a third. No option: long compared to most calls, short
/// compared to the time that an endpoint needs to recover.
const MEMORY: Duration = Duration::from_secs(10);
/// What a call counts at least, so that between fast endpoints the running requests decide.
const LEAST: Duration = Duration::from_millis(10);
/// What a call counts at least that got no answer: an endpoint that fails fast would seem to be the fastest one.
const FAILED: Duration = Duration::from_secs(1);
/// What a call counts at most: one that has waited for a person says nothing of its endpoint.
const MOST: Duration = Duration::from_secs(10);

/// How busy one endpoint is.
pub(super) struct Load {
    running: AtomicUsize,
    /// The latency in nanoseconds, as it was at `noted`.
    latency: AtomicU64,
    /// In nanoseconds since `origin`.
    noted: AtomicU64,
    origin: Instant,
}

/// A running request, until this is dropped.
pub(super) struct Running<'a> {
    load: &'a Load,
    /// When a call began whose duration is of interest.
    since: Option<Instant>,
    end: End,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Given up by its client, or not by the endpoint's doing.
    Open,
    Answered,
    Failed,
}

impl Load {
    pub(super) fn new() -> Self {
        let (running, latency, noted) = Default::default();
        Self {
            running,
            latency,
            noted,
            origin: Instant::now(),
        }
    }

    /// How many requests are running.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How long a call takes, as far as is known.
    pub(super) fn latency(&self) -> Duration {
        Duration::from_nanos(self.latency.load(Ordering::Relaxed)).mul_f64(faded(self.noted_ago()))
    }

    /// How long a further call would take, roughly: the less, the better.
    pub(super) fn cost(&self) -> u128 {
        self.latency().max(LEAST).as_nanos() * (self.running() as u128 + 1)
    }

    /// A request begins; `is_timed` if its duration is of interest.
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
            // `known` has faded already: what has faded is replaced by what is new.
            End::Answered => known + took.mul_f64(1.0 - faded(self.noted_ago())),
            End::Open | End::Failed => return,
        };
        self.latency.store(nanos(latency), Ordering::Relaxed);
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
    /// It was answered.
    pub(super) fn answered(mut self) {
        self.end = End::Answered;
    }

    /// It got no answer, though the endpoint is there.
    pub(super) fn failed(mut self) {
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

/// What is left of the weight of something that was noted so long ago.
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
            End::Answered => running.answered(),
            End::Failed => running.failed(),
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
        // A call that was given up has shown that it takes at least so long.
        call(&load, Duration::from_secs(3600), End::Open).await;
        assert_eq!((load.latency(), load.running()), (MOST, 0));
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
