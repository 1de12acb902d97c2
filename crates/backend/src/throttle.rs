//! Warnings that a peer can provoke at will, at a bounded rate.
//!
//! Must not know: what is warned of.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one warning through per interval and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    suppressed: u64,
}

impl Throttle {
    /// Whether to warn now, and if so how many warnings were kept back since the last.
    pub(crate) fn admit(&self) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *window {
            Some(open) if open.since.elapsed() < INTERVAL => {
                open.suppressed += 1;
                None
            }
            other => {
                let suppressed = other.as_ref().map_or(0, |closed| closed.suppressed);
                *other = Some(Window { since: Instant::now(), suppressed: 0 });
                Some(suppressed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn admits_one_per_interval_and_counts_the_rest() {
        let throttle = Throttle::default();
        assert_eq!([throttle.admit(), throttle.admit(), throttle.admit()], [Some(0), None, None]);
        tokio::time::advance(INTERVAL).await;
        assert_eq!([throttle.admit(), throttle.admit()], [Some(2), None]);
    }
}
