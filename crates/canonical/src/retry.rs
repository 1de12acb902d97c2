//! Pauses between attempts.

use std::time::Duration;

/// Pauses between attempts, which double from the shortest to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelays {
    /// After the first failure.
    pub shortest: Duration,
    /// After many.
    pub longest: Duration,
}
