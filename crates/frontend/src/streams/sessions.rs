//! The sessions of legacy HTTP clients, by id.
//!
//! A session ends by DELETE, after too long without a request, to make room for a new one, or with
//! its listener. There is no task per session: the listener sweeps.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{HandleKind, HandleSeal, Holder, Keeper, Peer};
use fanlight_fair::{Candidate, Rule};
use fanlight_telemetry::clients::SessionView;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::SessionStreams;
use crate::insight::shown_id;
use crate::session::{Session, SessionGuard};
use crate::session_records::Released;

/// Sessions by id. An id is a sealed handle and a secret. Yet only the principal that opened a
/// session can use it, at the same endpoint; for others it does not exist.
pub(crate) struct Sessions {
    table: Mutex<Table>,
    limit: usize,
    /// The maximum number per peer; 0 for no limit.
    per_peer: usize,
    idle: Duration,
    handles: Arc<HandleSeal>,
}

type Table = fanlight_fair::Table<Peer, Box<str>, Entry>;

/// Ends the session when dropped.
struct Entry(Arc<SessionStreams>);

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Entry {
    fn is_expired(&self, idle: Duration) -> bool {
        self.0
            .session
            .idle_since()
            .is_some_and(|since| since.elapsed() >= idle)
    }
}

/// The reason why no session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    /// All sessions are in use, and none may be ended for this client.
    #[error("all {limit} sessions are in use; try again later")]
    Full {
        /// The limit that applied.
        limit: usize,
    },
    /// The system has no random numbers, so ids could be guessed.
    #[error("no session id can be made: the system's random number generator fails")]
    NoRandomness,
}

impl Sessions {
    /// Allows `limit` sessions in total and `per_peer` per peer (0 for no limit). Sessions expire
    /// after `idle` without a request.
    pub(crate) fn new(
        limit: usize,
        per_peer: usize,
        idle: Duration,
        handles: Arc<HandleSeal>,
    ) -> Self {
        Self {
            table: Mutex::default(),
            limit: limit.max(1),
            per_peer,
            idle,
            handles,
        }
    }

    /// Opens a session and returns its id. At the limit, the peer with the most sessions loses those that have been
    /// idle longest, unless the new session's peer has more.
    ///
    /// Before a peer within its share loses any session, a peer above it loses sessions in use,
    /// provided that it still has more afterwards. Sessions whose client only listens go first.
    pub(crate) fn open(&self, session: Arc<SessionStreams>) -> Result<Box<str>, OpenError> {
        let holder = session.session.holder();
        let id: Box<str> = self
            .handles
            .random_handle(HandleKind::Session, holder)
            .ok_or(OpenError::NoRandomness)?
            .into();
        self.keep(id.clone(), session)?;
        Ok(id)
    }

    /// [`Self::open`] for a session that already has an id, since it continues a session of
    /// another run. Its earlier event ids are unknown here, even if this run issued them.
    pub(crate) fn keep(
        &self,
        id: Box<str>,
        session: Arc<SessionStreams>,
    ) -> Result<ActiveSession, OpenError> {
        let active = ActiveSession::new(&session);
        let of = format!("{id} {}", session.session.key().0);
        session.set_event_tag(
            self.handles
                .tag(HandleKind::Event, &of, session.session.holder()),
        );
        let peer = session.session.peer().clone();
        // Here and below, sessions end and report it to the core without the lock.
        let mut ended = Vec::new();
        let mut table = self.table.lock();
        // First, so that a session that this refuses ends none.
        if self.per_peer > 0 {
            ended.extend(make_space_within(&mut table, self.per_peer, &peer)?);
        }
        if table.len() >= self.limit {
            ended.extend(make_space(&mut table, self.limit, self.idle, &peer)?);
        }
        let before = table.insert(id, peer, Entry(session));
        drop(table);
        drop((ended, before));
        Ok(active)
    }

    /// Removes a session that another run has taken over, unless this run has taken it back since.
    pub(crate) fn lose(&self, id: &str, session: &Arc<SessionStreams>) {
        drop(self.remove_if(id, |known| Arc::ptr_eq(known, session)));
    }

    /// Removes the session with this id if it is the meant one. The caller ends it by dropping it.
    fn remove_if(
        &self,
        id: &str,
        is_meant: impl FnOnce(&Arc<SessionStreams>) -> bool,
    ) -> Option<Entry> {
        let mut table = self.table.lock();
        if is_meant(&table.get(id)?.0) {
            table.remove(id)
        } else {
            None
        }
    }

    /// The sessions with server sessions that other runs may have taken over.
    pub(crate) fn doubtful_at_servers(&self) -> Vec<(Box<str>, Arc<SessionStreams>)> {
        let table = self.table.lock();
        let is_asked_about = |session: &Session| session.is_at_servers() && session.is_doubtful();
        let doubtful = table
            .iter()
            .filter(|(_, entry)| is_asked_about(&entry.0.session));
        doubtful
            .map(|(id, entry)| (id.clone(), Arc::clone(&entry.0)))
            .collect()
    }

    /// Gives up the records of all sessions, so that other runs may claim them; returns those
    /// sessions.
    pub(crate) fn leave_records(&self) -> Vec<Released> {
        self.all()
            .iter()
            .filter_map(|session| session.session.leave_record())
            .collect()
    }

    /// The session of `holder` with this id, or its keeper if that is not this process. The session
    /// does not expire while the result lives.
    pub(crate) fn enter(&self, id: &str, holder: &Holder) -> Result<ActiveSession, Keeper> {
        let mut table = self.table.lock();
        let entry = table
            .get(id)
            .filter(|entry| entry.0.session.belongs_to(holder));
        match entry {
            Some(entry) if !entry.is_expired(self.idle) => return Ok(ActiveSession::new(&entry.0)),
            Some(_) => {
                let ended = table.remove(id);
                drop(table);
                drop(ended);
            }
            None => drop(table),
        }
        Err(self.handles.keeper(HandleKind::Session, id, holder))
    }

    /// Ends the session of `holder` with this id and cancels its requests.
    pub(crate) fn end(&self, id: &str, holder: &Holder) -> Result<(), Keeper> {
        match self.remove_if(id, |known| known.session.belongs_to(holder)) {
            Some(entry) if !entry.is_expired(self.idle) => Ok(()),
            _ => Err(self.handles.keeper(HandleKind::Session, id, holder)),
        }
    }

    /// Ends the session with this digest, as shown to operators, and cancels its requests. Returns
    /// whether it existed.
    pub(crate) fn end_shown(&self, digest: &str) -> bool {
        let mut table = self.table.lock();
        let id = table
            .iter()
            .map(|(id, _)| id)
            .find(|id| shown_id(id) == digest)
            .cloned();
        let ended = id.and_then(|id| table.remove(&id));
        drop(table);
        ended.is_some()
    }

    /// Ends expired sessions. In the others, removes streams without a reader for `resume`.
    pub(crate) fn sweep(&self, resume: Duration) {
        let ended = self
            .table
            .lock()
            .remove_if(|_, entry| entry.is_expired(self.idle));
        drop(ended);
        for session in self.all() {
            session.session.prolong_record();
            session.sweep(resume);
        }
    }

    /// Ends every session.
    pub(crate) fn end_all(&self) {
        let ended: Vec<_> = self.table.lock().take_all().collect();
        drop(ended);
    }

    /// Ends the GET streams.
    pub(crate) fn hang_up(&self) {
        for session in self.all() {
            session.hang_up();
        }
    }

    /// The number of sessions and of their open event streams.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let all = self.all();
        (
            all.len(),
            all.iter().map(|session| session.open_count()).sum(),
        )
    }

    /// All sessions, for operators.
    pub(crate) fn views(&self) -> Vec<SessionView> {
        let all: Vec<_> = self
            .table
            .lock()
            .iter()
            .map(|(id, entry)| (id.clone(), Arc::clone(&entry.0)))
            .collect();
        let view = |(id, session): (Box<str>, Arc<SessionStreams>)| SessionView {
            idle: session.session.idle_since().map(|since| since.elapsed()),
            ..session.view(&id, "http")
        };
        all.into_iter().map(view).collect()
    }

    fn all(&self) -> Vec<Arc<SessionStreams>> {
        self.table
            .lock()
            .values()
            .map(|entry| Arc::clone(&entry.0))
            .collect()
    }
}

/// Removes expired sessions. If there are none, removes the longest idle sessions of the peer with
/// the most. It removes several at once, so that a flood of new sessions does not search the whole
/// table each time.
fn make_space(
    table: &mut Table,
    limit: usize,
    idle: Duration,
    newcomer: &Peer,
) -> Result<Vec<Entry>, OpenError> {
    let mut ended = table.remove_if(|_, entry| entry.is_expired(idle));
    if table.len() < limit {
        return Ok(ended);
    }
    let several = (limit / 64).max(1);
    let newcomer = table.newcomer(newcomer, limit);
    let mut lost = newcomer.several(Rule::UNUSED.above_equal_part(), several, idle_since);
    if lost.is_empty() {
        lost.extend(newcomer.least(Rule::IN_USE.above_equal_part(), need));
    }
    if lost.is_empty() {
        lost = newcomer.several(Rule::UNUSED, several, idle_since);
    }
    if lost.is_empty() {
        return Err(OpenError::Full { limit });
    }
    ended.extend(lost.iter().filter_map(|id| table.remove(id)));
    Ok(ended)
}

fn idle_since(candidate: Candidate<'_, Peer, Box<str>, Entry>) -> Option<Instant> {
    candidate.value.0.session.idle_since()
}

/// Ranks a session in use: a client that only listens needs it least.
fn need(candidate: Candidate<'_, Peer, Box<str>, Entry>) -> Option<(bool, Instant)> {
    let session = &candidate.value.0.session;
    Some((session.running.count() > 0, session.last_unused()))
}

/// Removes the longest idle session of `peer` if it has `limit` or more.
fn make_space_within(
    table: &mut Table,
    limit: usize,
    peer: &Peer,
) -> Result<Option<Entry>, OpenError> {
    if table.count(peer) < limit {
        return Ok(None);
    }
    let idle = table
        .share_entries(peer)
        .filter_map(|(id, entry)| Some((entry.0.session.idle_since()?, id.clone())));
    let (_, id) = idle.min().ok_or(OpenError::Full { limit })?;
    Ok(table.remove(&id))
}

/// A session that serves a request. The guard keeps it from expiring.
#[derive(Clone)]
pub(crate) struct ActiveSession {
    streams: Arc<SessionStreams>,
    guard: SessionGuard,
}

impl ActiveSession {
    pub(crate) fn new(streams: &Arc<SessionStreams>) -> Self {
        Self {
            streams: Arc::clone(streams),
            guard: SessionGuard::new(&streams.session),
        }
    }

    /// The guard that keeps the session from expiring, without its streams.
    pub(crate) fn into_guard(self) -> SessionGuard {
        self.guard
    }
}

impl std::ops::Deref for ActiveSession {
    type Target = Arc<SessionStreams>;

    fn deref(&self) -> &Arc<SessionStreams> {
        &self.streams
    }
}

#[cfg(test)]
mod tests;
