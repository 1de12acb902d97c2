//! Accepted connections that wait for another one to end. They are separated by peer, so one peer's
//! connections delay no other's, as they would in the socket's backlog.

use std::cmp::Reverse;
use std::time::Duration;

use fanlight_fair::Table;
use tokio::time::Instant;

use crate::connections::ConnectionPeer;

/// The connections that wait.
#[derive(Debug)]
pub(crate) struct WaitingConnections<T> {
    /// The waiting connections by their numbers, in the order of arrival.
    all: Table<ConnectionPeer, u64, WaitingConnection<T>>,
    next: u64,
    limit: usize,
}

#[derive(Debug)]
struct WaitingConnection<T> {
    stream: T,
    since: Instant,
    prospect: Prospect,
}

/// The prospect of a waiting connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prospect {
    Unknown,
    /// Another connection is being closed for this one.
    Promised,
    /// No connection could be closed for this one.
    InVain,
}

impl<T> WaitingConnections<T> {
    /// Allows at most `limit` waiting connections, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            all: Table::default(),
            next: 0,
            limit: limit.max(1),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.all.len() >= self.limit
    }

    /// How long the first connection has waited.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.all
            .values()
            .map(|one| one.since.elapsed())
            .max()
            .unwrap_or_default()
    }

    /// The number of `peer`'s waiting connections.
    pub(crate) fn count(&self, peer: ConnectionPeer) -> usize {
        self.all.count(&peer)
    }

    /// Adds a connection. If that exceeds the limit, returns the newest of the peer with the most.
    pub(crate) fn push(&mut self, stream: T, peer: ConnectionPeer) -> Option<T> {
        let prospect = if self.is_in_vain(peer) {
            Prospect::InVain
        } else {
            Prospect::Unknown
        };
        let number = self.next;
        self.next += 1;
        self.all.insert(
            number,
            peer,
            WaitingConnection {
                stream,
                since: Instant::now(),
                prospect,
            },
        );
        if self.all.len() <= self.limit {
            return None;
        }
        // The new connection counts already.
        let newest = self
            .all
            .newcomer(&peer, self.limit)
            .find_in_largest(1, |one| Some(Reverse(*one.key)))
            .pop()?;
        self.all.remove(&newest).map(|lost| lost.stream)
    }

    /// Takes the connection whose turn it is: of the peer with the fewest in `open`, the one that
    /// has waited longest.
    pub(crate) fn next(
        &mut self,
        open: impl Fn(ConnectionPeer) -> usize,
    ) -> Option<(T, ConnectionPeer)> {
        self.next_of(open, |_| true)
    }

    /// Takes the next connection for which nothing could be ended.
    pub(crate) fn next_in_vain(
        &mut self,
        open: impl Fn(ConnectionPeer) -> usize,
    ) -> Option<(T, ConnectionPeer)> {
        self.next_of(open, |prospect| prospect == Prospect::InVain)
    }

    fn next_of(
        &mut self,
        open: impl Fn(ConnectionPeer) -> usize,
        is_meant: impl Fn(Prospect) -> bool,
    ) -> Option<(T, ConnectionPeer)> {
        let first = |peer: &ConnectionPeer| {
            let meant = self
                .all
                .share_entries(peer)
                .filter(|(_, one)| is_meant(one.prospect));
            meant.map(|(number, _)| *number).min()
        };
        let turns = self
            .all
            .shares()
            .filter_map(|peer| Some((open(*peer), first(peer)?, *peer)));
        let (_, number, peer) = turns.min_by_key(|(open, number, _)| (*open, *number))?;
        self.all.remove(&number).map(|next| (next.stream, peer))
    }

    /// Whether nothing is to be done for this peer now. Another connection is already ending for
    /// it, or nothing could be ended, or none of its connections waits.
    pub(crate) fn is_settled(&self, peer: ConnectionPeer) -> bool {
        let mut own = self.all.share_entries(&peer);
        self.count(peer) == 0 || own.any(|(_, one)| one.prospect != Prospect::Unknown)
    }

    /// Whether the last attempt to end a connection for this peer was in vain.
    fn is_in_vain(&self, peer: ConnectionPeer) -> bool {
        self.all
            .share_entries(&peer)
            .any(|(_, one)| one.prospect == Prospect::InVain)
    }

    /// Records whether another connection is ending for this peer.
    pub(crate) fn note(&mut self, peer: ConnectionPeer, is_ending: bool) {
        let mut own: Vec<_> = self
            .all
            .share_entries(&peer)
            .map(|(number, _)| *number)
            .collect();
        own.sort_unstable();
        let (noted, prospect) = if is_ending {
            (1, Prospect::Promised)
        } else {
            (own.len(), Prospect::InVain)
        };
        for number in own.iter().take(noted) {
            self.all
                .get_mut(number)
                .into_iter()
                .for_each(|one| one.prospect = prospect);
        }
    }

    /// Forgets the prospects, so that all are determined again.
    pub(crate) fn reset(&mut self) {
        self.all
            .values_mut()
            .for_each(|one| one.prospect = Prospect::Unknown);
    }

    /// The peers of waiting connections, each once, the one that has waited longest first.
    pub(crate) fn peers(&self) -> Vec<ConnectionPeer> {
        let first = |peer: &ConnectionPeer| {
            self.all
                .share_entries(peer)
                .map(|(number, _)| *number)
                .min()
        };
        let mut peers: Vec<_> = self.all.shares().copied().collect();
        peers.sort_by_cached_key(first);
        peers
    }

    /// Removes connections that have waited for `longest`; returns their number.
    pub(crate) fn expire(&mut self, longest: Duration) -> usize {
        self.all
            .remove_if(|_, one| one.since.elapsed() >= longest)
            .len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> ConnectionPeer {
        ConnectionPeer::Address([10, 0, 0, last].into())
    }

    fn waiting(limit: usize, each: &[(u32, u8)]) -> (WaitingConnections<u32>, Vec<u32>) {
        let mut waiting = WaitingConnections::new(limit);
        let lost = each
            .iter()
            .filter_map(|(stream, of)| waiting.push(*stream, peer(*of)))
            .collect();
        (waiting, lost)
    }

    #[test]
    fn peer_with_most_waiting_connections_loses_its_newest() {
        let (waiting, lost) = waiting(3, &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 3), (7, 4)]);
        assert_eq!(lost, [4, 3, 2, 7]);
        assert_eq!([1, 2, 3, 4].map(|of| waiting.count(peer(of))), [1, 1, 1, 0]);
    }

    #[test]
    fn peer_with_fewest_open_connections_is_next() {
        let (mut waiting, _) = waiting(9, &[(1, 1), (2, 2), (3, 1), (4, 3)]);
        let open = |of: ConnectionPeer| if of == peer(1) { 5 } else { 0 };
        let order: Vec<_> = std::iter::from_fn(|| waiting.next(open))
            .map(|(stream, _)| stream)
            .collect();
        assert_eq!(order, [2, 4, 1, 3]);
    }

    #[test]
    fn attempt_in_vain_counts_for_all_of_a_peer() {
        let (mut waiting, _) = waiting(9, &[(1, 1), (2, 2)]);
        waiting.note(peer(1), false);
        waiting.push(3, peer(1));
        assert_eq!([1, 2].map(|of| waiting.is_in_vain(peer(of))), [true, false]);
        assert_eq!(waiting.peers(), [peer(1), peer(2)]);
        assert_eq!(waiting.next_in_vain(|_| 0), Some((1, peer(1))));
        waiting.reset();
        assert!(!waiting.is_in_vain(peer(1)));
    }

    #[test]
    fn one_connection_at_a_time_ends_for_a_peer() {
        let (mut waiting, _) = waiting(9, &[(1, 1), (2, 2), (3, 1)]);
        let settled =
            |waiting: &WaitingConnections<u32>| [1, 2, 3].map(|of| waiting.is_settled(peer(of)));
        assert_eq!(settled(&waiting), [false, false, true]);
        waiting.note(peer(1), true);
        assert_eq!(settled(&waiting), [true, false, true]);
        assert_eq!(waiting.next_in_vain(|_| 0), None);
        assert_eq!(waiting.next(|_| 0), Some((1, peer(1))));
        assert_eq!(settled(&waiting), [false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_does_not_wait_for_ever() {
        let (mut waiting, _) = waiting(9, &[(1, 1)]);
        tokio::time::advance(Duration::from_secs(5)).await;
        waiting.push(2, peer(1));
        assert_eq!(waiting.longest_wait(), Duration::from_secs(5));
        assert_eq!(
            (
                waiting.expire(Duration::from_secs(5)),
                waiting.count(peer(1))
            ),
            (1, 1)
        );
        assert!(!waiting.is_empty());
    }
}
