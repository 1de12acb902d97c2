//! Figures of each server for operators: requests, errors and durations.

use std::time::Duration;

use fanlight_protocol::Method;

use super::Metrics;
use super::durations::Durations;
use crate::error_type::ErrorType;

/// Values of `error.type` that do not count as failures of the server: the client gave up, or its
/// user has no credentials for the server.
pub const NO_FAILURE: [&str; 3] = ["abandoned", "cancelled", "no_credentials"];

fn is_failure(error: Option<ErrorType>) -> bool {
    error.is_some_and(|error| !NO_FAILURE.contains(&&*error.as_text()))
}

/// Whether Fanlight itself sends such messages: to connect, to ask whether the server is there, for
/// lists, and to listen.
fn is_own(method: &Method) -> bool {
    use Method::{Discover, Initialize, Listen, Ping};
    method.is_list() || matches!(method, Discover | Initialize | Listen | Ping)
}

/// The figures of one server since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendFigures {
    /// How many messages to the server have ended or could not be sent. Fanlight's own
    /// messages, for lists and to connect, do not count.
    pub requests: u64,
    /// How many of these failed and how many attempts to connect failed. This excludes messages
    /// with an error in [`NO_FAILURE`].
    pub errors: u64,
    /// How many attempts to connect failed.
    pub failed_connections: i64,
    /// The median time between a `tools/call` and its response, without connecting. `None` if no
    /// call was sent.
    pub median: Option<Duration>,
    /// The 95th percentile of this time.
    pub p95: Option<Duration>,
    /// How often the server's process was restarted.
    pub restarts: i64,
    /// How often the server was connected again.
    pub reconnects: i64,
}

impl Metrics {
    /// The figures of the server called `name`.
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
            if is_own(&key.method) {
                return;
            }
            figures.requests += count;
            let given_up = matches!(key.error, Some(ErrorType::Abandoned | ErrorType::Cancelled));
            figures.errors += if is_failure(key.error) { count } else { 0 };
            if key.method == Method::CallTool && !given_up {
                calls.add(&durations);
            }
        });
        self.unsent.for_each(|key, durations| {
            let count = if key.backend == backend.index() && !is_own(&key.method) {
                durations.count()
            } else {
                0
            };
            figures.requests += count;
            figures.errors += if is_failure(key.error) { count } else { 0 };
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
        // The time to connect says nothing about the duration of calls.
        metrics
            .client
            .record(of(Method::Initialize, None), Duration::from_secs(200));
        let figures = metrics.figures("a");
        assert_eq!((figures.requests, figures.errors), (5, 1));
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
