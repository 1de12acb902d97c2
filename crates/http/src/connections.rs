//! The open connections of a listener by peer, and the choice of one to end at the limit.
//!
//! One peer may use every connection as long as no other wants one, since behind a reverse proxy
//! all clients are one peer. At the limit, a new connection ends another, in this order:
//!
//! 1. An idle one of a peer above its share (an equal part of all), or one of the newcomer's own
//!    peer that has not just been used or accepted.
//! 2. One that waits for its client, or that a client only listens on, of a peer above its share.
//! 3. An idle one of another peer that has more than the newcomer, unless it has just been used. A
//!    client that is about to reuse it would take its end for a failure.
//! 4. One with a running request, of a peer above its share, if the newcomer's peer has no
//!    connection at all.
//! 5. One of the third kind that has just been used.
//!
//! The peer with the most connections loses first. Connections with a request end only for a peer
//! that has fewer even afterwards. So no two peers take connections from each other in turn.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fanlight_fair::{Candidate, Newcomer, Rule};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The divisor for the number of connections that are ended at once. Ending several at once spares
/// a flood of new connections a search for each.
const AT_ONCE: usize = 256;

/// The idle time up to which a connection counts as just used. A constant, since it only affects
/// the choice of connections to end.
const JUST_USED: Duration = Duration::from_secs(1);

/// The peer whose share of a limit a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionPeer {
    /// An address; for IPv6 a network: [`peer_of`](crate::peer_of).
    Address(IpAddr),
    /// A user of this machine, by user id, on a Unix socket.
    User(u32),
}

/// An open connection that may be ended for another.
pub trait Endable: Send + Sync {
    /// The current use; `None` if it is closing.
    fn usage(&self) -> Option<Usage>;

    /// Ends the connection at once.
    fn end(&self);
}

/// The use of a connection. If a peer has too many, the one with the lowest use ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usage {
    /// The kind of its most valuable request.
    pub kind: UsageKind,
    /// The start of this use.
    pub since: Instant,
}

/// The kinds of use, the least valuable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageKind {
    /// No request so far.
    Unused,
    /// No request at the moment.
    Idle,
    /// A request that has not arrived completely, or an answer that its client does not read.
    WaitsForClient,
    /// Streams of a client that only listens.
    Listens,
    /// A running request.
    Works,
}

/// The connections of a listener.
#[derive(Default)]
pub(crate) struct Connections {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// The open connections by their numbers, which grow.
    open: fanlight_fair::Table<ConnectionPeer, u64, Arc<dyn Endable>>,
    next: u64,
}

/// The entry of a connection. Dropping it removes the connection.
#[derive(Debug)]
pub(crate) struct Entry {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// Adds a connection of `peer`.
    #[must_use]
    pub(crate) fn enter(
        self: &Arc<Self>,
        peer: ConnectionPeer,
        connection: Arc<dyn Endable>,
    ) -> Entry {
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.open.insert(number, peer, connection);
        Entry {
            connections: Arc::clone(self),
            number,
        }
    }

    pub(crate) fn count(&self, peer: ConnectionPeer) -> usize {
        self.table.lock().open.count(&peer)
    }

    /// Ends connections for a new one of `newcomer` if all of `limit` are in use; returns whether
    /// there were any to end. They are gone a moment later.
    pub(crate) fn make_space(&self, newcomer: ConnectionPeer, limit: usize) -> bool {
        let ended = self.table.lock().to_end_for(newcomer, limit);
        end_all(&ended)
    }

    /// Ends one idle connection of `peer`; returns whether there was any.
    pub(crate) fn make_space_within(&self, peer: ConnectionPeer) -> bool {
        let longest_idle = {
            let table = self.table.lock();
            let usages = table
                .open
                .share_entries(&peer)
                .filter_map(|(_, one)| Some((one.usage()?, one)));
            let idle = usages.filter(|(usage, _)| is_idle(usage));
            idle.min_by_key(|(usage, _)| *usage)
                .map(|(_, one)| Arc::clone(one))
        };
        end_all(longest_idle.as_slice())
    }
}

/// Ends connections without the lock; returns whether there were any.
fn end_all(connections: &[Arc<dyn Endable>]) -> bool {
    connections.iter().for_each(|connection| connection.end());
    !connections.is_empty()
}

impl Table {
    fn to_end_for(&self, newcomer: ConnectionPeer, limit: usize) -> Vec<Arc<dyn Endable>> {
        let several = (limit / AT_ONCE).max(1);
        let ended = Displaced {
            newcomer: self.open.newcomer(&newcomer, limit),
            peer: newcomer,
            several,
        }
        .first_candidates();
        ended
            .iter()
            .filter_map(|number| self.open.get(number))
            .cloned()
            .collect()
    }
}

type OpenConnection<'a> = Candidate<'a, ConnectionPeer, u64, Arc<dyn Endable>>;

/// The connections to end for a new one.
struct Displaced<'a> {
    newcomer: Newcomer<'a, ConnectionPeer, u64, Arc<dyn Endable>>,
    peer: ConnectionPeer,
    several: usize,
}

impl Displaced<'_> {
    /// The connections of the first non-empty kind in the module's list.
    fn first_candidates(&self) -> Vec<u64> {
        let waits = |_: &OpenConnection<'_>, usage: &Usage| {
            matches!(usage.kind, UsageKind::WaitsForClient | UsageKind::Listens)
        };
        // A request may be about to arrive on a newly accepted connection. So a peer's own
        // connections of this kind do not end each other.
        let idle = |one: &OpenConnection<'_>, usage: &Usage| {
            is_unused(usage) || *one.share != self.peer && is_idle(usage)
        };
        let kinds: [&dyn Fn() -> Vec<u64>; 5] = [
            &|| self.least(Rule::UNUSED.above_equal_part(), self.several, idle),
            &|| self.least(Rule::IN_USE.above_equal_part(), 1, waits),
            &|| self.least(Rule::UNUSED, self.several, |_, usage| is_unused(usage)),
            &|| self.newest_at_work(),
            &|| {
                self.least(
                    Rule::UNUSED.restrict_to_others(),
                    self.several,
                    |_, usage| is_idle(usage),
                )
            },
        ];
        kinds
            .iter()
            .map(|kind| kind())
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }

    fn least(
        &self,
        rule: Rule,
        most: usize,
        is_meant: impl Fn(&OpenConnection<'_>, &Usage) -> bool,
    ) -> Vec<u64> {
        self.newcomer.several(rule, most, |one| {
            one.value.usage().filter(|usage| is_meant(&one, usage))
        })
    }

    /// The connection whose request has run for the shortest time, for a peer without any
    /// connection: this loses the least work.
    fn newest_at_work(&self) -> Vec<u64> {
        let working = |one: OpenConnection<'_>| {
            one.value
                .usage()
                .filter(|usage| usage.kind == UsageKind::Works)
        };
        let newest = |one: OpenConnection<'_>| working(one).map(|usage| Reverse(usage.since));
        let is_first = self.newcomer.own() == 0;
        let found = is_first
            .then(|| self.newcomer.least(Rule::IN_USE.above_equal_part(), newest))
            .flatten();
        found.into_iter().collect()
    }
}

fn is_idle(usage: &Usage) -> bool {
    usage.kind <= UsageKind::Idle
}

fn is_unused(usage: &Usage) -> bool {
    is_idle(usage) && usage.since.elapsed() >= JUST_USED
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        drop(self.connections.table.lock().open.remove(&self.number));
    }
}

#[cfg(test)]
mod tests;
