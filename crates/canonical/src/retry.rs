//! Pauses between attempts.

use std::time::Duration;

/// Pauses between attempts, which double from the shortest to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelays {
    /// The pause after the first failure.
    pub shortest: Duration,
    /// The pause after many failures.
    pub longest: Duration,
}

impl RetryDelays {
    /// Pauses before notifications are requested again from a server that refused them.
    pub const LISTEN: Self = Self {
        shortest: Duration::from_secs(1),
        longest: Duration::from_secs(60),
    };
}
