//! A limit for the number of open connections or streams.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of permits, one for each open connection or stream. The number can change.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    permits: Arc<Semaphore>,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// The total number of permits.
    most: usize,
    /// The number of permits in use beyond a lowered limit. They are not given out again.
    excess: usize,
}

/// Counts against a [`ConcurrencyLimit`] until dropped.
#[derive(Debug)]
pub struct Permit {
    /// The permit; `None` only while this is being dropped.
    permit: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared>,
}

impl ConcurrencyLimit {
    /// A limit of `most` permits, at least one.
    pub fn new(most: usize) -> Self {
        let most = bounded(most);
        let shared = Shared {
            permits: Arc::new(Semaphore::new(most)),
            counts: Mutex::new(Counts { most, excess: 0 }),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Changes the total number of permits, at least one. Permits in use stay valid, even above the
    /// limit.
    pub fn resize(&self, most: usize) {
        let permits = &self.shared.permits;
        let mut counts = self.shared.counts.lock();
        let most = bounded(most);
        let before = std::mem::replace(&mut counts.most, most);
        if most < before {
            counts.excess += before - most - permits.forget_permits(before - most);
        } else {
            let kept = (most - before).min(counts.excess);
            counts.excess -= kept;
            permits.add_permits(most - before - kept);
        }
    }

    /// A permit, if one is left.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        Arc::clone(&self.shared.permits)
            .try_acquire_owned()
            .ok()
            .map(|permit| self.permit(permit))
    }

    /// Waits for a permit. Never `None`, since the semaphore is never closed.
    pub async fn acquire(&self) -> Option<Permit> {
        Arc::clone(&self.shared.permits)
            .acquire_owned()
            .await
            .ok()
            .map(|permit| self.permit(permit))
    }

    fn permit(&self, permit: OwnedSemaphorePermit) -> Permit {
        Permit {
            permit: Some(permit),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.shared.counts.lock();
        if counts.excess > 0
            && let Some(permit) = self.permit.take()
        {
            counts.excess -= 1;
            permit.forget();
        }
    }
}

/// A number of permits that a semaphore supports, at least one.
fn bounded(most: usize) -> usize {
    most.clamp(1, Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn limit_gives_each_permit_once() {
        let limit = ConcurrencyLimit::new(1);
        let permit = limit.try_acquire();
        assert!(permit.is_some() && limit.try_acquire().is_none());
        drop(permit);
        assert!(limit.acquire().await.is_some());
    }

    #[test]
    fn resized_limit_counts_permits_that_were_given_out_before() {
        let limit = ConcurrencyLimit::new(4);
        let mut held: Vec<_> = (0..3).map(|_| limit.try_acquire().unwrap()).collect();
        limit.resize(1);
        for left in [2, 1] {
            assert!(limit.try_acquire().is_none());
            held.truncate(left);
        }
        assert!(limit.try_acquire().is_none(), "the last one is held");
        held.clear();
        let only = limit.try_acquire();
        assert!(only.is_some() && limit.try_acquire().is_none());
        limit.resize(2);
        let second = limit.try_acquire();
        assert!(second.is_some() && limit.try_acquire().is_none());
        // The limit changes back before any permit is dropped.
        limit.resize(1);
        limit.resize(2);
        assert!(limit.try_acquire().is_none());
        drop((only, second));
        let both = [limit.try_acquire(), limit.try_acquire()];
        assert!(both.iter().all(Option::is_some) && limit.try_acquire().is_none());
    }
}
