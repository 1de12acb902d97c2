//! The open connections of a listener, by peer, and which of them ends when all are taken.
//!
//! One peer may take every connection as long as no other wants one: behind a reverse proxy all clients are one peer.
//! When all are taken, the new connection ends another, in this order:
//!
//! 1. An idle one of a peer above its share, which is an equal part of all, or of the new connection's own peer, if it has
//!    not just been used or accepted.
//! 2. One that waits for its client, or on which its client only listens, of a peer above its share.
//! 3. An idle one of another peer that has more than the newcomer, unless it has just been used: a client that is about
//!    to use it again would take its end for a failure.
//! 4. One with a request that is being worked on, of a peer above its share, for a peer that has none at all.
//! 5. One of the third kind that has just been used.
//!
//! The peer that has most loses first. Connections with a request end only for a peer that has fewer even afterwards, so
//! that no two peers take them from each other.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The part of the connections that is ended at once, so that a flood of new ones does not search for each.
const AT_ONCE: usize = 256;

/// A connection that has been idle for less has just been used. No option: it only chooses among connections that end
/// for others.
const JUST_USED: Duration = Duration::from_secs(1);

/// Whose share of a limit a connection takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionPeer {
    /// That of an address, of IPv6 a network: [`peer_of`].
    Address(IpAddr),
    /// That of a user of this machine, by its number, on a Unix socket.
    User(u32),
}

/// An open connection, as far as it may be ended for another.
pub trait Endable: Send + Sync {
    /// What it is open for; `None` if it ends already.
    fn usage(&self) -> Option<Usage>;

    /// Ends it at once.
    fn end(&self);
}

/// What a connection is open for. Of one peer, the lesser ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usage {
    /// The most valuable of its requests.
    pub kind: UsageKind,
    /// Since when.
    pub since: Instant,
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageKind {
    /// Nothing yet.
    Unused,
    /// No request at the moment.
    Idle,
    /// A request that has not arrived whole, or an answer that its client does not take.
    WaitsForClient,
    /// Streams on which its client only listens.
    Listens,
    /// A request that is being worked on.
    Works,
}

/// The connections of a listener.
#[derive(Default)]
pub(crate) struct Connections {
    table: Mutex<Table>,
}

type OfPeer = HashMap<u64, Arc<dyn Endable>>;

#[derive(Default)]
struct Table {
    peers: HashMap<ConnectionPeer, OfPeer>,
    next: u64,
}

/// The entry of a connection, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    connections: Arc<Connections>,
    peer: ConnectionPeer,
    number: u64,
}

impl Connections {
    /// Enters a connection of `peer`.
    #[must_use]
    pub(crate) fn enter(self: &Arc<Self>, peer: ConnectionPeer, connection: Arc<dyn Endable>) -> Entry {
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        table.peers.entry(peer).or_default().insert(number, connection);
        Entry { connections: Arc::clone(self), peer, number }
    }

    /// The number of connections of `peer`.
    #[must_use]
    pub(crate) fn count(&self, peer: ConnectionPeer) -> usize {
        self.lock().peers.get(&peer).map_or(0, HashMap::len)
    }

    /// Ends connections for a new one of `newcomer` where all of `limit` are taken; returns whether there were any to
    /// end. They are gone a moment later.
    pub(crate) fn make_space(&self, newcomer: ConnectionPeer, limit: usize) -> bool {
        let ended = self.lock().to_end_for(newcomer, limit);
        // Without the lock.
        ended.iter().for_each(|connection| connection.end());
        !ended.is_empty()
    }

    /// Ends one idle connection of `peer`; returns whether there was any.
    pub(crate) fn make_space_within(&self, peer: ConnectionPeer) -> bool {
        let ended = self.lock().peers.get(&peer).map(|all| first(all, is_idle, 1)).unwrap_or_default();
        ended.iter().for_each(|connection| connection.end());
        !ended.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn to_end_for(&self, newcomer: ConnectionPeer, limit: usize) -> Vec<Arc<dyn Endable>> {
        let own = self.peers.get(&newcomer).map_or(0, HashMap::len);
        let share = limit.div_ceil(self.peers.len() + usize::from(own == 0));
        let mut noisiest_first: Vec<_> = self.peers.iter().map(|(peer, all)| (*peer == newcomer, all)).collect();
        noisiest_first.sort_unstable_by_key(|(_, all)| Reverse(all.len()));
        let peers = || noisiest_first.iter().copied();
        let is_noisy = |all: &OfPeer| all.len() > share.max(own + 1);
        let noisy = || peers().filter(|(is_own, all)| !is_own && is_noisy(all)).map(|(_, all)| all);
        let others = || peers().filter(|(is_own, all)| *is_own || all.len() > own);
        let several = (limit / AT_ONCE).max(1);
        let waits_for_client = |usage: &Usage| matches!(usage.kind, UsageKind::WaitsForClient | UsageKind::Listens);
        let is_unused = |usage: &Usage| is_idle(usage) && usage.since.elapsed() >= JUST_USED;
        // A request may be about to be read from one that has just been accepted: those of a peer do not end each other.
        let idle_of_noisy = others().filter(|(is_own, all)| *is_own || all.len() > share);
        any(idle_of_noisy
            .map(|(is_own, all)| first(all, |usage| is_unused(usage) || !is_own && is_idle(usage), several)))
        .or_else(|| any(noisy().map(|all| first(all, waits_for_client, 1))))
        .or_else(|| any(others().map(|(_, all)| first(all, is_unused, several))))
        .or_else(|| if own == 0 { any(noisy().map(newest_at_work)) } else { None })
        .or_else(|| any(others().filter(|(is_own, _)| !is_own).map(|(_, all)| first(all, is_idle, several))))
        .unwrap_or_default()
    }
}

/// The first that is not empty.
fn any(mut found: impl Iterator<Item = Vec<Arc<dyn Endable>>>) -> Option<Vec<Arc<dyn Endable>>> {
    found.find(|found| !found.is_empty())
}

fn is_idle(usage: &Usage) -> bool {
    usage.kind <= UsageKind::Idle
}

/// The first `most` of those that are meant.
fn first(connections: &OfPeer, is_meant: impl Fn(&Usage) -> bool, most: usize) -> Vec<Arc<dyn Endable>> {
    let usages = connections.values().filter_map(|one| Some((one.usage()?, one)));
    let mut found: Vec<_> = usages.filter(|(usage, _)| is_meant(usage)).collect();
    found.sort_unstable_by_key(|(usage, _)| *usage);
    found.into_iter().take(most).map(|(_, connection)| Arc::clone(connection)).collect()
}

/// The one whose request has been worked on for the shortest time: the least is lost.
fn newest_at_work(connections: &OfPeer) -> Vec<Arc<dyn Endable>> {
    let usages = connections.values().filter_map(|one| Some((one.usage()?, one)));
    let working = usages.filter(|(usage, _)| usage.kind == UsageKind::Works);
    working.max_by_key(|(usage, _)| usage.since).map(|(_, connection)| Arc::clone(connection)).into_iter().collect()
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
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
mod tests;
