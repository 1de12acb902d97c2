//! The open connections of a listener, by peer, and which of them ends when all are taken.
//!
//! One peer may take every connection as long as no other wants one: behind a reverse proxy all clients are one peer.
//! When all are taken, the new connection ends idle ones: of the peer that has most, though never of one that has fewer
//! than the new one's. Connections that have not carried a request yet end first, then those that have been idle
//! longest. A connection with a request is never ended.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The part of the connections that is ended at once, so that a flood of new ones does not search for each.
const AT_ONCE: usize = 256;

/// An open connection, as far as it may be ended for another.
pub trait Endable: Send + Sync {
    /// Since when it has carried no request; `None` while it carries one.
    fn idle(&self) -> Option<Idle>;

    /// Ends it at once.
    fn end(&self);
}

/// How a connection is idle. The lesser ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Idle {
    /// Whether it has carried a request before.
    pub has_served: bool,
    /// Since when it carries none.
    pub since: Instant,
}

/// The connections of a listener.
#[derive(Default)]
pub(crate) struct Connections {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    peers: HashMap<IpAddr, HashMap<u64, Arc<dyn Endable>>>,
    next: u64,
}

/// The entry of a connection, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    connections: Arc<Connections>,
    peer: IpAddr,
    number: u64,
}

impl Connections {
    /// Enters a connection of `peer`.
    #[must_use]
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, connection: Arc<dyn Endable>) -> Entry {
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        table.peers.entry(peer).or_default().insert(number, connection);
        Entry { connections: Arc::clone(self), peer, number }
    }

    /// The number of connections of `peer`.
    #[must_use]
    pub(crate) fn count(&self, peer: IpAddr) -> usize {
        self.lock().peers.get(&peer).map_or(0, HashMap::len)
    }

    /// Ends idle connections for a new one of `newcomer` where all of `limit` are taken; returns whether there were
    /// any. They are gone a moment later.
    pub(crate) fn make_space(&self, newcomer: IpAddr, limit: usize) -> bool {
        let ended = {
            let table = self.lock();
            let own = table.peers.get(&newcomer).map_or(0, HashMap::len);
            let mut peers: Vec<_> =
                table.peers.iter().filter(|(peer, all)| **peer == newcomer || all.len() > own).collect();
            peers.sort_unstable_by_key(|(_, all)| std::cmp::Reverse(all.len()));
            peers.into_iter().map(|(_, all)| idle(all, (limit / AT_ONCE).max(1))).find(|idle| !idle.is_empty())
        };
        // Without the lock.
        let ended = ended.unwrap_or_default();
        ended.iter().for_each(|connection| connection.end());
        !ended.is_empty()
    }

    /// Ends one idle connection of `peer`; returns whether there was any.
    pub(crate) fn make_space_within(&self, peer: IpAddr) -> bool {
        let ended = self.lock().peers.get(&peer).map(|all| idle(all, 1)).unwrap_or_default();
        ended.iter().for_each(|connection| connection.end());
        !ended.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

/// The first `most` of the idle ones.
fn idle(connections: &HashMap<u64, Arc<dyn Endable>>, most: usize) -> Vec<Arc<dyn Endable>> {
    let mut idle: Vec<_> = connections.values().filter_map(|one| Some((one.idle()?, one))).collect();
    idle.sort_unstable_by_key(|(idle, _)| *idle);
    idle.into_iter().take(most).map(|(_, connection)| Arc::clone(connection)).collect()
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.connections.lock();
        let Some(all) = table.peers.get_mut(&self.peer) else { return };
        all.remove(&self.number);
        if all.is_empty() {
            table.peers.remove(&self.peer);
        }
    }
}

/// The address by which a peer is told apart: of IPv6 the network of 64 bits, of which one host can use any address.
#[must_use]
pub fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    struct Fake {
        idle: Option<Idle>,
        has_ended: AtomicBool,
    }

    impl Endable for Fake {
        fn idle(&self) -> Option<Idle> {
            self.idle.filter(|_| !self.has_ended.load(Ordering::Relaxed))
        }

        fn end(&self) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
    }

    fn peer(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// Enters connections: the peer, whether each has served, and its idle time in seconds, `None` for a busy one.
    fn entered(all: &Arc<Connections>, each: &[(u8, bool, Option<u64>)]) -> Vec<(Arc<Fake>, Entry)> {
        let base = Instant::now() + Duration::from_secs(1000);
        let enter = |&(last, has_served, idle): &(u8, bool, Option<u64>)| {
            let idle = idle.map(|seconds| Idle { has_served, since: base - Duration::from_secs(seconds) });
            let fake = Arc::new(Fake { idle, has_ended: AtomicBool::new(false) });
            let entry = all.enter(peer(last), Arc::clone(&fake) as Arc<dyn Endable>);
            (fake, entry)
        };
        each.iter().map(enter).collect()
    }

    fn ended(connections: &[(Arc<Fake>, Entry)]) -> Vec<usize> {
        let has_ended = |fake: &Fake| fake.has_ended.load(Ordering::Relaxed);
        connections.iter().enumerate().filter(|(_, (fake, _))| has_ended(fake)).map(|(at, _)| at).collect()
    }

    #[test]
    fn idle_connection_of_the_peer_with_most_ends() {
        let all = Arc::new(Connections::default());
        let each = [(1, true, Some(9)), (1, true, Some(8)), (1, true, None), (2, true, Some(99)), (2, true, Some(1))];
        let open = entered(&all, &each);
        assert!(all.make_space(peer(3), 5));
        assert_eq!(ended(&open), [0]);
    }

    #[test]
    fn connection_without_a_request_yet_ends_first() {
        let all = Arc::new(Connections::default());
        let open = entered(&all, &[(1, true, Some(99)), (1, false, Some(1)), (1, false, Some(2))]);
        assert!(all.make_space(peer(1), 3), "a peer loses its own to its own");
        assert_eq!(ended(&open), [2]);
    }

    #[test]
    fn peer_with_fewer_connections_loses_none() {
        let all = Arc::new(Connections::default());
        let open = entered(&all, &[(1, true, None), (1, true, None), (2, true, Some(99)), (3, true, Some(9))]);
        assert!(!all.make_space(peer(1), 4), "all of its own are busy");
        assert!(all.make_space(peer(9), 4) && ended(&open).len() == 1, "one of those with an idle one");
        assert!(!all.make_space_within(peer(1)));
    }

    #[test]
    fn busy_connections_stay() {
        let all = Arc::new(Connections::default());
        let open = entered(&all, &[(1, true, None), (1, true, None)]);
        assert!(!all.make_space(peer(2), 2) && ended(&open).is_empty());
        drop(open);
        assert_eq!(all.count(peer(1)), 0);
        assert!(all.lock().peers.is_empty());
    }

    #[test]
    fn many_end_at_once_where_there_are_many() {
        let all = Arc::new(Connections::default());
        let each: Vec<_> = (0..1024).map(|seconds| (1, true, Some(seconds))).collect();
        let open = entered(&all, &each);
        assert!(all.make_space(peer(2), 1024));
        assert_eq!(ended(&open), [1020, 1021, 1022, 1023]);
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let of = |text: &str| peer_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::1"), IpAddr::V6(Ipv6Addr::LOCALHOST));
    }
}
