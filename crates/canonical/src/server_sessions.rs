//! The sessions that servers keep for a client's session, so that another replica can continue
//! them.
//!
//! The server edge enters each session that a server has opened. The client edge records them with
//! the client's session, and loads them when it continues that session. They belong to that session
//! alone, and so to its holder.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use fanlight_protocol::{Json, sha256_of_parts};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The most servers whose sessions are kept. No option: other servers get new sessions.
const MOST: usize = 64;
/// The most bytes that they take together. No option: a server's description usually has some
/// hundred bytes.
const MOST_BYTES: usize = 64 << 10;

/// How often a session can move to another process. No option: request ids stay below 2^31, because
/// some servers read them as 32-bit numbers.
const MOST_MOVES: u16 = 127;
/// How many request ids each process has for a session.
const IDS: i64 = 1 << 24;
/// The number of ids at the end of a range that are reserved. Once they are reached, no other
/// process may continue the session. No option: the record is written with the client's next
/// request, which may need some more ids.
const SPARE_IDS: i64 = 1 << 10;

/// The future of a request to the client edge.
pub type Keeping<'a, T> = BoxFuture<'a, T>;

/// A session at a server, with everything that a process needs to continue it.
#[derive(Clone)]
pub struct ServerSession {
    /// The session id, which is secret.
    pub id: Box<str>,
    /// The negotiated revision.
    pub revision: Box<str>,
    /// The server's description of itself.
    pub description: Json,
    /// The number of the range for its request ids ([`RequestIds`]). A process that continues the
    /// session takes the next range.
    pub moves: u16,
}

/// The keeper of a client's session, which also writes the session's record.
///
/// A trait because its implementation depends on this crate.
pub trait SessionKeeper: Send + Sync {
    /// Writes the session's record again. Ends soon, even if that fails.
    fn write(&self) -> Keeping<'_, ()>;

    /// Whether this process certainly keeps the session, and no other has taken it over.
    fn keeps(&self) -> Keeping<'_, bool>;
}

/// The sessions at servers that belong to one session of a client.
#[derive(Default)]
pub struct ServerSessions {
    state: Mutex<State>,
    /// Set once the client's session is recorded.
    keeper: OnceLock<Weak<dyn SessionKeeper>>,
}

#[derive(Default)]
struct State {
    /// The sessions by the server's place.
    sessions: BTreeMap<Box<str>, Entry>,
    /// The number of changes so far.
    changes: u64,
    fate: Fate,
}

struct Entry {
    session: ServerSession,
    /// Set if a connection of this process uses the session, or if none may continue it.
    is_used: bool,
}

/// Decides whether sessions at servers end together with their connections.
#[derive(Clone, Default)]
enum Fate {
    /// The client's session is in use here.
    #[default]
    Open,
    /// The client's session has ended. Its sessions at servers end too, unless another process has
    /// taken them over; the receiver will tell.
    Ended(watch::Receiver<Option<bool>>),
    /// Another process continues the sessions, or may do so.
    Left,
}

impl ServerSession {
    fn len(&self) -> usize {
        self.id.len() + self.revision.len() + self.description.bytes().len()
    }
}

/// The place of a server: its name, and a digest of how to reach it. So no server gets another
/// one's session id.
pub fn place_of<'a>(name: &str, reached_by: impl IntoIterator<Item = &'a str>) -> Arc<str> {
    let digest = sha256_of_parts(reached_by);
    digest
        .iter()
        .fold(format!("{name}\n"), |place, byte| {
            format!("{place}{byte:02x}")
        })
        .into()
}

impl ServerSessions {
    /// The sessions that another process has opened, by the places of their servers.
    pub fn continuing(sessions: impl IntoIterator<Item = (Box<str>, ServerSession)>) -> Self {
        let of_other = |(place, session): (_, ServerSession)| {
            let moves = session
                .moves
                .checked_add(1)
                .filter(|moves| *moves <= MOST_MOVES)?;
            Some((
                place,
                Entry {
                    session: ServerSession { moves, ..session },
                    is_used: false,
                },
            ))
        };
        let sessions = sessions
            .into_iter()
            .take(MOST)
            .filter_map(of_other)
            .collect();
        let state = State {
            sessions,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            keeper: OnceLock::new(),
        }
    }

    /// Records the sessions with the client's session from now on.
    pub fn put_on_record(&self, keeper: Weak<dyn SessionKeeper>) {
        // An error means that this has been done.
        let _ = self.keeper.set(keeper);
    }

    /// The session at the server of this place.
    #[must_use]
    pub fn session_at(self: &Arc<Self>, place: &Arc<str>) -> SessionAt {
        SessionAt {
            sessions: Arc::clone(self),
            place: Arc::clone(place),
        }
    }

    /// All sessions, by place.
    pub fn entries(&self) -> Vec<(Box<str>, ServerSession)> {
        self.state
            .lock()
            .sessions
            .iter()
            .map(|(place, entry)| (place.clone(), entry.session.clone()))
            .collect()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.state.lock().sessions.is_empty()
    }

    /// The number of changes so far.
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Whether another process opened a session at the server of this name that no connection here
    /// uses yet.
    pub fn are_waiting_at(&self, name: &str) -> bool {
        let is_at = |place: &str| place.rsplit_once('\n').is_some_and(|(of, _)| of == name);
        self.state
            .lock()
            .sessions
            .iter()
            .any(|(place, entry)| !entry.is_used && is_at(place))
    }

    /// Whether the client's session has ended here, because it is over or another process continues
    /// it.
    pub fn are_given_up(&self) -> bool {
        !matches!(self.state.lock().fate, Fate::Open)
    }

    /// Ends the client's session. `is_ours` tells whether this process kept it until then.
    pub fn end(&self, is_ours: watch::Receiver<Option<bool>>) {
        self.state.lock().fate = Fate::Ended(is_ours);
    }

    /// Leaves the sessions to another process. This process continues none of them, and ends none
    /// with a connection.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        state.fate = Fate::Left;
        state
            .sessions
            .values_mut()
            .for_each(|entry| entry.is_used = true);
    }

    async fn may_end(&self) -> bool {
        loop {
            let fate = self.state.lock().fate.clone();
            match (fate, self.keeper.get()) {
                (Fate::Left, _) => return false,
                (Fate::Ended(mut is_ours), _) => {
                    // An error means that it cannot be found out.
                    return is_ours
                        .wait_for(Option::is_some)
                        .await
                        .is_ok_and(|is_ours| *is_ours == Some(true));
                }
                (Fate::Open, None) => return true,
                (Fate::Open, Some(keeper)) => {
                    let is_kept = match keeper.upgrade() {
                        Some(keeper) => keeper.keeps().await,
                        None => false,
                    };
                    // The session may have ended meanwhile.
                    if is_kept || matches!(self.state.lock().fate, Fate::Open) {
                        return is_kept;
                    }
                }
            }
        }
    }
}

/// The session of one client session at one server.
#[derive(Clone, Debug)]
pub struct SessionAt {
    sessions: Arc<ServerSessions>,
    place: Arc<str>,
}

/// The request ids of one connection whose session other processes may continue. An id must not be
/// used twice in a session (2025-11-25 basic/index, Requests), even by another process. So each
/// process has its own range.
#[derive(Debug)]
pub struct RequestIds {
    next: AtomicI64,
    at: SessionAt,
}

impl SessionAt {
    /// Whether another process opened the session, and no connection here uses it yet.
    pub fn is_waiting(&self) -> bool {
        self.sessions
            .state
            .lock()
            .sessions
            .get(&*self.place)
            .is_some_and(|entry| !entry.is_used)
    }

    /// The request ids for a connection to the server: from the session's range, or the first range
    /// if there is no session.
    pub fn request_ids(&self) -> RequestIds {
        let range = self
            .sessions
            .state
            .lock()
            .sessions
            .get(&*self.place)
            .map_or(0, |entry| entry.session.moves);
        RequestIds {
            next: AtomicI64::new(i64::from(range) * IDS + 1),
            at: self.clone(),
        }
    }

    /// Takes the session that another process opened. Returns it once; a connection here then uses
    /// it.
    pub fn take(&self) -> Option<ServerSession> {
        let mut state = self.sessions.state.lock();
        let entry = state
            .sessions
            .get_mut(&*self.place)
            .filter(|entry| !entry.is_used)?;
        entry.is_used = true;
        Some(entry.session.clone())
    }

    /// Records a session that the server has opened, if there is room. No request should be sent in
    /// it before.
    pub async fn record_opened(&self, session: ServerSession) {
        {
            let mut state = self.sessions.state.lock();
            state.sessions.remove(&*self.place);
            let bytes: usize = state
                .sessions
                .values()
                .map(|entry| entry.session.len())
                .sum();
            if state.sessions.len() < MOST && bytes.saturating_add(session.len()) <= MOST_BYTES {
                state.sessions.insert(
                    (*self.place).into(),
                    Entry {
                        session,
                        is_used: true,
                    },
                );
            }
            state.changes += 1;
        }
        if let Some(keeper) = self.sessions.keeper.get().and_then(Weak::upgrade) {
            keeper.write().await;
        }
    }

    /// Removes a session that has ended or is given up. The record loses it when it is written
    /// next.
    pub fn remove(&self, id: &str) {
        self.forget(|session| *session.id == *id);
    }

    fn forget(&self, is_meant: impl FnOnce(&ServerSession) -> bool) {
        let mut state = self.sessions.state.lock();
        if state
            .sessions
            .get(&*self.place)
            .is_some_and(|entry| is_meant(&entry.session))
        {
            state.sessions.remove(&*self.place);
            state.changes += 1;
        }
    }

    /// Whether to tell the server that its session ends: not if another process may have taken it
    /// over.
    pub async fn may_end(&self) -> bool {
        self.sessions.may_end().await
    }
}

impl RequestIds {
    /// The next id. If the range is nearly used up, no other process may continue the session.
    pub fn take(&self) -> i64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if (id + SPARE_IDS) % IDS == 0 {
            self.at.forget(|_| true);
        }
        id
    }

    /// The number of the id range for a session that is opened now.
    pub fn moves(&self) -> u16 {
        u16::try_from((self.next.load(Ordering::Relaxed) + SPARE_IDS) / IDS).unwrap_or(u16::MAX)
    }
}

fanlight_protocol::opaque!(ServerSession, ServerSessions);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    #[derive(Default)]
    struct Keeper {
        written: AtomicUsize,
        is_kept: AtomicBool,
    }

    impl SessionKeeper for Keeper {
        fn write(&self) -> Keeping<'_, ()> {
            self.written.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        }

        fn keeps(&self) -> Keeping<'_, bool> {
            Box::pin(std::future::ready(self.is_kept.load(Ordering::Relaxed)))
        }
    }

    fn session(id: &str, bytes: usize) -> ServerSession {
        let description = Json::parse(format!("\"{}\"", "x".repeat(bytes)).into(), 4).unwrap();
        ServerSession {
            id: id.into(),
            revision: "r".into(),
            description,
            moves: 0,
        }
    }

    fn ids(sessions: &ServerSessions) -> Vec<String> {
        sessions
            .entries()
            .into_iter()
            .map(|(place, session)| format!("{place}={}", session.id))
            .collect()
    }

    fn on_record(sessions: &ServerSessions) -> Arc<Keeper> {
        let keeper = Arc::new(Keeper::default());
        let weak: Weak<Keeper> = Arc::downgrade(&keeper);
        sessions.put_on_record(weak);
        keeper
    }

    #[tokio::test]
    async fn sessions_are_written_when_they_are_opened_and_as_many_as_there_is_room_for() {
        let sessions = Arc::new(ServerSessions::default());
        let keeper = on_record(&sessions);
        let at = |number: usize| sessions.session_at(&format!("{number:03}").into());
        at(0).record_opened(session("a", 1)).await;
        at(0).record_opened(session("b", 1)).await;
        assert_eq!(
            (ids(&sessions), keeper.written.load(Ordering::Relaxed)),
            (vec!["000=b".to_owned()], 2)
        );
        at(1).record_opened(session("long", MOST_BYTES)).await;
        assert_eq!(ids(&sessions), ["000=b"]);
        for number in 1..2 * MOST {
            at(number).record_opened(session("c", 1)).await;
        }
        assert_eq!(ids(&sessions).len(), MOST);
    }

    #[test]
    fn session_of_another_process_is_taken_once_and_forgotten_by_its_own_id() {
        let sessions = Arc::new(ServerSessions::continuing([(
            "a\n0".into(),
            session("1", 1),
        )]));
        let (here, elsewhere) = (
            sessions.session_at(&"a\n0".into()),
            sessions.session_at(&"a\n1".into()),
        );
        assert!(here.is_waiting() && !elsewhere.is_waiting());
        assert!(sessions.are_waiting_at("a") && !sessions.are_waiting_at("b"));
        assert!(elsewhere.take().is_none());
        let taken = here.take().unwrap();
        assert_eq!(
            (&*taken.id, taken.moves, here.request_ids().moves()),
            ("1", 1, 1)
        );
        assert!(here.take().is_none() && !sessions.are_waiting_at("a"));
        here.remove("2");
        assert_eq!(ids(&sessions), ["a\n0=1"]);
        here.remove("1");
        assert!(ids(&sessions).is_empty());
    }

    #[tokio::test]
    async fn server_is_told_of_an_end_only_where_this_process_certainly_keeps_the_session() {
        let new = || Arc::new(ServerSessions::default());
        let may_end =
            async |sessions: &Arc<ServerSessions>| sessions.session_at(&"a".into()).may_end().await;
        assert!(may_end(&new()).await, "it is on no record");
        let sessions = new();
        let keeper = on_record(&sessions);
        assert!(!may_end(&sessions).await);
        keeper.is_kept.store(true, Ordering::Relaxed);
        assert!(may_end(&sessions).await);
        drop(keeper);
        assert!(!may_end(&sessions).await);
        for (is_ours, expected) in [(Some(true), true), (Some(false), false), (None, false)] {
            let (sender, receiver) = watch::channel(None);
            sessions.end(receiver);
            assert!(sessions.are_given_up());
            let found = async {
                tokio::task::yield_now().await;
                sender.send_replace(is_ours);
                drop(sender);
            };
            assert_eq!(tokio::join!(may_end(&sessions), found).0, expected);
        }
        sessions.leave();
        assert!(!may_end(&sessions).await);
    }

    #[test]
    fn session_that_was_left_is_waiting_no_more_and_one_that_has_ended_is_until_its_server_is_told()
    {
        let new = || {
            Arc::new(ServerSessions::continuing([(
                "a\n0".into(),
                session("1", 1),
            )]))
        };
        let sessions = new();
        assert!(!sessions.are_given_up());
        sessions.end(watch::channel(None).1);
        assert!(sessions.are_given_up() && sessions.session_at(&"a\n0".into()).take().is_some());
        let sessions = new();
        let at = sessions.session_at(&"a\n0".into());
        sessions.leave();
        assert!(sessions.are_given_up() && !sessions.are_waiting_at("a"));
        assert!(!at.is_waiting() && at.take().is_none());
    }

    #[tokio::test]
    async fn ids_of_requests_are_of_the_range_of_the_session_and_it_is_continued_by_none_when_they_run_out()
     {
        let sessions = Arc::new(ServerSessions::continuing([("a".into(), session("1", 1))]));
        let at = sessions.session_at(&"a".into());
        let ids = at.request_ids();
        assert_eq!((ids.moves(), ids.take(), ids.take()), (1, IDS + 1, IDS + 2));
        ids.next.store(2 * IDS - SPARE_IDS - 1, Ordering::Relaxed);
        ids.take();
        assert_eq!(
            (ids.moves(), sessions.entries().len(), sessions.changes()),
            (2, 1, 0)
        );
        ids.take();
        assert_eq!(
            (ids.moves(), sessions.entries().len(), sessions.changes()),
            (2, 0, 1)
        );
        // A new session continues with the ids after those that this connection may use.
        at.record_opened(ServerSession {
            moves: ids.moves(),
            ..session("2", 1)
        })
        .await;
        ids.next.store(2 * IDS, Ordering::Relaxed);
        ids.take();
        let next = Arc::new(ServerSessions::continuing(sessions.entries()));
        assert_eq!(
            next.session_at(&"a".into()).request_ids().take(),
            3 * IDS + 1
        );
    }

    #[test]
    fn session_moves_as_often_as_its_requests_have_numbers() {
        assert_eq!((i64::from(MOST_MOVES) + 1) * IDS, 1 << 31);
        let moved = |moves| {
            ServerSessions::continuing([(
                "a".into(),
                ServerSession {
                    moves,
                    ..session("1", 1)
                },
            )])
        };
        assert_eq!(moved(MOST_MOVES - 1).entries()[0].1.moves, MOST_MOVES);
        assert!(moved(MOST_MOVES).entries().is_empty() && moved(u16::MAX).entries().is_empty());
    }

    #[test]
    fn place_names_the_server_and_how_it_is_reached() {
        let place = place_of("a", ["https://a", "x"]);
        assert_eq!(
            place
                .split_once('\n')
                .map(|(name, digest)| (name, digest.len())),
            Some(("a", 64))
        );
        for (name, reached_by) in [
            ("b", ["https://a", "x"]),
            ("a", ["https://ax", ""]),
            ("a", ["https://a", "y"]),
        ] {
            assert_ne!(place, place_of(name, reached_by));
        }
    }

    #[test]
    fn ids_are_not_shown() {
        let sessions = ServerSessions::continuing([("a".into(), session("s3cret", 1))]);
        assert!(!format!("{sessions:?} {:?}", session("s3cret", 1)).contains("s3cret"));
    }
}
