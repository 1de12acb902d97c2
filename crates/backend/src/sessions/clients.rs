//! The client connections of one server, by the clients that may use them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{BackendError, Caller, Holder, Peer, Principal, SameClient, SessionKey};
use fanlight_fair::{Rule, Table};

use crate::connection::supervised::{InUse, SupervisedConnection};

/// The clients that may use a connection. Two principals never share one, except under
/// [`crate::SessionPolicy::Shared`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// One session.
    Session(Caller),
    /// All of a principal's clients without a session that have these capabilities and cannot be
    /// asked anything.
    Capabilities(Principal, Bytes),
    /// One client without a session, and its declared capabilities and description.
    Client(Holder, SameClient, Bytes),
    /// One request without a session, whose client can be asked and is not known. A server may keep
    /// the client's answers for the whole session. So another client must not use it, who may be
    /// another person with the same capabilities.
    Request(Caller),
}

/// The maximum numbers of client connections.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) sessions: usize,
    /// Connections that do not count in `sessions`: each belongs to one running or suspended
    /// request, which have their own limits.
    pub(super) of_requests: usize,
}

/// The maximum idle times of client connections.
#[derive(Clone, Copy)]
pub(super) struct IdleBounds {
    /// For connections of sessions.
    pub(super) of_sessions: Duration,
    /// For connections that clients without a session share.
    pub(super) shared: Duration,
}

/// The key of a connection for clients of this principal with these capabilities.
pub(super) type SpareKey = (Principal, Bytes);

/// The processes that run for clients with the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Running {
    /// Processes that will soon be free for other requests.
    pub(super) ready: usize,
    pub(super) starting: usize,
}

/// All client connections.
#[derive(Default)]
pub(super) struct ClientConnections {
    owned: Table<Peer, Owner, Arc<SupervisedConnection>>,
    /// Connections of finished requests during which the server asked nothing. They know nothing
    /// about their former clients. The next request gets the most recently used one.
    spare: HashMap<SpareKey, Vec<Arc<SupervisedConnection>>>,
    /// The keys of connections that are about to be made for requests.
    starting: Vec<SpareKey>,
}

impl Owner {
    fn session(&self) -> Option<SessionKey> {
        match self {
            Self::Session(caller) => caller.session(),
            Self::Client(..) | Self::Capabilities(..) | Self::Request(_) => None,
        }
    }
}

impl ClientConnections {
    /// The owner's connection, if there is one.
    pub(super) fn find(&self, owner: &Owner) -> Option<InUse> {
        self.owned.get(owner).map(SupervisedConnection::take)
    }

    /// Whether no owner has a connection.
    pub(super) fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    /// The number of spare connections for a key.
    pub(super) fn spares(&self, key: &SpareKey) -> usize {
        self.spare.get(key).map_or(0, |spares| {
            spares.iter().filter(|spare| !spare.has_stopped()).count()
        })
    }

    /// Counts the connections of requests that may become spare ones for a key. Leaves out those
    /// that have been in use for longer than `longest`.
    pub(super) fn count_running(&self, key: &SpareKey, longest: Duration) -> Running {
        let (principal, capabilities) = key;
        let starting = self
            .starting
            .iter()
            .filter(|starting| *starting == key)
            .count();
        let mut running = Running { starting, ready: 0 };
        for (owner, connection) in self.owned.iter() {
            let is_meant = matches!(owner, Owner::Request(caller) if caller.principal() == principal)
                && connection.may_become_spare()
                && connection.declares(capabilities);
            if is_meant {
                match connection.ready_for() {
                    Some(used) if used > longest => {}
                    Some(_) => running.ready += 1,
                    None => running.starting += usize::from(connection.is_starting()),
                }
            }
        }
        running
    }

    /// Records that a connection is about to be made for a request.
    pub(super) fn begin_start(&mut self, key: &SpareKey) {
        self.starting.push(key.clone());
    }

    /// Records that the connection has been added, or will not be made.
    pub(super) fn end_start(&mut self, key: &SpareKey) {
        if let Some(at) = self.starting.iter().position(|starting| starting == key) {
            self.starting.swap_remove(at);
        }
    }

    /// Takes a spare connection for the owner.
    pub(super) fn claim(&mut self, owner: &Owner, key: &SpareKey) -> Option<InUse> {
        let spares = self.spare.get_mut(key)?;
        let mut claimed = None;
        while claimed.is_none()
            && let Some(spare) = spares.pop()
        {
            claimed = Some(spare).filter(|spare| !spare.has_stopped());
        }
        if spares.is_empty() {
            self.spare.remove(key);
        }
        let claimed = claimed?;
        let in_use = claimed.take();
        self.insert(owner.clone(), claimed);
        Some(in_use)
    }

    /// Makes room for a connection of `newcomer`. At the limit, the peer with the most connections
    /// loses its longest idle one, unless that peer has fewer than the newcomer. If none is idle, a
    /// peer that has more than the newcomer even afterwards loses one in use.
    pub(super) fn make_room(
        &mut self,
        owner: &Owner,
        room: Room,
        newcomer: &Peer,
    ) -> Result<(), BackendError> {
        let running = self.running_requests();
        if (matches!(owner, Owner::Request(_)) && running < room.of_requests)
            || self.count() - running.min(room.of_requests) < room.sessions
        {
            return Ok(());
        }
        // Nobody needs a spare connection's state.
        if let Some(key) = self.spare.keys().next().cloned() {
            let spare = self
                .spare
                .get_mut(&key)
                .filter(|spares| !spares.is_empty())
                .map(|spares| spares.remove(0));
            self.spare.retain(|_, spares| !spares.is_empty());
            if let Some(spare) = spare {
                spare.end();
                return Ok(());
            }
        }
        let owner = self
            .longest_idle(newcomer)
            .or_else(|| self.needed_least(newcomer));
        self.end(&owner.ok_or(BackendError::TooManySessions {
            limit: room.sessions,
        })?);
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.owned.len() + self.spare.values().map(Vec::len).sum::<usize>()
    }

    /// The number of connections that belong to one running or suspended request each.
    fn running_requests(&self) -> usize {
        let is_running = |(owner, it): &(&Owner, &Arc<SupervisedConnection>)| {
            matches!(owner, Owner::Request(_)) && it.idle_time().is_none()
        };
        self.owned.iter().filter(is_running).count()
    }

    fn longest_idle(&self, newcomer: &Peer) -> Option<Owner> {
        let newcomer = self.owned.newcomer(newcomer, self.owned.len());
        newcomer.least(Rule::UNUSED, |connection| {
            connection.value.idle_time().map(Reverse)
        })
    }

    /// The connection in use to end for another. First choice is the one on which the server asked
    /// its client something, and that has waited longest. If the newcomer has no connection at all,
    /// the second choice is the one most recently taken into use.
    fn needed_least(&self, newcomer: &Peer) -> Option<Owner> {
        let newcomer = self.owned.newcomer(newcomer, self.owned.len());
        let in_use = |connection: &Arc<SupervisedConnection>| {
            connection
                .idle_time()
                .is_none()
                .then(|| connection.last_change())
        };
        let asked = newcomer.least(Rule::IN_USE, |it| {
            in_use(it.value).filter(|_| it.value.has_asked())
        });
        let newest = || newcomer.least(Rule::IN_USE, |it| in_use(it.value).map(Reverse));
        asked.or_else(|| if newcomer.own() == 0 { newest() } else { None })
    }

    /// Ends the spare connections.
    pub(super) fn end_spares(&mut self) {
        for spare in self.spare.drain().flat_map(|(_, spares)| spares) {
            spare.end();
        }
    }

    pub(super) fn insert(&mut self, owner: Owner, connection: Arc<SupervisedConnection>) {
        self.owned
            .insert(owner, connection.peer.clone(), connection);
    }

    /// Ends the connection of an owner.
    pub(super) fn end(&mut self, owner: &Owner) {
        if let Some(connection) = self.owned.remove(owner) {
            connection.end();
        }
    }

    /// Ends the connections of a client session that has ended.
    pub(super) fn end_session(&mut self, session: SessionKey) {
        for connection in self
            .owned
            .remove_if(|owner, _| owner.session() == Some(session))
        {
            connection.end();
        }
    }

    /// Handles the end of a request that had a connection to itself. The connection becomes spare,
    /// with three exceptions: the server asked the client something on it, has a task of it, or
    /// there are `limit` connections besides the connections of requests. Returns whether it became
    /// spare.
    pub(super) fn release(&mut self, owner: &Owner, key: SpareKey, limit: usize) -> bool {
        let Some(connection) = self
            .owned
            .get(owner)
            .filter(|connection| connection.idle_time().is_some())
        else {
            return false;
        };
        let is_surplus = self.count() - self.running_requests() > limit;
        if connection.has_asked() || (is_surplus && !connection.has_task()) {
            self.end(owner);
        } else if is_surplus {
            let peer = connection.peer.clone();
            let ended = self.longest_idle(&peer).unwrap_or_else(|| owner.clone());
            self.end(&ended);
        } else if !connection.has_task()
            && let Some(connection) = self.owned.remove(owner)
        {
            self.spare.entry(key).or_default().push(connection);
            return true;
        }
        false
    }

    /// Ends connections of sessions, and connections shared by clients without a session, that have
    /// been unused for too long, unless `is_needed`.
    pub(super) fn sweep(&mut self, idle: IdleBounds, is_needed: impl Fn(&Owner) -> bool) {
        let has_expired = |connection: &SupervisedConnection, bound| match connection.idle_time() {
            Some(idle) => idle >= bound && !connection.has_open_task(),
            None => false,
        };
        let is_expired = |owner: &Owner, connection: &Arc<SupervisedConnection>| {
            let bound = if let Owner::Session(_) = owner {
                idle.of_sessions
            } else {
                idle.shared
            };
            has_expired(connection, bound) && !is_needed(owner)
        };
        self.owned
            .remove_if(is_expired)
            .iter()
            .for_each(|connection| connection.end());
        for spares in self.spare.values_mut() {
            spares
                .extract_if(.., |spare| has_expired(spare, idle.shared))
                .for_each(|spare| spare.end());
        }
        self.spare.retain(|_, spares| !spares.is_empty());
    }
}
