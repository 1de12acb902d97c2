//! Limits the bytes that clients hold in memory. No single client can use up the limit.

use bytes::Bytes;
use fanlight_canonical::Peer;
use fanlight_fair::{Budget, Part, Spent};

/// The largest text that is not counted. Its request takes several times as much, and other limits
/// bound the number of requests.
pub(crate) const UNCOUNTED: usize = 4 << 10;

/// A number of bytes that all clients share.
///
/// A peer may hold as much as it leaves free for others: half of all if it is alone, a third beside
/// another such peer. Only the whole limits a peer's first reservation, so each peer can send one
/// message of any allowed size.
#[derive(Clone, Debug)]
pub struct ByteBudget(Budget<Peer>);

/// Bytes that a peer holds until this is dropped.
pub(crate) type Reservation = fanlight_fair::Reservation<Peer>;

/// The text for a client whose message does not fit into its budget.
pub(crate) const NO_MEMORY: &str =
    "busy: the memory for messages of clients is in use; try again later";

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Budget::new(limit, Part::AS_MUCH_AS_IT_LEAVES))
    }

    /// Reserves bytes for a peer.
    pub(crate) fn reserve(&self, peer: &Peer, bytes: usize) -> Result<Reservation, Spent> {
        self.0.reserve(peer, bytes)
    }

    /// The same text, counted until its last part is dropped, unless it is small.
    pub(crate) fn count(&self, peer: &Peer, text: Bytes) -> Result<Bytes, Spent> {
        if text.len() <= UNCOUNTED {
            return Ok(text);
        }
        Ok(self.reserve(peer, text.len())?.hold(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_counted_until_its_last_part_is_dropped() {
        let budget = ByteBudget::new(64 << 10);
        let small = budget
            .count(&Peer::Local, Bytes::from(vec![0; UNCOUNTED]))
            .unwrap();
        assert_eq!((small.len(), budget.0.held()), (UNCOUNTED, 0));
        let text = budget
            .count(&Peer::Local, Bytes::from(vec![1; 10_000]))
            .unwrap();
        let part = text.slice(9_999..);
        drop(text);
        assert_eq!(budget.0.held(), 10_000);
        drop(part);
        assert_eq!(budget.0.held(), 0);
    }
}
