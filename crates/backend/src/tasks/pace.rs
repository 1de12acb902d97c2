//! How often a task is asked after, and how long failing to do so is borne.
//!
//! Must not know: what a task is.

use std::time::Duration;

use fanlight_protocol::Json;
use tokio::time::sleep;

use fanlight_canonical::BackendError;

/// What is asked where a server suggests nothing, and the bounds of what it can suggest.
const USUAL: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(30);
/// The delay after the first failure in a row; it doubles up to [`LONGEST`].
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// Failures in a row that are borne: between two and four minutes of them.
const FAILURES: u32 = 14;

/// The pace of asking after one task.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    /// In a row.
    failures: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { interval: USUAL, failures: 0 }
    }
}

impl Pace {
    /// Takes up what the server has just said of the task; `suggestion` is its `pollInterval` or
    /// `pollIntervalMs`.
    pub(super) fn heed(&mut self, suggestion: Option<&Json>) {
        self.failures = 0;
        self.interval = suggestion.and_then(milliseconds).map_or(USUAL, |given| given.clamp(SHORTEST, LONGEST));
    }

    /// Notes a failure to ask; says whether to go on.
    pub(super) fn bears(&mut self, error: &BackendError) -> bool {
        self.failures += 1;
        self.failures <= FAILURES && may_pass(error)
    }

    /// Waits until the task is to be asked after again: never sooner than suggested, and not at the
    /// same moment as others that began to wait at the same time.
    pub(super) async fn wait(&self) {
        sleep(self.delay().mul_f64(1.0 + fastrand::f64() / 8.0)).await;
    }

    fn delay(&self) -> Duration {
        match self.failures.checked_sub(1) {
            None => self.interval,
            Some(doublings) => {
                let backoff = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(doublings));
                backoff.clamp(self.interval.min(LONGEST), LONGEST)
            }
        }
    }
}

/// Whether asking again can help. Asking is safe to repeat.
pub(super) fn may_pass(error: &BackendError) -> bool {
    !matches!(
        error,
        BackendError::ShuttingDown
            | BackendError::Unauthorized { .. }
            | BackendError::NoCommonRevision { .. }
            | BackendError::ResponseTooLarge { .. }
    )
}

/// A duration in milliseconds; fractions are dropped.
pub(super) fn milliseconds(value: &Json) -> Option<Duration> {
    let given = value.as_text().parse::<f64>().ok()?;
    Duration::try_from_secs_f64(given / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_heeded_within_bounds() {
        let mut pace = Pace::default();
        for (given, taken) in
            [("0", 50), ("50", 50), ("2000", 2000), ("1.5e3", 1500), ("9e99", 1000), ("99999", 30_000), ("-1", 1000)]
        {
            pace.heed(Some(&Json::parse(given.to_owned().into(), 1).unwrap()));
            assert_eq!(pace.delay().as_millis(), taken, "{given}");
        }
        pace.heed(Some(&Json::literal(r#""soon""#)));
        assert_eq!(pace.delay(), USUAL);
        pace.heed(None);
        assert_eq!(pace.delay(), USUAL);
    }

    #[test]
    fn failures_are_borne_for_a_while() {
        let mut pace = Pace::default();
        let lost = BackendError::ClosedEarly;
        let mut borne = Duration::ZERO;
        while pace.bears(&lost) {
            borne += pace.delay();
        }
        assert!((120..400).contains(&borne.as_secs()), "{borne:?}");
        pace.heed(None);
        assert!(pace.bears(&lost));
        assert!(!pace.bears(&BackendError::ShuttingDown));
    }
}
