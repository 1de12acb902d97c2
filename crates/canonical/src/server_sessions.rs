//! The sessions that servers keep for a session of a client, so that another process can go on with them.
//!
//! The server edge enters each session that a server has opened; the client edge puts them on record with its own session, and
//! brings them along where it continues that. They belong to that session alone, and so to its holder.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use aws_lc_rs::digest::{Context, SHA256};
use fanlight_protocol::Json;
use tokio::sync::watch;

/// The most servers whose sessions are kept. No option: the others open new ones, as servers without a session do.
const MOST: usize = 64;
/// The most bytes that they take together. No option: what servers say of themselves is mostly some hundred bytes.
const MOST_BYTES: usize = 64 << 10;

/// How many processes go on with one. No option: the numbers of requests are left exact in JSON (RFC 8259, 6).
const MOST_MOVES: u16 = 4000;

/// The future of what the client edge is asked.
pub type Keeping<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A session at a server: what a process needs to go on with it.
#[derive(Clone)]
pub struct ServerSession {
    /// Its id, a secret.
    pub id: Box<str>,
    /// The name of the revision agreed on.
    pub revision: Box<str>,
    /// What the server has said of itself.
    pub description: Json,
    /// How many processes have gone on with it: the requests of each have numbers of their own.
    pub moves: u16,
}

/// The session of a client, as the client edge keeps it.
pub trait SessionKeeper: Send + Sync {
    /// Writes what is on record of it anew; ends soon, whatever becomes of that.
    fn write(&self) -> Keeping<'_, ()>;

    /// Whether it is certain that this process keeps it, and no other has taken it over.
    fn keeps(&self) -> Keeping<'_, bool>;
}

/// The sessions at servers of one session of a client.
#[derive(Default)]
pub struct ServerSessions {
    state: Mutex<State>,
    /// Set where the client's session is on record.
    keeper: OnceLock<Weak<dyn SessionKeeper>>,
}

#[derive(Default)]
struct State {
    /// By the place of the server.
    sessions: BTreeMap<Box<str>, Entry>,
    /// How often they have changed.
    changes: u64,
    fate: Fate,
}

struct Entry {
    session: ServerSession,
    /// A connection of this process has it.
    is_used: bool,
}

/// What becomes of the sessions at servers when the connections to those end.
#[derive(Clone, Default)]
enum Fate {
    /// The client's session goes on.
    #[default]
    Open,
    /// The client's session has ended. They end with it, unless another process has taken it over: it is being found out.
    Ended(watch::Receiver<Option<bool>>),
    /// Another process goes on with them, or may.
    Left,
}

impl ServerSession {
    fn len(&self) -> usize {
        self.id.len() + self.revision.len() + self.description.bytes().len()
    }
}

/// The place of a server: its name, and a digest of how it is reached, so that none is told the session of another.
#[must_use]
pub fn place_of<'a>(name: &str, reached_by: impl IntoIterator<Item = &'a str>) -> Arc<str> {
    let mut digest = Context::new(&SHA256);
    for part in reached_by {
        digest.update(&part.len().to_be_bytes());
        digest.update(part.as_bytes());
    }
    let mut place = format!("{name}\n");
    digest.finish().as_ref().iter().for_each(|byte| place.push_str(&format!("{byte:02x}")));
    place.into()
}

impl ServerSessions {
    /// Those that another process has opened, by the places of their servers.
    #[must_use]
    pub fn continuing(sessions: impl IntoIterator<Item = (Box<str>, ServerSession)>) -> Self {
        let of_other = |(place, session): (_, ServerSession)| {
            let moves = session.moves.checked_add(1).filter(|moves| *moves <= MOST_MOVES)?;
            Some((place, Entry { session: ServerSession { moves, ..session }, is_used: false }))
        };
        let sessions = sessions.into_iter().take(MOST).filter_map(of_other).collect();
        let state = State { sessions, ..State::default() };
        Self { state: Mutex::new(state), keeper: OnceLock::new() }
    }

    /// From now on they are on record with the client's session.
    pub fn put_on_record(&self, keeper: Weak<dyn SessionKeeper>) {
        // An error means that they are already.
        let _ = self.keeper.set(keeper);
    }

    /// The session at the server of this place.
    #[must_use]
    pub fn at(self: &Arc<Self>, place: &Arc<str>) -> SessionAt {
        SessionAt { sessions: Arc::clone(self), place: Arc::clone(place) }
    }

    /// All of them, by place.
    #[must_use]
    pub fn all(&self) -> Vec<(Box<str>, ServerSession)> {
        self.lock().sessions.iter().map(|(place, entry)| (place.clone(), entry.session.clone())).collect()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().sessions.is_empty()
    }

    /// How often they have changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Whether another process has opened any at the server of this name that no connection of this one has so far.
    #[must_use]
    pub fn are_waiting_at(&self, name: &str) -> bool {
        let is_at = |place: &str| place.rsplit_once('\n').is_some_and(|(of, _)| of == name);
        self.lock().sessions.iter().any(|(place, entry)| !entry.is_used && is_at(place))
    }

    /// Whether the client's session has ended.
    #[must_use]
    pub fn have_ended(&self) -> bool {
        matches!(self.lock().fate, Fate::Ended(_))
    }

    /// The client's session has ended; `is_ours` tells whether this process has kept it until then.
    pub fn end(&self, is_ours: watch::Receiver<Option<bool>>) {
        self.lock().fate = Fate::Ended(is_ours);
    }

    /// Leaves them to another process: none ends with a connection of this one.
    pub fn leave(&self) {
        self.lock().fate = Fate::Left;
    }

    async fn may_end(&self) -> bool {
        loop {
            let fate = self.lock().fate.clone();
            match (fate, self.keeper.get()) {
                (Fate::Left, _) => return false,
                (Fate::Ended(mut is_ours), _) => {
                    // An error means that it cannot be found out.
                    return is_ours.wait_for(Option::is_some).await.is_ok_and(|is_ours| *is_ours == Some(true));
                }
                (Fate::Open, None) => return true,
                (Fate::Open, Some(keeper)) => {
                    let is_kept = match keeper.upgrade() {
                        Some(keeper) => keeper.keeps().await,
                        None => false,
                    };
                    // It may have ended meanwhile.
                    if is_kept || matches!(self.lock().fate, Fate::Open) {
                        return is_kept;
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session at one server.
#[derive(Clone, Debug)]
pub struct SessionAt {
    sessions: Arc<ServerSessions>,
    place: Arc<str>,
}

impl SessionAt {
    /// Whether another process has opened it, and no connection of this one has it so far.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.sessions.lock().sessions.get(&*self.place).is_some_and(|entry| !entry.is_used)
    }

    /// How many processes have gone on with the session so far, this one included.
    #[must_use]
    pub fn moves(&self) -> u16 {
        self.sessions.lock().sessions.get(&*self.place).map_or(0, |entry| entry.session.moves)
    }

    /// The session that another process has opened, once: a connection of this one has it from then on.
    #[must_use]
    pub fn take(&self) -> Option<ServerSession> {
        let mut state = self.sessions.lock();
        let entry = state.sessions.get_mut(&*self.place).filter(|entry| !entry.is_used)?;
        entry.is_used = true;
        Some(entry.session.clone())
    }

    /// The server has opened it: puts it on record, if there is room for it. No request should be sent in it before.
    pub async fn opened(&self, session: ServerSession) {
        {
            let mut state = self.sessions.lock();
            state.sessions.remove(&*self.place);
            let bytes: usize = state.sessions.values().map(|entry| entry.session.len()).sum();
            if state.sessions.len() < MOST && bytes.saturating_add(session.len()) <= MOST_BYTES {
                state.sessions.insert((*self.place).into(), Entry { session, is_used: true });
            }
            state.changes += 1;
        }
        if let Some(keeper) = self.sessions.keeper.get().and_then(Weak::upgrade) {
            keeper.write().await;
        }
    }

    /// The session with this id has ended, or is given up. It leaves the record when that is written next.
    pub fn ended(&self, id: &str) {
        let mut state = self.sessions.lock();
        if state.sessions.get(&*self.place).is_some_and(|entry| *entry.session.id == *id) {
            state.sessions.remove(&*self.place);
            state.changes += 1;
        }
    }

    /// Whether the server may be told that it ends: not if another process has taken it over, or may have.
    pub async fn may_end(&self) -> bool {
        self.sessions.may_end().await
    }
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSessions").field("count", &self.lock().sessions.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
        ServerSession { id: id.into(), revision: "r".into(), description, moves: 0 }
    }

    fn ids(sessions: &ServerSessions) -> Vec<String> {
        sessions.all().into_iter().map(|(place, session)| format!("{place}={}", session.id)).collect()
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
        let at = |number: usize| sessions.at(&format!("{number:03}").into());
        at(0).opened(session("a", 1)).await;
        at(0).opened(session("b", 1)).await;
        assert_eq!((ids(&sessions), keeper.written.load(Ordering::Relaxed)), (vec!["000=b".to_owned()], 2));
        at(1).opened(session("long", MOST_BYTES)).await;
        assert_eq!(ids(&sessions), ["000=b"]);
        for number in 1..2 * MOST {
            at(number).opened(session("c", 1)).await;
        }
        assert_eq!(ids(&sessions).len(), MOST);
    }

    #[test]
    fn session_of_another_process_is_taken_once_and_forgotten_by_its_own_id() {
        let sessions = Arc::new(ServerSessions::continuing([("a\n0".into(), session("1", 1))]));
        let (here, elsewhere) = (sessions.at(&"a\n0".into()), sessions.at(&"a\n1".into()));
        assert!(here.is_waiting() && !elsewhere.is_waiting());
        assert!(sessions.are_waiting_at("a") && !sessions.are_waiting_at("b"));
        assert!(elsewhere.take().is_none());
        let taken = here.take().unwrap();
        assert_eq!((&*taken.id, taken.moves, here.moves()), ("1", 1, 1));
        assert!(here.take().is_none() && !sessions.are_waiting_at("a"));
        here.ended("2");
        assert_eq!(ids(&sessions), ["a\n0=1"]);
        here.ended("1");
        assert!(ids(&sessions).is_empty());
    }

    #[tokio::test]
    async fn server_is_told_of_an_end_only_where_this_process_certainly_keeps_the_session() {
        let new = || Arc::new(ServerSessions::default());
        let may_end = async |sessions: &Arc<ServerSessions>| sessions.at(&"a".into()).may_end().await;
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
            assert!(sessions.have_ended());
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
    fn session_moves_as_often_as_its_requests_have_numbers() {
        let moved = |moves| ServerSessions::continuing([("a".into(), ServerSession { moves, ..session("1", 1) })]);
        assert_eq!(moved(MOST_MOVES - 1).all()[0].1.moves, MOST_MOVES);
        assert!(moved(MOST_MOVES).all().is_empty() && moved(u16::MAX).all().is_empty());
    }

    #[test]
    fn place_names_the_server_and_how_it_is_reached() {
        let place = place_of("a", ["https://a", "x"]);
        assert_eq!(place.split_once('\n').map(|(name, digest)| (name, digest.len())), Some(("a", 64)));
        for (name, reached_by) in [("b", ["https://a", "x"]), ("a", ["https://ax", ""]), ("a", ["https://a", "y"])] {
            assert_ne!(place, place_of(name, reached_by));
        }
    }

    #[test]
    fn ids_are_not_shown() {
        let sessions = ServerSessions::continuing([("a".into(), session("s3cret", 1))]);
        assert!(!format!("{sessions:?} {:?}", session("s3cret", 1)).contains("s3cret"));
    }
}
