//! Figures of each backend for operators: requests, errors, durations.

use fanlight_protocol::Method;

use super::Metrics;
use super::family::{Values, label};
use super::histogram::{BOUNDS, Counts};

/// Values of `error.type` that are no failure of the backend: the client wanted no answer any more.
pub const GIVEN_UP: [&str; 2] = ["abandoned", "cancelled"];

/// Figures of one backend since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendFigures {
    /// Messages sent to it that have ended.
    pub requests: u64,
    /// Those that failed, without [`GIVEN_UP`] ones and without `server/discover`, which probes the era.
    pub errors: u64,
    /// The median duration in seconds, estimated from the buckets; `None` without requests.
    pub median: Option<f64>,
    /// The 95th percentile, likewise.
    pub p95: Option<f64>,
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
        let only = |index: u16| (index == backend.index()).then(String::new);
        let mut figures =
            BackendFigures { restarts: backend.restarts(), reconnects: backend.reconnects(), ..Default::default() };
        let mut all = Counts { buckets: vec![0; BOUNDS.len() + 1], sum_seconds: 0.0 };
        for (labels, values) in self.client.snapshot(&self.known, &only) {
            let Values::Histogram(counts) = values else { continue };
            let has = |wanted: &str| labels.iter().any(|(key, _)| *key == wanted);
            if !has(label::BACKEND) {
                continue;
            }
            let count: u64 = counts.buckets.iter().sum();
            figures.requests += count;
            // Legacy servers rightly refuse the probe for the era.
            let probes = labels.iter().any(|(key, value)| *key == label::METHOD && value == Method::Discover.as_str());
            let given_up = labels.iter().any(|(key, value)| *key == label::ERROR && GIVEN_UP.contains(&value.as_str()));
            figures.errors += if has(label::ERROR) && !probes && !given_up { count } else { 0 };
            all.buckets.iter_mut().zip(&counts.buckets).for_each(|(sum, one)| *sum += one);
        }
        figures.median = quantile(&all, 0.5);
        figures.p95 = quantile(&all, 0.95);
        figures
    }
}

/// The quantile `of` the values, interpolated within a bucket.
fn quantile(counts: &Counts, of: f64) -> Option<f64> {
    let total: u64 = counts.buckets.iter().sum();
    if total == 0 {
        return None;
    }
    // Counts stay far below 2^52.
    let wanted = of * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (count, upper) in counts.buckets.iter().zip(BOUNDS) {
        let here = *count as f64;
        if here > 0.0 && below + here >= wanted {
            return Some(lower + (upper - lower) * ((wanted - below) / here));
        }
        below += here;
        lower = upper;
    }
    BOUNDS.last().copied()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::MetricLimits;
    use super::super::histogram::Key;
    use super::*;
    use crate::error_type::ErrorType;

    fn record(metrics: &Metrics, backend: &str, millis: u64, error: Option<ErrorType>) {
        let backend = metrics.backend(backend).index();
        let key = Key { backend, method: Method::CallTool, name: None, error, revision: None, transport: None };
        metrics.client.record(key, Duration::from_millis(millis));
    }

    #[test]
    fn figures_count_one_backend() {
        let metrics = Arc::new(Metrics::new(MetricLimits::default()));
        for millis in [1, 2, 3, 15] {
            record(&metrics, "a", millis, None);
        }
        record(&metrics, "a", 400, Some(ErrorType::Timeout));
        record(&metrics, "b", 60_000, None);
        let probe = Key {
            backend: metrics.backend("a").index(),
            method: Method::Discover,
            name: None,
            error: Some(ErrorType::JsonRpc(-32601)),
            revision: None,
            transport: None,
        };
        metrics.client.record(probe, Duration::from_millis(1));
        let figures = metrics.figures("a");
        assert_eq!((figures.requests, figures.errors), (6, 1));
        let (median, p95) = (figures.median.unwrap(), figures.p95.unwrap());
        assert!(median > 0.0 && median <= 0.01, "{median}");
        assert!(p95 > 0.2 && p95 <= 0.5, "{p95}");
        assert_eq!(metrics.figures("c"), BackendFigures::default());
        metrics.backend("c").restarted();
        assert_eq!(metrics.figures("c").restarts, 1);
    }

    #[test]
    fn quantile_above_all_buckets_is_the_last_bound() {
        let metrics = Metrics::new(MetricLimits::default());
        record(&metrics, "a", 1_000_000, None);
        assert_eq!(metrics.figures("a").median, Some(300.0));
    }
}
