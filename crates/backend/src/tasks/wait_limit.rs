//! The limit of requests that wait for tasks, of which each peer has a share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanlight_canonical::Peer;

use crate::concurrency::OWNER;

/// The requests that may wait for tasks of one backend.
pub(super) struct WaitLimit(Arc<Shared>);

struct Shared {
    limit: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    all: usize,
    /// Of those that have any.
    of_peers: HashMap<Peer, usize>,
}

/// Counts a request that waits until it is dropped.
pub(super) struct WaitPermit {
    shared: Arc<Shared>,
    peer: Peer,
}

impl WaitLimit {
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Shared { limit, waiting: Mutex::default() }))
    }

    /// How many may wait in all.
    pub(super) fn limit(&self) -> usize {
        self.0.limit
    }

    /// A permit, unless all are in use, or the peer's share of them.
    pub(super) fn acquire(&self, peer: &Peer) -> Option<WaitPermit> {
        let mut waiting = self.0.lock();
        let (own, free) = (waiting.of_peers.get(peer).copied().unwrap_or(0), self.0.limit - waiting.all);
        if free == 0 || !OWNER.allows(own, free, self.0.limit) {
            return None;
        }
        waiting.all += 1;
        waiting.of_peers.insert(peer.clone(), own + 1);
        Some(WaitPermit { shared: Arc::clone(&self.0), peer: peer.clone() })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that can panic runs under this lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock();
        waiting.all -= 1;
        if let Some(own) = waiting.of_peers.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                waiting.of_peers.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_leaves_some_waits_to_others() {
        let waits = WaitLimit::new(32);
        let peer = |last| Peer::Address([10, 0, 0, last].into());
        let noisy: Vec<_> = std::iter::from_fn(|| waits.acquire(&peer(1))).collect();
        assert_eq!(noisy.len(), 30);
        let others = [2, 3].map(|of| waits.acquire(&peer(of)));
        assert!(others.iter().all(Option::is_some) && waits.acquire(&peer(4)).is_none());
        drop((noisy, others));
        assert!(waits.0.lock().of_peers.is_empty());
        let few = WaitLimit::new(1);
        assert!(few.acquire(&peer(1)).is_some());
    }
}
