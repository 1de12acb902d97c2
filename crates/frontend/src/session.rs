//! Sessions of legacy HTTP clients: who they are, what they agreed on, what they have running.
//!
//! A session ends by DELETE, by having had no request for too long, or by giving way to a new one
//! when there are too many. There is no task per session: the listener's upkeep sweeps.
//!
//! Must not know: HTTP. Binding a session to a principal belongs here once there are principals.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_gateway::{CallContext, SessionKey};
use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::{Json, Revision};
use tokio::time::Instant;

use crate::cancel::InFlight;
use crate::client_key::new_client_key;
use crate::legacy::Opening;

/// What a legacy client and this side know of each other: an HTTP session, or a stdio connection
/// after `initialize`.
#[derive(Debug)]
pub(crate) struct Session {
    client_key: u64,
    opening: Opening,
    log_level: Mutex<Option<LogLevel>>,
    /// Its running requests.
    pub(crate) in_flight: Arc<InFlight>,
}

impl Session {
    /// A session of the client that sent `opening`.
    pub(crate) fn new(opening: Opening, in_flight: Arc<InFlight>) -> Self {
        Self { client_key: new_client_key(), opening, log_level: Mutex::default(), in_flight }
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
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        *lock(&self.log_level) = Some(level);
    }

    /// What the core learns of the client for one request. Requests of a server to the client are
    /// not relayed, so the client's own capabilities are not passed on: a server must not ask for
    /// what cannot reach the client.
    pub(crate) fn context(&self, wants_progress: bool) -> CallContext {
        CallContext {
            client_key: self.client_key,
            session: Some(SessionKey(self.client_key)),
            client_info: self.opening.client_info.clone(),
            capabilities: Json::empty_object(),
            log_level: self.log_level(),
            wants_progress,
        }
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
        if table.len() >= self.limit {
            make_room(&mut table, self.limit, self.idle)?;
        }
        table.insert(id.clone(), Entry { session: Arc::new(session), usage });
        Ok(id)
    }

    /// The session with this id, if there is one; it does not expire while the result lives.
    pub(crate) fn enter(&self, id: &str) -> Option<InUse> {
        let mut table = lock(&self.table);
        let entry = table.get(id)?;
        if entry.is_expired(self.idle) {
            table.remove(id);
            return None;
        }
        lock(&entry.usage).running += 1;
        Some(InUse { session: Arc::clone(&entry.session), usage: Arc::clone(&entry.usage) })
    }

    /// Ends a session and cancels what it has running; says whether there was one.
    pub(crate) fn end(&self, id: &str) -> bool {
        let ended = lock(&self.table).remove(id);
        match ended {
            Some(entry) => {
                entry.session.in_flight.cancel_all();
                !entry.is_expired(self.idle)
            }
            None => false,
        }
    }

    /// Drops the sessions that have expired.
    pub(crate) fn sweep(&self) {
        lock(&self.table).retain(|_, entry| !entry.is_expired(self.idle));
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Drops expired sessions, else those idle longest: a few at once, so that a flood of new sessions
/// does not search the whole table for each.
fn make_room(table: &mut HashMap<Box<str>, Entry>, limit: usize, idle: Duration) -> Result<(), OpenError> {
    table.retain(|_, entry| !entry.is_expired(idle));
    if table.len() < limit {
        return Ok(());
    }
    let mut resting: Vec<_> = table.iter().filter_map(|(id, entry)| Some((entry.idle_since()?, id.clone()))).collect();
    if resting.is_empty() {
        return Err(OpenError::Full { limit });
    }
    resting.sort_unstable();
    for (_, id) in resting.into_iter().take((limit / 64).max(1)) {
        table.remove(&id);
    }
    Ok(())
}

/// 256 random bits as visible ASCII (2025-11-25 basic/transports, Session Management).
fn new_id() -> Result<Box<str>, OpenError> {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| OpenError::NoRandomness)?;
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
        usage.last = Instant::now();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    fn session() -> Session {
        let opening = Opening {
            revision: Revision::V2025_11_25,
            client_info: Some(Json::literal(r#"{"name":"c"}"#)),
            capabilities: Json::literal(r#"{"sampling":{}}"#),
        };
        Session::new(opening, Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn ids_are_long_visible_and_all_different() {
        let sessions = Sessions::new(100, IDLE);
        let mut ids: Vec<_> = (0..100).map(|_| sessions.open(session()).unwrap()).collect();
        assert!(ids.iter().all(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_graphic())));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_sessions_expire_and_used_ones_do_not() {
        let sessions = Sessions::new(10, IDLE);
        let (idle, used) = (sessions.open(session()).unwrap(), sessions.open(session()).unwrap());
        let using = sessions.enter(&used).unwrap();
        tokio::time::advance(IDLE).await;
        assert!(sessions.enter(&idle).is_none());
        assert!(!sessions.end(&idle));
        sessions.sweep();
        drop(using);
        tokio::time::advance(IDLE / 2).await;
        drop(sessions.enter(&used).unwrap());
        tokio::time::advance(IDLE / 2).await;
        assert!(sessions.enter(&used).is_some());
        tokio::time::advance(IDLE).await;
        sessions.sweep();
        assert!(lock(&sessions.table).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_gives_way_and_a_used_one_never() {
        let sessions = Sessions::new(2, IDLE);
        let first = sessions.open(session()).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = sessions.open(session()).unwrap();
        let using_first = sessions.enter(&first).unwrap();
        let third = sessions.open(session()).unwrap();
        assert!(sessions.enter(&second).is_none());
        let using_third = sessions.enter(&third).unwrap();
        assert_eq!(sessions.open(session()), Err(OpenError::Full { limit: 2 }));
        drop((using_first, using_third));
        assert!(sessions.open(session()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn ending_cancels_what_runs() {
        let sessions = Sessions::new(2, IDLE);
        let id = sessions.open(session()).unwrap();
        let using = sessions.enter(&id).unwrap();
        let stop = using.in_flight.begin(&Json::literal("1"));
        assert!(sessions.end(&id));
        stop.await;
        assert!(!sessions.end(&id));
        assert!(sessions.enter(&id).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_core_learns_what_it_may() {
        let (session, fresh) = (session(), session());
        session.set_log_level(LogLevel::Error);
        let context = session.context(true);
        assert_eq!(context.log_level, Some(LogLevel::Error));
        assert_eq!(context.capabilities.as_text(), "{}");
        assert_eq!(context.client_info.as_ref().unwrap().as_text(), r#"{"name":"c"}"#);
        assert_ne!(context.client_key, fresh.client_key);
    }
}
