//! Delays between attempts at something that fails: exponential, jittered, bounded.

use std::time::Duration;

const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Delays that double from attempt to attempt, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The delay before the next attempt: between half and all of the nominal one, so that many
    /// gateways do not reconnect to one server at the same time.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let nominal = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST_DELAY);
        self.failures = self.failures.saturating_add(1);
        nominal.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit() {
        let mut backoff = Backoff::default();
        for nominal in [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000] {
            let delay = backoff.next_delay().as_millis();
            assert!((nominal / 2..=nominal).contains(&delay), "{delay} of {nominal}");
        }
        backoff.failures = u32::MAX;
        assert!(backoff.next_delay() <= LONGEST_DELAY);
    }
}
