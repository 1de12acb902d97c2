//! A limit of how many connections or streams may be open at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How often the log reports that a limit is reached: clients can cause that at will. No option: the metrics count
/// each.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Counts against a [`ConcurrencyLimit`] until it is dropped.
pub type Permit = OwnedSemaphorePermit;

/// A number of permits, each for something that is open.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    permits: Arc<Semaphore>,
    warnings: WarningLimit,
}

/// Bounds how often a warning that clients can cause is logged.
#[derive(Debug, Default)]
pub struct WarningLimit(Mutex<Option<Instant>>);

impl WarningLimit {
    /// Whether to log now: not more than once in ten seconds.
    pub fn is_due(&self) -> bool {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = warned.is_none_or(|last| last.elapsed() >= WARN_INTERVAL);
        if is_due {
            *warned = Some(Instant::now());
        }
        is_due
    }
}

impl ConcurrencyLimit {
    /// A limit of `most` permits, at least one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(most)), warnings: WarningLimit::default() }
    }

    /// A permit, if one is left.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits for a permit. There always is one in the end, since the semaphore is never closed.
    pub async fn acquire(&self) -> Option<Permit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Whether to log now that no permit is left: not more than once in ten seconds.
    pub fn is_warning_due(&self) -> bool {
        self.warnings.is_due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn limit_gives_each_permit_once_and_warns_rarely() {
        let limit = ConcurrencyLimit::new(1);
        let permit = limit.try_acquire();
        assert!(permit.is_some() && limit.try_acquire().is_none());
        assert_eq!([limit.is_warning_due(), limit.is_warning_due()], [true, false]);
        tokio::time::advance(WARN_INTERVAL).await;
        assert!(limit.is_warning_due());
        drop(permit);
        assert!(limit.acquire().await.is_some());
    }
}
