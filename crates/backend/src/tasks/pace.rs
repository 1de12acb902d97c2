//! The interval of polling a task, and the number of tolerated failures.

use std::time::Duration;

use fanlight_canonical::BackendError;
use fanlight_protocol::{Json, Response};
use tokio::time::sleep;

use crate::settings::PollIntervals;

/// The delay after the first failure in a row; it doubles up to the longest interval. A constant:
/// the longest interval and the tolerated failures matter more.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// The pace of polling one task.
#[derive(Debug)]
pub(super) struct Pace {
    bounds: PollIntervals,
    interval: Duration,
    /// Failures in a row.
    failures: u32,
}

/// The outcome of a request about a task.
pub(super) enum Step {
    Result(Json),
    /// The server has refused the request for good.
    Refused(Response),
    /// The request failed, but may succeed later.
    Retry,
}

impl Pace {
    pub(super) fn new(bounds: PollIntervals) -> Self {
        Self {
            bounds,
            interval: bounds.usual,
            failures: 0,
        }
    }

    /// Follows the suggestion in the latest state, its `pollInterval` or `pollIntervalMs`.
    pub(super) fn follow(&mut self, suggestion: Option<&Json>) {
        self.failures = 0;
        let PollIntervals {
            usual,
            shortest,
            longest,
            ..
        } = self.bounds;
        let within = |given: Duration| given.min(longest).max(shortest);
        self.interval = suggestion.and_then(milliseconds).map_or(usual, within);
    }

    /// Judges the outcome of a request about the task. Such requests are safe to repeat, so
    /// transient failures are tolerated for a while; an error code in `refusals` is final.
    pub(super) fn judge(
        &mut self,
        outcome: Result<Response, BackendError>,
        refusals: &[i64],
    ) -> Result<Step, BackendError> {
        match outcome {
            Err(error) if self.tolerates(&error) => Ok(Step::Retry),
            Err(error) => Err(error),
            Ok(response) => match (response.result(), response.error_code()) {
                (Some(result), _) => Ok(Step::Result(result)),
                (None, Some(code)) if refusals.contains(&code) => Ok(Step::Refused(response)),
                // The server got too many requests, or is out of order for the moment.
                _ if self.tolerates(&BackendError::ClosedEarly) => Ok(Step::Retry),
                _ => Ok(Step::Refused(response)),
            },
        }
    }

    /// Counts a failure; false if it is final.
    fn tolerates(&mut self, error: &BackendError) -> bool {
        self.failures += 1;
        usize::try_from(self.failures).is_ok_and(|failures| failures <= self.bounds.failures)
            && is_transient(error)
    }

    /// Waits until the next poll: never less than suggested, and with jitter, so that simultaneous
    /// starts spread out.
    pub(super) async fn wait(&self) {
        sleep(self.delay().mul_f64(1.0 + fastrand::f64() / 8.0)).await;
    }

    fn delay(&self) -> Duration {
        match self.failures.checked_sub(1) {
            None => self.interval,
            Some(doublings) => {
                let backoff = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(doublings));
                backoff.max(self.interval).min(self.bounds.longest)
            }
        }
    }
}

/// Whether a request may succeed if it is repeated.
pub(super) fn is_transient(error: &BackendError) -> bool {
    !matches!(
        error,
        BackendError::ShuttingDown
            | BackendError::Interrupted
            | BackendError::Unauthorized { .. }
            | BackendError::NoCommonRevision { .. }
            | BackendError::ResponseTooLarge { .. }
    )
}

/// A duration in milliseconds; drops fractions.
pub(super) fn milliseconds(value: &Json) -> Option<Duration> {
    let given = value.as_text().parse::<f64>().ok()?;
    Duration::try_from_secs_f64(given / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: PollIntervals = PollIntervals {
        usual: Duration::from_secs(1),
        shortest: Duration::from_millis(50),
        longest: Duration::from_secs(30),
        failures: 14,
    };

    #[test]
    fn pace_follows_suggestions_within_bounds() {
        let mut pace = Pace::new(BOUNDS);
        for (given, taken) in [
            ("0", 50),
            ("50", 50),
            ("2000", 2000),
            ("1.5e3", 1500),
            ("9e99", 1000),
            ("99999", 30_000),
            ("-1", 1000),
        ] {
            pace.follow(Some(&Json::parse(given.to_owned().into(), 1).unwrap()));
            assert_eq!(pace.delay().as_millis(), taken, "{given}");
        }
        pace.follow(Some(&Json::literal(r#""soon""#)));
        assert_eq!(pace.delay(), BOUNDS.usual);
        pace.follow(None);
        assert_eq!(pace.delay(), BOUNDS.usual);
    }

    #[test]
    fn pace_tolerates_failures_for_a_while() {
        let mut pace = Pace::new(BOUNDS);
        let lost = BackendError::ClosedEarly;
        let mut tolerated = Duration::ZERO;
        while pace.tolerates(&lost) {
            tolerated += pace.delay();
        }
        assert!((120..400).contains(&tolerated.as_secs()), "{tolerated:?}");
        pace.follow(None);
        assert!(pace.tolerates(&lost));
        assert!(!pace.tolerates(&BackendError::ShuttingDown));
    }
}
