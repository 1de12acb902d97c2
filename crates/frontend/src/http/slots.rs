//! How many connections, and how many event streams, there may be at once, and a word in the log
//! when no more have room.
//!
//! Must not know: what they carry.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::settings::FrontendSettings;

/// How often the log says that there is no room: clients can bring that about at will.
const INTERVAL: Duration = Duration::from_secs(10);

/// One of so many; its place is free again when this is dropped.
pub(crate) type Slot = OwnedSemaphorePermit;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    limit: usize,
    warned: Mutex<Option<Instant>>,
}

impl Slots {
    /// Room for the connections of a listener.
    pub(crate) fn for_connections(settings: &FrontendSettings) -> Self {
        Self::new(settings.max_connections)
    }

    /// Room for streams on which clients only listen. A quarter of the connections is never theirs:
    /// whoever listens is to hear of things that others do, and those need a connection for it.
    pub(crate) fn for_streams(settings: &FrontendSettings) -> Self {
        let most = settings.max_connections - settings.max_connections.div_ceil(4);
        Self::new(settings.max_streams.min(most))
    }

    fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(limit)), limit, warned: Mutex::default() }
    }

    /// How many there are in all.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// A place, if one is free.
    pub(crate) fn try_enter(&self) -> Option<Slot> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// A place, once one is free.
    pub(crate) async fn enter(&self) -> Option<Slot> {
        // The semaphore is never closed, so there always is one in the end.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Whether to say now that there is no room.
    pub(crate) fn is_to_warn(&self) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = warned.is_none_or(|last| last.elapsed() >= INTERVAL);
        if due {
            *warned = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(max_connections: usize, max_streams: usize) -> usize {
        Slots::for_streams(&FrontendSettings { max_connections, max_streams, ..FrontendSettings::default() }).limit()
    }

    #[test]
    fn a_quarter_of_the_connections_is_for_requests() {
        assert_eq!(streams(100, 50), 50);
        assert_eq!(streams(100, 1000), 75);
        assert_eq!([1, 2, 3, 4, 5].map(|connections| streams(connections, 1000)), [1, 1, 2, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_had_once_and_the_log_is_not_flooded() {
        let slots = Slots::new(1);
        let held = slots.try_enter();
        assert!(held.is_some() && slots.try_enter().is_none());
        assert_eq!([slots.is_to_warn(), slots.is_to_warn()], [true, false]);
        tokio::time::advance(INTERVAL).await;
        assert!(slots.is_to_warn());
        drop(held);
        assert!(slots.enter().await.is_some());
    }
}
