//! The health of a server, judged by its calls. Several timeouts in a row cause a check; failures
//! of several tools open the [`Circuit`].
//!
//! One slow tool is no reason to stop using its server. A check without an answer is, and so are
//! failed calls of several tools.

mod circuit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_canonical::{BackendError, Peer, Plain};
use fanlight_telemetry::metrics::BackendMetrics;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::settings::{HealthPolicy, RetryDelays};
pub(crate) use circuit::{Admission, Item};
use circuit::{Circuit, News};

/// Statistics of one server's calls.
pub(crate) struct Health {
    backend: Arc<str>,
    policy: HealthPolicy,
    metrics: Arc<BackendMetrics>,
    circuit: Mutex<Circuit>,
    /// Whether the circuit has recorded a failure since the last answer. Otherwise calls need not
    /// lock it.
    is_troubled: AtomicBool,
    /// The number of calls that timed out since the last answer.
    timeouts: AtomicUsize,
    doubted: Notify,
    /// Whether the server left a check unanswered and has answered nothing since.
    is_ejected: AtomicBool,
}

impl Health {
    /// Creates the statistics; `pauses` are the pauses before trials of an open circuit.
    pub(crate) fn new(
        backend: Arc<str>,
        policy: HealthPolicy,
        pauses: RetryDelays,
        metrics: Arc<BackendMetrics>,
    ) -> Self {
        Self {
            backend,
            policy,
            metrics,
            circuit: Mutex::new(Circuit::new(policy.timeouts, pauses)),
            is_troubled: AtomicBool::new(false),
            timeouts: AtomicUsize::new(0),
            doubted: Notify::new(),
            is_ejected: AtomicBool::new(false),
        }
    }

    /// Lets a call through, unless the circuit is open.
    pub(crate) fn admit(&self, client: &Peer) -> Result<Admission, BackendError> {
        if self.is_troubled() {
            self.circuit.lock().admit(client)
        } else {
            Ok(Admission::Closed)
        }
    }

    /// Records an answered call.
    pub(crate) fn call_answered(&self) {
        if self.is_troubled() {
            self.note(Circuit::close);
        }
    }

    /// Records a call without an answer.
    pub(crate) fn call_failed(&self, item: Item<'_>, client: &Peer, admission: Admission) {
        self.note(|circuit| circuit.record_failure(item, client, admission));
    }

    /// Records a call that ended without a finding.
    pub(crate) fn call_abandoned(&self, client: &Peer, admission: Admission) {
        if admission != Admission::Closed {
            self.circuit.lock().abandoned(client, admission);
        }
    }

    /// The reason why calls are refused, and for how long; `None` if they are sent.
    pub(crate) fn refusal_reason(&self) -> Option<(BackendError, Duration)> {
        if self.is_troubled() {
            self.circuit.lock().error()
        } else {
            None
        }
    }

    /// Whether a trial is due; `None` if all calls are sent.
    pub(crate) fn trial_is_due(&self) -> Option<bool> {
        if self.is_troubled() {
            self.circuit.lock().trial_is_due()
        } else {
            None
        }
    }

    fn is_troubled(&self) -> bool {
        self.is_troubled.load(Ordering::Acquire)
    }

    /// Changes the circuit, and logs the change for operators.
    fn note(&self, change: impl FnOnce(&mut Circuit) -> Option<News>) {
        let (news, pause) = {
            let mut circuit = self.circuit.lock();
            let news = change(&mut circuit);
            self.is_troubled
                .store(!circuit.is_untroubled(), Ordering::Release);
            (news, circuit.error().map(|(_, pause)| pause))
        };
        let backend = &*self.backend;
        match news {
            Some(News::Opened { failures }) => {
                self.metrics.count_ejection();
                let retry_in = Plain(pause.unwrap_or_default());
                tracing::warn!(backend, failures, %retry_in, "server gets no calls for now: it did not answer the last ones");
            }
            Some(News::Closed { after }) => {
                tracing::info!(backend, after = %Plain(after), "server gets calls again");
            }
            None => {}
        }
    }

    /// Records any answer.
    pub(crate) fn record_answer(&self) {
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// Records the timeout of a call that had been sent.
    pub(crate) fn record_timeout(&self) {
        let timeouts = self
            .timeouts
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if timeouts >= self.policy.timeouts {
            self.doubted.notify_one();
        }
    }

    /// Requests a check at once.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Waits until the next check is due.
    pub(crate) async fn check_is_due(&self) {
        let interval = async {
            match self.policy.interval {
                Some(interval) => tokio::time::sleep(interval).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.doubted.notified() => {}
            () = interval => {}
        }
    }

    /// The number of consecutive timeouts that make the server suspect.
    pub(crate) fn most_timeouts(&self) -> usize {
        self.policy.timeouts
    }

    /// The time limit of a check.
    pub(crate) fn check_timeout(&self) -> Duration {
        self.policy.timeout
    }

    /// Records that the server left a check unanswered (`true`), or is connected again.
    pub(crate) fn set_ejected(&self, is_ejected: bool) {
        self.is_ejected.store(is_ejected, Ordering::Relaxed);
        self.record_answer();
        // The process is new, or the server is back, so calls may be sent again.
        self.call_answered();
    }

    /// Whether the server left a check unanswered and has answered nothing since.
    pub(crate) fn is_ejected(&self) -> bool {
        self.is_ejected.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn health(interval: Option<Duration>) -> Health {
        let pauses = RetryDelays {
            shortest: Duration::from_secs(1),
            longest: Duration::from_secs(1),
        };
        let policy = HealthPolicy {
            interval,
            timeout: Duration::ZERO,
            timeouts: 2,
        };
        Health::new(
            "b".into(),
            policy,
            pauses,
            Arc::new(BackendMetrics::unregistered()),
        )
    }

    #[test]
    fn timeouts_in_a_row_are_doubtful() {
        let health = health(None);
        let is_due = || health.check_is_due().now_or_never().is_some();
        health.record_timeout();
        health.record_answer();
        health.record_timeout();
        assert!(!is_due());
        health.record_timeout();
        assert!(is_due() && !is_due());
        health.set_ejected(false);
        health.record_timeout();
        assert!(!is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn checks_are_due_at_each_interval() {
        let interval = Duration::from_secs(3);
        let health = health(Some(interval));
        let since = tokio::time::Instant::now();
        health.check_is_due().await;
        health.check_is_due().await;
        assert_eq!(since.elapsed(), 2 * interval);
    }
}
