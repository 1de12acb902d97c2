//! Sessions of legacy HTTP clients: who they are, what they agreed on, what they have running.
//!
//! A session ends by DELETE, by having had no request for too long, by giving way to a new one when
//! there are too many, or with its listener or connection. There is no task per session: the
//! listener's upkeep sweeps.
//!
//! Must not know: HTTP. Binding a session to a principal belongs here once there are principals.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_canonical::{CallContext, Caller, Principal, ServerRequest, SessionKey};
use fanlight_protocol::capability::MissingCapability;
use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::{Json, Response, Revision};
use fanlight_telemetry::clients::SessionView;
use fanlight_telemetry::{Parent, Telemetry};
use tokio::time::Instant;

use crate::cancel::InFlight;
use crate::insight::shown_id;
use crate::legacy::Opening;
use crate::questions::Questions;
use crate::streams::Streams;
use crate::trace::Counted;
use fanlight_canonical::Core;

/// What a legacy client and this side know of each other: an HTTP session, or a stdio connection
/// after `initialize`.
pub(crate) struct Session {
    /// The principal that opened it; no other may use it.
    principal: Principal,
    key: SessionKey,
    opening: Opening,
    log_level: Mutex<Option<LogLevel>>,
    /// Its running requests.
    pub(crate) in_flight: Arc<InFlight>,
    /// What it has been asked.
    pub(crate) questions: Arc<Questions>,
    /// Its event streams, and what it hears outside of calls.
    pub(crate) streams: Streams,
    counted: Mutex<Option<Counted>>,
    /// Tells the core that the session has ended: once nobody holds it any more, so that no call
    /// of it can come after.
    tell_core: Box<dyn Fn(SessionKey) + Send + Sync>,
}

impl Session {
    /// A session of the client that sent `opening`, which may be asked `max_questions` at once.
    pub(crate) fn new<C: Core>(
        principal: Principal,
        opening: Opening,
        in_flight: Arc<InFlight>,
        max_questions: usize,
        core: &Arc<C>,
    ) -> Self {
        let core = Arc::clone(core);
        Self {
            principal,
            key: SessionKey::fresh(),
            opening,
            log_level: Mutex::default(),
            in_flight,
            questions: Arc::new(Questions::new(max_questions)),
            streams: Streams::default(),
            counted: Mutex::default(),
            tell_core: Box::new(move |session| core.end_session(session)),
        }
    }

    /// The same, counted until it ends.
    pub(crate) fn counted(self, telemetry: &Telemetry) -> Self {
        *lock(&self.counted) = Some(Counted::session(telemetry));
        self
    }

    /// The revision agreed on.
    pub(crate) fn revision(&self) -> Revision {
        self.opening.revision
    }

    /// The level set with `logging/setLevel`, if any.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        *lock(&self.log_level)
    }

    /// Sets the level.
    pub(crate) fn set_log_level(&self, level: Option<LogLevel>) {
        *lock(&self.log_level) = level;
    }

    /// What the client can do when a server asks it.
    pub(crate) fn capabilities(&self) -> &Json {
        &self.opening.capabilities
    }

    /// Enters a question of a server; returns its number, and the request to send. `None` if the
    /// client is not to be asked it, and then the server has been told.
    pub(crate) fn ask(&self, question: ServerRequest) -> Option<(u64, Json)> {
        match MissingCapability::for_server_request(self.capabilities(), &question.method, question.params.as_ref()) {
            Some(missing) => {
                // An error means that nobody waits for it any more.
                let _ = question.answer.send(Response::from_error(&missing.to_error()));
                None
            }
            None => self.questions.ask(question),
        }
    }

    /// Cancels what runs, and ends its streams and what it hears. Requests may still come to their
    /// end after it.
    pub(crate) fn end(&self) {
        drop(lock(&self.counted).take());
        self.in_flight.cancel_all();
        self.streams.end(self);
    }

    /// What the core learns of the client for one request.
    pub(crate) fn context(&self, wants_progress: bool) -> CallContext {
        CallContext {
            caller: Caller::session_of(self.principal.clone(), self.key),
            client_info: self.opening.client_info.clone(),
            capabilities: self.opening.capabilities.clone(),
            log_level: self.log_level(),
            wants_progress,
            tasks: self.opening.tasks(),
            trace: Parent::default(),
        }
    }

    /// What an operator may see of it, under an id of which a digest is shown.
    pub(crate) fn shown(&self, id: &str, transport: &'static str) -> SessionView {
        SessionView {
            digest: shown_id(id),
            revision: Some(self.revision().as_str()),
            transport,
            client_info: self.opening.client_info.clone(),
            running: self.in_flight.count(),
            server_requests: self.questions.count(),
            streams: self.streams.count(),
            idle: None,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        (self.tell_core)(self.key);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("key", &self.key).finish_non_exhaustive()
    }
}

/// All sessions, by id. The id is a secret: whoever has it is the client.
pub(crate) struct Sessions {
    table: Mutex<HashMap<Box<str>, Entry>>,
    limit: usize,
    idle: Duration,
}

struct Entry {
    session: Arc<Session>,
    usage: Arc<Mutex<Usage>>,
}

#[derive(Debug)]
struct Usage {
    running: usize,
    /// When the last request ended, or the session began.
    last: Instant,
}

/// However a session leaves the table, it ends with it.
impl Drop for Entry {
    fn drop(&mut self) {
        self.session.end();
    }
}

impl Entry {
    /// Since when the session has had no request; `None` if it has one now.
    fn idle_since(&self) -> Option<Instant> {
        let usage = lock(&self.usage);
        (usage.running == 0).then_some(usage.last)
    }

    fn is_expired(&self, idle: Duration) -> bool {
        self.idle_since().is_some_and(|since| since.elapsed() >= idle)
    }
}

/// Why there is no new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    /// As many as allowed, and every one has a request running.
    #[error("all {limit} sessions are in use; try again later")]
    Full {
        /// The limit that applied.
        limit: usize,
    },
    /// The system gives no random numbers, without which an id could be guessed.
    #[error("no session id can be made: the system's random number generator fails")]
    NoRandomness,
}

impl Sessions {
    /// Room for `limit` sessions that expire after having had no request for `idle`.
    pub(crate) fn new(limit: usize, idle: Duration) -> Self {
        Self { table: Mutex::default(), limit: limit.max(1), idle }
    }

    /// Enters a session; returns its id. If there is no room, the sessions that have been idle
    /// longest give way.
    pub(crate) fn open(&self, session: Session) -> Result<Box<str>, OpenError> {
        let id = new_id()?;
        let usage = Arc::new(Mutex::new(Usage { running: 0, last: Instant::now() }));
        let mut table = lock(&self.table);
        let ended = if table.len() >= self.limit { make_room(&mut table, self.limit, self.idle)? } else { Vec::new() };
        table.insert(id.clone(), Entry { session: Arc::new(session), usage });
        // Sessions end, and tell the core, when the table is free again; so everywhere here.
        drop(table);
        drop(ended);
        Ok(id)
    }

    /// The session with this id, if there is one; it does not expire while the result lives.
    pub(crate) fn enter(&self, id: &str) -> Option<InUse> {
        let mut table = lock(&self.table);
        let entry = table.get(id)?;
        if entry.is_expired(self.idle) {
            let ended = table.remove(id);
            drop(table);
            drop(ended);
            return None;
        }
        lock(&entry.usage).running += 1;
        Some(InUse { session: Arc::clone(&entry.session), usage: Arc::clone(&entry.usage) })
    }

    /// Ends a session and cancels what it has running; says whether there was one.
    pub(crate) fn end(&self, id: &str) -> bool {
        let ended = lock(&self.table).remove(id);
        match ended {
            Some(entry) => !entry.is_expired(self.idle),
            None => false,
        }
    }

    /// Drops the sessions that have expired, and of the others the streams that nobody has resumed
    /// for `resume`.
    pub(crate) fn sweep(&self, resume: Duration) {
        let ended: Vec<_> = lock(&self.table).extract_if(|_, entry| entry.is_expired(self.idle)).collect();
        drop(ended);
        for session in self.all() {
            session.streams.sweep(resume);
        }
    }

    /// Ends every session.
    pub(crate) fn end_all(&self) {
        let ended = std::mem::take(&mut *lock(&self.table));
        drop(ended);
    }

    /// Ends the streams that carry what is said outside of calls.
    pub(crate) fn hang_up(&self) {
        for session in self.all() {
            session.streams.hang_up();
        }
    }

    /// How many there are, and how many event streams they have together.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let all = self.all();
        (all.len(), all.iter().map(|session| session.streams.count()).sum())
    }

    /// What an operator may see of all of them.
    pub(crate) fn shown(&self) -> Vec<SessionView> {
        let all: Vec<_> = {
            let table = lock(&self.table);
            table.iter().map(|(id, entry)| (id.clone(), Arc::clone(&entry.session), entry.idle_since())).collect()
        };
        let shown = |(id, session, idle): (Box<str>, Arc<Session>, Option<Instant>)| SessionView {
            idle: idle.map(|since| since.elapsed()),
            ..session.shown(&id, "http")
        };
        all.into_iter().map(shown).collect()
    }

    fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.table).values().map(|entry| Arc::clone(&entry.session)).collect()
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Drops expired sessions, else those idle longest: a few at once, so that a flood of new sessions
/// does not search the whole table for each.
fn make_room(table: &mut HashMap<Box<str>, Entry>, limit: usize, idle: Duration) -> Result<Vec<Entry>, OpenError> {
    let mut ended: Vec<_> = table.extract_if(|_, entry| entry.is_expired(idle)).map(|(_, entry)| entry).collect();
    if table.len() < limit {
        return Ok(ended);
    }
    let mut resting: Vec<_> = table.iter().filter_map(|(id, entry)| Some((entry.idle_since()?, id.clone()))).collect();
    if resting.is_empty() {
        return Err(OpenError::Full { limit });
    }
    resting.sort_unstable();
    let oldest = resting.into_iter().take((limit / 64).max(1));
    ended.extend(oldest.filter_map(|(_, id)| table.remove(&id)));
    Ok(ended)
}

/// 256 random bits as visible ASCII (2025-11-25 basic/transports, Session Management).
pub(crate) fn new_id() -> Result<Box<str>, OpenError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|_| OpenError::NoRandomness)?;
    Ok(random
        .iter()
        .fold(String::with_capacity(64), |mut id, byte| {
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
            id
        })
        .into())
}

/// A session with a request, which keeps it from expiring.
#[derive(Debug)]
pub(crate) struct InUse {
    session: Arc<Session>,
    usage: Arc<Mutex<Usage>>,
}

impl InUse {
    /// The session itself, to be held on to without keeping it from expiring.
    pub(crate) fn shared(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }
}

impl Clone for InUse {
    fn clone(&self) -> Self {
        lock(&self.usage).running += 1;
        Self { session: Arc::clone(&self.session), usage: Arc::clone(&self.usage) }
    }
}

impl std::ops::Deref for InUse {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut usage = lock(&self.usage);
        usage.running = usage.running.saturating_sub(1);
        if usage.running == 0 {
            usage.last = Instant::now();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
