//! Delays between attempts: exponential, jittered, bounded.

use std::time::Duration;

/// The longest delay while a server refuses the credentials. New ones end it; clients shorten it.
const AFTER_REFUSALS: Duration = Duration::from_secs(15 * 60);

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

/// Delays that double from attempt to attempt, up to a limit.
#[derive(Debug)]
pub struct Backoff {
    delays: RetryDelays,
    failures: u32,
}

impl Backoff {
    /// Begins with the shortest delay.
    pub fn new(delays: RetryDelays) -> Self {
        Self {
            delays,
            failures: 0,
        }
    }

    /// Begins with the shortest delay again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Whether an attempt has failed since the beginning or the last reset.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// The delay before the next attempt: between half and all of the nominal one. So many gateways
    /// do not reconnect to one server at the same time.
    pub fn next_delay(&mut self) -> Duration {
        self.grown(2, self.delays.longest)
    }

    /// The delay before a server is asked again that refused the credentials. It answers, so it
    /// will most likely refuse them again.
    pub fn delay_after_refusal(&mut self) -> Duration {
        self.grown(10, AFTER_REFUSALS)
    }

    fn grown(&mut self, factor: u32, longest: Duration) -> Duration {
        let nominal = self
            .delays
            .shortest
            .saturating_mul(factor.saturating_pow(self.failures))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        nominal.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit() {
        let longest = Duration::from_secs(30);
        let mut backoff = Backoff::new(RetryDelays {
            shortest: Duration::from_millis(500),
            longest,
        });
        for nominal in [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000] {
            let delay = backoff.next_delay().as_millis();
            assert!(
                (nominal / 2..=nominal).contains(&delay),
                "{delay} of {nominal}"
            );
        }
        backoff.reset();
        for nominal in [500, 5000, 50_000, 500_000, 900_000] {
            let delay = backoff.delay_after_refusal().as_millis();
            assert!((nominal / 2..=nominal).contains(&delay), "{delay}");
        }
        backoff.failures = u32::MAX;
        assert!(backoff.next_delay() <= longest);
    }
}
