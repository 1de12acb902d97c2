//! Latencies: recorded in nanoseconds with three significant digits, reported in microseconds.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::error::{BenchError, Result};

/// The longest recorded latency; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;

/// The distribution of a latency.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3);
        histogram
            .map(Self)
            .map_err(|error| BenchError::Other(format!("no histogram: {error}")))
    }

    pub(crate) fn record(&mut self, took: Duration) {
        self.0
            .saturating_record(u64::try_from(took.as_nanos()).unwrap_or(LONGEST).max(1));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // Adding fails only for different bounds; these are equal.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The smallest latency that `percent` per cent do not exceed, in microseconds; zero without
    /// latencies.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        if self.0.is_empty() {
            0.0
        } else {
            micros(self.0.value_at_percentile(percent))
        }
    }

    pub(crate) fn max(&self) -> f64 {
        micros(self.0.max())
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "at most a minute in nanoseconds, which a double holds exactly"
)]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// The middle value; for an even number of values, the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (lower, upper) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some(f64::midpoint(*sorted.get(lower)?, *sorted.get(upper)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_three_digits() {
        let mut latencies = Latencies::new().unwrap();
        assert!(latencies.percentile(50.0).abs() < f64::EPSILON);
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        for (percent, expected) in [(50.0, 500.0), (99.0, 990.0), (99.9, 999.0)] {
            let found = latencies.percentile(percent);
            assert!(
                (found / expected - 1.0).abs() < 0.002,
                "p{percent}: {found}, not {expected}"
            );
        }
        assert!((latencies.max() / 1000.0 - 1.0).abs() < 0.002);
        assert_eq!(latencies.count(), 1000);
    }

    #[test]
    fn latency_over_the_longest_counts_as_the_longest() {
        let mut latencies = Latencies::new().unwrap();
        latencies.record(Duration::from_secs(1_000_000));
        latencies.record(Duration::ZERO);
        assert_eq!(latencies.count(), 2);
        assert!(latencies.max() >= 6e7);
    }

    #[test]
    fn latencies_are_added_up() {
        let (mut all, mut some) = (Latencies::new().unwrap(), Latencies::new().unwrap());
        all.record(Duration::from_millis(1));
        some.record(Duration::from_millis(3));
        all.add(&some);
        assert_eq!(all.count(), 2);
        assert!((all.percentile(100.0) - 3000.0).abs() < 5.0);
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
