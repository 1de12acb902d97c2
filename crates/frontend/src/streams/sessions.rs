//! The sessions of legacy HTTP clients, by id.
//!
//! A session ends by DELETE, by having had no request for too long, by making space for a new one when
//! there are too many, or with its listener. There is no task per session: the listener sweeps.

use std::future::{Future, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_canonical::{HandleKind, HandleSeal, Holder, Keeper, Peer};
use fanlight_fair::{Candidate, Rule};
use fanlight_telemetry::clients::SessionView;
use tokio::time::Instant;

use super::SessionStreams;
use crate::insight::shown_id;
use crate::session::{Session, SessionGuard};
use crate::session_records::Released;

/// Sessions by id. An id is a sealed handle and a secret, but it is not enough: only the principal that opened a session
/// can use it, at the same endpoint, and for others it does not exist. A store that replicas share may wait for a session
/// to be taken over.
pub(crate) trait SessionStore: Send + Sync {
    /// Enters a session; returns its id.
    fn open(
        &self,
        session: Arc<SessionStreams>,
    ) -> impl Future<Output = Result<Box<str>, OpenError>> + Send;

    /// The session of `holder` with this id, or who keeps it if this process does not; it does not expire while the result
    /// lives.
    fn enter(
        &self,
        id: &str,
        holder: &Holder,
    ) -> impl Future<Output = Result<ActiveSession, Keeper>> + Send;

    /// Ends the session of `holder` with this id and cancels its requests.
    fn end(&self, id: &str, holder: &Holder) -> impl Future<Output = Result<(), Keeper>> + Send;
}

/// The sessions of this process.
pub(crate) struct InMemorySessions {
    table: Mutex<Table>,
    limit: usize,
    /// The most of one peer; 0 for no such bound.
    per_peer: usize,
    idle: Duration,
    handles: Arc<HandleSeal>,
}

type Table = fanlight_fair::Table<Peer, Box<str>, Entry>;

/// Ends its session when it is dropped.
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

/// Why there is no new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    /// As many as allowed, and none may end for this client's.
    #[error("all {limit} sessions are in use; try again later")]
    Full {
        /// The limit that applied.
        limit: usize,
    },
    /// The system gives no random numbers, without which an id could be guessed.
    #[error("no session id can be made: the system's random number generator fails")]
    NoRandomness,
}

impl SessionStore for InMemorySessions {
    fn open(
        &self,
        session: Arc<SessionStreams>,
    ) -> impl Future<Output = Result<Box<str>, OpenError>> + Send {
        ready(self.open_now(session))
    }

    fn enter(
        &self,
        id: &str,
        holder: &Holder,
    ) -> impl Future<Output = Result<ActiveSession, Keeper>> + Send {
        ready(self.enter_now(id, holder))
    }

    fn end(&self, id: &str, holder: &Holder) -> impl Future<Output = Result<(), Keeper>> + Send {
        ready(self.end_now(id, holder))
    }
}

impl InMemorySessions {
    /// At most `limit` sessions, and `per_peer` of one peer unless that is 0, which expire after having had no request
    /// for `idle`.
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

    /// If there are too many sessions, those end that have been idle longest, of the peer that has most: never of one
    /// that has fewer than that of the new session. Before a peer that is within its share loses any, one that is above
    /// loses those in use, if it has more even afterwards: those whose clients only listen first.
    pub(super) fn open_now(&self, session: Arc<SessionStreams>) -> Result<Box<str>, OpenError> {
        let holder = session.session.holder();
        let id: Box<str> = self
            .handles
            .fresh(HandleKind::Session, holder)
            .ok_or(OpenError::NoRandomness)?
            .into();
        self.keep(id.clone(), session)?;
        Ok(id)
    }

    /// [`Self::open_now`] of a session that has its id: it continues one of another run. Ids of events of that are unknown here, and
    /// those of an earlier time here as well.
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
        let mut table = self.lock();
        let mut ended = Vec::new();
        if table.len() >= self.limit {
            ended = make_space(&mut table, self.limit, self.idle, session.session.peer())?;
        }
        if self.per_peer > 0 {
            ended.extend(make_space_within(
                &mut table,
                self.per_peer,
                session.session.peer(),
            )?);
        }
        let peer = session.session.peer().clone();
        let before = table.insert(id, peer, Entry(session));
        // Sessions end, and report that to the core, without the lock; so everywhere here.
        drop(table);
        drop((ended, before));
        Ok(active)
    }

    /// Forgets a session that another run has taken over; not one that this run has taken back since.
    pub(crate) fn lose(&self, id: &str, session: &Arc<SessionStreams>) {
        let mut table = self.lock();
        let is_it = table
            .get(id)
            .is_some_and(|entry| Arc::ptr_eq(&entry.0, session));
        let lost = if is_it { table.remove(id) } else { None };
        drop(table);
        drop(lost);
    }

    /// The sessions for which servers keep others, and which other runs may have taken over.
    pub(crate) fn doubtful_at_servers(&self) -> Vec<(Box<str>, Arc<SessionStreams>)> {
        let table = self.lock();
        let is_asked_about = |session: &Session| session.is_at_servers() && session.is_doubtful();
        let doubtful = table
            .iter()
            .filter(|(_, entry)| is_asked_about(&entry.0.session));
        doubtful
            .map(|(id, entry)| (id.clone(), Arc::clone(&entry.0)))
            .collect()
    }

    /// The sessions that are on record, and from now on no longer by this run: others may claim them.
    pub(crate) fn leave_records(&self) -> Vec<Released> {
        self.all()
            .iter()
            .filter_map(|session| session.session.leave_record())
            .collect()
    }

    pub(super) fn enter_now(&self, id: &str, holder: &Holder) -> Result<ActiveSession, Keeper> {
        let mut table = self.lock();
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

    pub(super) fn end_now(&self, id: &str, holder: &Holder) -> Result<(), Keeper> {
        let mut table = self.lock();
        let belongs = table
            .get(id)
            .is_some_and(|entry| entry.0.session.belongs_to(holder));
        let ended = if belongs { table.remove(id) } else { None };
        drop(table);
        match ended {
            Some(entry) if !entry.is_expired(self.idle) => Ok(()),
            _ => Err(self.handles.keeper(HandleKind::Session, id, holder)),
        }
    }

    /// Ends the session that an operator sees under this digest, and cancels its requests; returns whether there was one.
    pub(crate) fn end_shown(&self, digest: &str) -> bool {
        let mut table = self.lock();
        let id = table
            .iter()
            .map(|(id, _)| id)
            .find(|id| shown_id(id) == digest)
            .cloned();
        let ended = id.and_then(|id| table.remove(&id));
        drop(table);
        ended.is_some()
    }

    /// Ends the sessions that have expired; in the others, forgets the streams that have had no reader
    /// for `resume`.
    pub(crate) fn sweep(&self, resume: Duration) {
        let ended = self
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
        let ended: Vec<_> = self.lock().take_all().collect();
        drop(ended);
    }

    /// Ends the GET streams.
    pub(crate) fn hang_up(&self) {
        for session in self.all() {
            session.hang_up();
        }
    }

    /// The number of sessions, and of their open event streams.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let all = self.all();
        (
            all.len(),
            all.iter().map(|session| session.open_count()).sum(),
        )
    }

    /// All sessions, for an operator.
    pub(crate) fn views(&self) -> Vec<SessionView> {
        let all: Vec<_> = self
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
        self.lock()
            .values()
            .map(|entry| Arc::clone(&entry.0))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for InMemorySessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InMemorySessions")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Removes expired sessions, else those idle longest of the peer that has most: a few at once, so that a flood of new
/// sessions does not search the whole table for each.
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

/// How much a session in use is needed: one whose client only listens least.
fn need(candidate: Candidate<'_, Peer, Box<str>, Entry>) -> Option<(bool, Instant)> {
    let session = &candidate.value.0.session;
    Some((session.running.count() > 0, session.last_unused()))
}

/// Removes the session of `peer` that has been idle longest, if the peer has `limit` or more.
fn make_space_within(
    table: &mut Table,
    limit: usize,
    peer: &Peer,
) -> Result<Option<Entry>, OpenError> {
    if table.count(peer) < limit {
        return Ok(None);
    }
    let idle = table
        .of(peer)
        .filter_map(|(id, entry)| Some((entry.0.session.idle_since()?, id.clone())));
    let (_, id) = idle.min().ok_or(OpenError::Full { limit })?;
    Ok(table.remove(&id))
}

/// A session that serves a request, which keeps it from expiring.
#[derive(Clone, Debug)]
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
