//! A bound on the bytes that clients hold in memory, which one of them cannot use up alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fanlight_canonical::Peer;
use foldhash::fast::RandomState;

/// Texts up to this size are not counted: the request that carries one takes several times as much, and other limits
/// bound the number of requests.
pub(crate) const UNCOUNTED: usize = 4 << 10;

/// A number of bytes that all clients share.
///
/// One peer may hold as much as it leaves free for others: alone half of all, beside another that does the same a
/// third. What it holds first is bounded by the whole only, so that each peer can send one message of any size that is
/// allowed.
#[derive(Clone)]
pub struct ByteBudget(Arc<Shared>);

struct Shared {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The sum of all holdings; at most the limit.
    held: usize,
    /// Peers that hold nothing have no entry.
    peers: HashMap<Peer, Holding, RandomState>,
}

#[derive(Default)]
struct Holding {
    bytes: usize,
    reservations: usize,
}

/// The budget, or the share of a peer, is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("busy: the memory for messages of clients is in use; try again later")]
pub(crate) struct Spent;

/// Bytes that a peer holds, until this is dropped.
pub(crate) struct Reservation {
    budget: ByteBudget,
    peer: Peer,
    bytes: usize,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Shared { limit, state: Mutex::default() }))
    }

    /// The number of bytes in all.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Reserves bytes for a peer.
    pub(crate) fn reserve(&self, peer: &Peer, bytes: usize) -> Result<Reservation, Spent> {
        self.lock().take(self.0.limit, peer, bytes, true)?;
        Ok(Reservation { budget: self.clone(), peer: peer.clone(), bytes })
    }

    /// The same text, counted until its last part is dropped, unless it is small.
    pub(crate) fn count(&self, peer: &Peer, text: Bytes) -> Result<Bytes, Spent> {
        if text.len() <= UNCOUNTED {
            return Ok(text);
        }
        Ok(self.reserve(peer, text.len())?.hold(text))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `is_new`: for a further reservation of the peer, not for more bytes of one that exists.
    fn take(&mut self, limit: usize, peer: &Peer, bytes: usize, is_new: bool) -> Result<(), Spent> {
        let free = limit.checked_sub(self.held).and_then(|free| free.checked_sub(bytes)).ok_or(Spent)?;
        let holding = self.peers.get(peer);
        let (own, reservations) = holding.map_or((0, 0), |holding| (holding.bytes, holding.reservations));
        let is_first = reservations == usize::from(!is_new);
        if !is_first && own + bytes > free {
            return Err(Spent);
        }
        let holding = self.peers.entry(peer.clone()).or_default();
        holding.bytes += bytes;
        holding.reservations += usize::from(is_new);
        self.held += bytes;
        Ok(())
    }

    fn give_back(&mut self, peer: &Peer, bytes: usize, is_last: bool) {
        self.held -= bytes;
        if let Some(holding) = self.peers.get_mut(peer) {
            holding.bytes -= bytes;
            holding.reservations -= usize::from(is_last);
            if holding.reservations == 0 {
                self.peers.remove(peer);
            }
        }
    }
}

impl Reservation {
    /// Changes the number of bytes. On an error it stays what it was.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Spent> {
        let mut state = self.budget.lock();
        match bytes.checked_sub(self.bytes) {
            Some(more) => state.take(self.budget.limit(), &self.peer, more, false)?,
            None => state.give_back(&self.peer, self.bytes - bytes, false),
        }
        drop(state);
        self.bytes = bytes;
        Ok(())
    }

    /// The same text, which holds this reservation until its last part is dropped.
    pub(crate) fn hold(self, text: Bytes) -> Bytes {
        Bytes::from_owner(Held { text, _reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.lock().give_back(&self.peer, self.bytes, true);
    }
}

impl std::fmt::Debug for ByteBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteBudget").field("limit", &self.0.limit).field("held", &self.lock().held).finish()
    }
}

/// A text and its reservation. Fields are dropped in order of declaration.
struct Held {
    text: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn peer(number: u8) -> Peer {
        Peer::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)))
    }

    fn held(budget: &ByteBudget) -> usize {
        budget.lock().held
    }

    #[test]
    fn peer_leaves_as_much_as_it_holds() {
        let budget = ByteBudget::new(120);
        let hoard = |number| std::iter::from_fn(|| budget.reserve(&peer(number), 1).ok()).collect::<Vec<_>>();
        let first = hoard(1);
        assert_eq!(first.len(), 60);
        let second = hoard(2);
        assert_eq!(second.len(), 30);
        assert_eq!(hoard(3).len(), 15);
        drop(second);
        assert_eq!(held(&budget), 60);
        drop(first);
        assert_eq!(held(&budget), 0);
        assert!(budget.lock().peers.is_empty());
    }

    #[test]
    fn first_reservation_of_a_peer_may_be_as_large_as_all_that_is_free() {
        let budget = ByteBudget::new(100);
        let mut first = budget.reserve(&peer(1), 10).unwrap();
        first.resize(90).unwrap();
        assert_eq!(first.resize(101), Err(Spent));
        assert!(budget.reserve(&peer(1), 1).is_err(), "beyond its share");
        let other = budget.reserve(&peer(2), 10).unwrap();
        assert!(budget.reserve(&peer(3), 1).is_err(), "beyond all");
        first.resize(20).unwrap();
        assert_eq!(held(&budget), 30);
        assert!(budget.reserve(&peer(1), 15).is_ok());
        drop((first, other));
        assert_eq!(held(&budget), 0);
    }

    #[test]
    fn text_is_counted_until_its_last_part_is_dropped() {
        let budget = ByteBudget::new(64 << 10);
        let small = budget.count(&Peer::Local, Bytes::from(vec![0; UNCOUNTED])).unwrap();
        assert_eq!((small.len(), held(&budget)), (UNCOUNTED, 0));
        let text = budget.count(&Peer::Local, Bytes::from(vec![1; 10_000])).unwrap();
        let part = text.slice(9_999..);
        drop(text);
        assert_eq!(held(&budget), 10_000);
        drop(part);
        assert_eq!(held(&budget), 0);
    }
}
