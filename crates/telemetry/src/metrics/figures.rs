//! Figures of each backend for operators: requests, errors, durations.

use std::time::Duration;

use fanlight_protocol::Method;

use super::Metrics;
use super::durations::Durations;
use crate::error_type::ErrorType;

/// Values of `error.type` that do not count as failures of the backend: the client had given up.
pub const GIVEN_UP: [&str; 2] = ["abandoned", "cancelled"];

/// Figures of one backend since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendFigures {
    /// Messages to it that have ended, and those that could not be sent.
    pub requests: u64,
    /// Those that failed, without [`GIVEN_UP`] ones and without `server/discover`, which probes the era; and attempts to
    /// connect that failed.
    pub errors: u64,
    /// Those attempts.
    pub failed_connections: i64,
    /// The median of the time from sending a `tools/call` until its response, without connecting; `None` if none was sent.
    pub median: Option<Duration>,
    /// The 95th percentile, likewise.
    pub p95: Option<Duration>,
    /// Starts of its process after the first.
    pub restarts: i64,
    /// Connections to it after the first.
    pub reconnects: i64,
}

impl Metrics {
    /// The figures of the backend called `name`.
    #[must_use]
    pub fn figures(&self, name: &str) -> BackendFigures {
        let backend = self.backend(name);
        let mut figures = BackendFigures {
            restarts: backend.restarts(),
            reconnects: backend.reconnects(),
            failed_connections: backend.failed_connections(),
            ..Default::default()
        };
        let mut calls = Durations::default();
        self.client.for_each(|key, durations| {
            if key.backend != backend.index() {
                return;
            }
            let count = durations.count();
            figures.requests += count;
            let given_up = matches!(key.error, Some(ErrorType::Abandoned | ErrorType::Cancelled));
            // Legacy servers rightly refuse the probe for the era.
            let is_failure = key.error.is_some() && !given_up && key.method != Method::Discover;
            figures.errors += if is_failure { count } else { 0 };
            if key.method == Method::CallTool && !given_up {
                calls.add(&durations);
            }
        });
        self.unsent.for_each(|key, durations| {
            let count = if key.backend == backend.index() {
                durations.count()
            } else {
                0
            };
            figures.requests += count;
            figures.errors += count;
        });
        figures.errors += u64::try_from(figures.failed_connections).unwrap_or(0);
        figures.median = calls.quantile(0.5);
        figures.p95 = calls.quantile(0.95);
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Key;
    use super::super::timer::tests::record;
    use super::super::{MetricLimits, Side};
    use super::*;

    const SENT: Side = Side::Client;

    #[test]
    fn figures_count_one_backend() {
        let metrics = Metrics::new(MetricLimits::default());
        for millis in [1, 2, 3, 15] {
            record(
                &metrics,
                SENT,
                "a",
                "t",
                None,
                Duration::from_millis(millis),
            );
        }
        record(
            &metrics,
            SENT,
            "a",
            "t",
            Some(ErrorType::Timeout),
            Duration::from_millis(400),
        );
        record(&metrics, SENT, "b", "t", None, Duration::from_secs(60));
        let of = |method, error| Key {
            backend: metrics.backend("a").index(),
            method,
            name: None,
            error,
            revision: None,
            transport: None,
            http: None,
        };
        metrics.client.record(
            of(Method::Discover, Some(ErrorType::JsonRpc(-32601))),
            Duration::from_millis(1),
        );
        // Connecting says nothing of how long calls take.
        metrics
            .client
            .record(of(Method::Initialize, None), Duration::from_secs(200));
        let figures = metrics.figures("a");
        assert_eq!((figures.requests, figures.errors), (7, 1));
        let (median, p95) = (figures.median.unwrap(), figures.p95.unwrap());
        assert!(
            median > Duration::from_millis(1) && median <= Duration::from_millis(3),
            "{median:?}"
        );
        assert!(
            p95 > Duration::from_millis(200) && p95 <= Duration::from_millis(400),
            "{p95:?}"
        );
        assert_eq!(metrics.figures("c"), BackendFigures::default());
        metrics.backend("c").restarted();
        assert_eq!(metrics.figures("c").restarts, 1);
    }

    #[test]
    fn failed_connections_and_what_they_kept_from_being_sent_are_errors() {
        let metrics = Metrics::new(MetricLimits::default());
        metrics.backend("a").connect_failed();
        record(
            &metrics,
            Side::Unsent,
            "a",
            "t",
            Some(ErrorType::ConnectFailed),
            Duration::ZERO,
        );
        let figures = metrics.figures("a");
        assert_eq!(
            (figures.requests, figures.errors, figures.failed_connections),
            (1, 2, 1)
        );
        assert_eq!((figures.median, figures.p95), (None, None));
    }
}
