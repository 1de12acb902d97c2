//! An attempt to connect to a server, its duration and its time limits.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fanlight_canonical::{BackendError, Starting};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::process_log::ProcessLog;

/// The time after which the log first mentions a running attempt; then it does so after twice the
/// time, and so on. A constant, since the API and the page show the attempt at once.
const REPORTED_AFTER: Duration = Duration::from_secs(5);

/// An attempt to connect.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    since: Instant,
    at: SystemTime,
    /// The number of the attempt's process in the log; 0 while there is none.
    process: Arc<AtomicU64>,
}

impl Attempt {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            at: SystemTime::now(),
            process: Arc::default(),
        }
    }

    /// The duration so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// The place for the process's number.
    pub(crate) fn process(&self) -> &AtomicU64 {
        &self.process
    }

    /// The number of the process, if the attempt has started one.
    pub(crate) fn process_number(&self) -> Option<u64> {
        Some(self.process.load(Ordering::Relaxed)).filter(|number| *number > 0)
    }

    /// The current state for users.
    pub(crate) fn starting(&self, log: &ProcessLog) -> Starting {
        Starting {
            since: self.at,
            elapsed: self.elapsed(),
            last_line: self
                .process_number()
                .and_then(|number| log.last_line(number)),
        }
    }

    /// The error of a request that gave up waiting for the attempt after `limit`.
    pub(crate) fn not_ready(&self, log: &ProcessLog, limit: Duration) -> BackendError {
        match self.process_number() {
            Some(_) => {
                let Starting {
                    elapsed, last_line, ..
                } = self.starting(log);
                BackendError::Starting { elapsed, last_line }
            }
            None => BackendError::Timeout {
                after: limit,
                sent: false,
            },
        }
    }

    /// Logs that the attempt is still running, at growing intervals; never returns.
    pub(crate) async fn report(&self, backend: &str, log: &ProcessLog) -> Infallible {
        let mut next = REPORTED_AFTER;
        loop {
            sleep_until(self.since + next).await;
            let Starting {
                elapsed, last_line, ..
            } = self.starting(log);
            let last_line = last_line.unwrap_or_default();
            tracing::info!(
                backend,
                seconds = elapsed.as_secs(),
                last_line = &*last_line,
                "server is still starting"
            );
            next *= 2;
        }
    }

    /// Waits until the attempt has taken too long: its process has written nothing to standard
    /// error for `silence`, or the attempt has taken `total`. Returns the limit that applied.
    pub(crate) async fn expired(
        &self,
        log: &ProcessLog,
        silence: Duration,
        total: Duration,
    ) -> Duration {
        let total = total.max(silence);
        loop {
            let written = self
                .process_number()
                .and_then(|number| log.last_written(number));
            let silent_since = written.map_or(self.since, |written| written.max(self.since));
            let end = (silent_since + silence).min(self.since + total);
            if Instant::now() >= end {
                return if end == self.since + total {
                    total
                } else {
                    silence
                };
            }
            sleep_until(end).await;
        }
    }
}

/// An average of repeated measurements; the latest one counts half.
#[derive(Debug, Default)]
pub(crate) struct Measured(Mutex<Option<Duration>>);

impl Measured {
    pub(crate) fn record(&self, time: Duration) {
        let mut known = self.0.lock();
        *known = Some(known.map_or(time, |before| (before + time) / 2));
    }

    /// The average; `None` before the first measurement.
    pub(crate) fn average(&self) -> Option<Duration> {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::ProcessStream;

    use super::*;

    const SILENCE: Duration = Duration::from_secs(10);
    const TOTAL: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn attempt_expires_when_its_process_is_silent() {
        let (attempt, log) = (Attempt::new(), Arc::new(ProcessLog::new(1 << 10)));
        let writer = ProcessLog::process(&log, None);
        attempt.process().store(writer.number, Ordering::Relaxed);
        let writing = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(9)).await;
                writer.is_writing();
            }
            std::future::pending::<()>().await;
        };
        let expired = tokio::select! { after = attempt.expired(&log, SILENCE, TOTAL) => after, () = writing => TOTAL };
        assert_eq!((expired, attempt.elapsed().as_secs()), (SILENCE, 37));
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_expires_however_much_its_process_writes() {
        let (attempt, log) = (Attempt::new(), Arc::new(ProcessLog::new(1 << 10)));
        let writer = ProcessLog::process(&log, None);
        attempt.process().store(writer.number, Ordering::Relaxed);
        let writing = async {
            loop {
                tokio::time::sleep(Duration::from_secs(7)).await;
                writer.add(ProcessStream::Stderr, "npm http fetch");
                writer.is_writing();
            }
        };
        let expired = tokio::select! { after = attempt.expired(&log, SILENCE, TOTAL) => after, () = writing => SILENCE };
        assert_eq!((expired, attempt.elapsed()), (TOTAL, TOTAL));
        let BackendError::Starting { elapsed, last_line } = attempt.not_ready(&log, SILENCE) else {
            panic!()
        };
        assert_eq!(
            (elapsed, last_line.as_deref()),
            (TOTAL, Some("npm http fetch"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_without_a_process_has_one_limit() {
        let (attempt, log) = (Attempt::new(), ProcessLog::new(0));
        assert_eq!(attempt.expired(&log, SILENCE, TOTAL).await, SILENCE);
        let error = BackendError::Timeout {
            after: SILENCE,
            sent: false,
        };
        assert_eq!(attempt.not_ready(&log, SILENCE), error);
    }
}

#[cfg(test)]
mod measured_tests {
    use super::*;

    #[test]
    fn newer_measurements_count_for_more() {
        let (measured, second) = (Measured::default(), Duration::from_secs(1));
        assert_eq!(measured.average(), None);
        measured.record(8 * second);
        assert_eq!(measured.average(), Some(8 * second));
        for expected in [4, 2, 1] {
            measured.record(Duration::ZERO);
            assert_eq!(measured.average(), Some(expected * second));
        }
    }
}
