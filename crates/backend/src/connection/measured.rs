//! Measures a time repeatedly.

use std::time::Duration;

use parking_lot::Mutex;

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
