//! Whether a server still answers, as its calls show: calls that time out in a row give rise to a check.
//!
//! One tool that takes long is no reason to leave out its server: only a check without an answer is.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::settings::HealthPolicy;

/// Statistics of the calls of one server.
pub(crate) struct Health {
    policy: HealthPolicy,
    /// Calls that have timed out since the last answer.
    timeouts: AtomicUsize,
    doubted: Notify,
    /// The server answered no check, and nothing since.
    is_ejected: AtomicBool,
}

impl Health {
    pub(crate) fn new(policy: HealthPolicy) -> Self {
        Self { policy, timeouts: AtomicUsize::new(0), doubted: Notify::new(), is_ejected: AtomicBool::new(false) }
    }

    /// A call was answered.
    pub(crate) fn answered(&self) {
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// A call that had been sent has timed out.
    pub(crate) fn timed_out(&self) {
        let timeouts = self.timeouts.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if timeouts >= self.policy.timeouts {
            self.doubted.notify_one();
        }
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

    /// Consecutive time-outs of calls that make the server suspect.
    pub(crate) fn most_timeouts(&self) -> usize {
        self.policy.timeouts
    }

    /// How long a check may take.
    pub(crate) fn check_timeout(&self) -> Duration {
        self.policy.timeout
    }

    /// The server did not answer a check (`true`), or is connected again.
    pub(crate) fn set_ejected(&self, is_ejected: bool) {
        self.is_ejected.store(is_ejected, Ordering::Relaxed);
        self.answered();
    }

    /// Whether the server has answered nothing since a check that it did not answer.
    pub(crate) fn is_ejected(&self) -> bool {
        self.is_ejected.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn timeouts_in_a_row_are_doubtful() {
        let health = Health::new(HealthPolicy { interval: None, timeout: Duration::ZERO, timeouts: 2 });
        let is_due = || health.check_is_due().now_or_never().is_some();
        health.timed_out();
        health.answered();
        health.timed_out();
        assert!(!is_due());
        health.timed_out();
        assert!(is_due() && !is_due());
        health.set_ejected(false);
        health.timed_out();
        assert!(!is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn checks_are_due_at_each_interval() {
        let interval = Duration::from_secs(3);
        let health = Health::new(HealthPolicy { interval: Some(interval), timeout: Duration::ZERO, timeouts: 2 });
        let since = tokio::time::Instant::now();
        health.check_is_due().await;
        health.check_is_due().await;
        assert_eq!(since.elapsed(), 2 * interval);
    }
}
