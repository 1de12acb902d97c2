//! One legacy client: its principal, the result of `initialize`, and its running requests.

pub(crate) mod archive;
mod running_requests;
mod server_requests;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use fanlight_canonical::{
    CallContext, Caller, ClientEra, Core, Endpoint, Holder, Keeping, Peer, ServerRequest,
    ServerSessions, SessionKeeper, SessionKey,
};
use fanlight_identity::{Identity, Source};
use fanlight_protocol::capability::MissingCapability;
use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::{Json, Response, Revision};
use fanlight_telemetry::{Network, Parent, Telemetry};
use tokio::time::Instant;

use self::archive::{ArchivedSession, OnRecord};
pub(crate) use self::running_requests::{Cancellation, RunningRequests};
pub(crate) use self::server_requests::ServerRequests;
use crate::decision::Client;
use crate::eras::legacy::InitializeParams;
use crate::memory::Reservation;
use crate::session_records::Released;
use crate::trace::SessionCount;

/// The most bytes that the URIs of a session's subscriptions take in its record. No option: they are written with each change of
/// it; what a client subscribes to beyond them ends with its replica.
const MOST_SUBSCRIBED: usize = 64 << 10;

/// A legacy client after `initialize`: of an HTTP session, of a stream of the HTTP+SSE transport, or
/// of a stdio connection.
pub(crate) struct Session {
    record: SessionRecord,
    /// Counts the size of `initialize`.
    _memory: Reservation,
    key: SessionKey,
    /// A random number, which no other session of its client has at any replica, wherever it was opened.
    opened_as: u64,
    log_level: Mutex<Option<LogLevel>>,
    pub(crate) running: Arc<RunningRequests>,
    pub(crate) server_requests: ServerRequests,
    usage: Mutex<Usage>,
    /// What another replica needs to take it over; `None` if none can.
    on_record: Mutex<Option<OnRecord>>,
    /// Another replica has taken it over.
    is_lost: AtomicBool,
    /// The sessions at servers that another replica goes on with then; `None` if none can take it over.
    server_sessions: Option<Arc<ServerSessions>>,
    /// The resources that its client has subscribed to, where it is on record, as far as there is room for them.
    subscriptions: Mutex<BTreeSet<String>>,
    /// Whether it was taken over, so that its client may have missed something.
    was_moved: bool,
    counted: Mutex<Option<SessionCount>>,
    /// Reports the end of the session to the core: when the session is dropped, so that no call of it
    /// can follow.
    report_end: Box<dyn Fn(SessionKey) + Send + Sync>,
}

/// What a session is of: plain data, nothing of which belongs to this process.
#[derive(Debug)]
pub(crate) struct SessionRecord {
    /// No other principal may use the session, and no other endpoint.
    pub(crate) holder: Holder,
    /// The identity that opened it, for operators. Later requests may show newer credentials.
    pub(crate) identity: Arc<Identity>,
    /// The peer in whose share of a limit the session counts.
    pub(crate) peer: Peer,
    pub(crate) initialize: InitializeParams,
}

#[derive(Debug)]
struct Usage {
    /// The number of [`SessionGuard`]s.
    guards: usize,
    /// When the last of them was dropped, or the session was opened.
    last: Instant,
}

impl Session {
    /// A session of a client that sent `initialize`. The client may have `max_server_requests`
    /// to answer at once.
    pub(crate) fn new<C: Core>(
        record: SessionRecord,
        memory: Reservation,
        running: Arc<RunningRequests>,
        max_server_requests: usize,
        core: &Arc<C>,
    ) -> Self {
        let (core, key) = (Arc::clone(core), SessionKey::fresh());
        Self {
            record,
            _memory: memory,
            key,
            opened_as: fastrand::u64(..),
            log_level: Mutex::default(),
            running,
            server_requests: ServerRequests::new(max_server_requests),
            usage: Mutex::new(Usage {
                guards: 0,
                last: Instant::now(),
            }),
            on_record: Mutex::default(),
            is_lost: AtomicBool::new(false),
            server_sessions: None,
            subscriptions: Mutex::default(),
            was_moved: false,
            counted: Mutex::default(),
            report_end: Box::new(move |session| core.end_session(session)),
        }
    }

    /// It, whose sessions at servers can be on record with it.
    pub(crate) fn keeping(mut self, server_sessions: ServerSessions) -> Self {
        self.server_sessions = Some(Arc::new(server_sessions));
        self
    }

    /// It, as it was at the replica that it is taken over from.
    pub(crate) fn continuing(mut self, archived: ArchivedSession) -> Self {
        let ArchivedSession {
            initialize: _,
            opened_as,
            log_level,
            subscriptions,
            server_sessions,
        } = archived;
        self.server_sessions = Some(Arc::new(ServerSessions::continuing(server_sessions)));
        self.opened_as = opened_as.unwrap_or(self.opened_as);
        self.set_log_level(log_level);
        lock(&self.subscriptions).extend(subscriptions);
        self.was_moved = true;
        self
    }

    /// What tells it from all others of this process, also from itself at an earlier time here.
    pub(crate) fn key(&self) -> SessionKey {
        self.key
    }

    /// Has it be on record until it ends.
    pub(crate) fn put_on_record(self: &Arc<Self>, on_record: OnRecord) {
        *lock(&self.on_record) = Some(on_record);
        if let Some(server_sessions) = &self.server_sessions {
            let keeper: Weak<Self> = Arc::downgrade(self);
            server_sessions.put_on_record(keeper);
        }
    }

    /// Writes its record, if it is on record; whether that is written, with all that it is now. What cannot be written now is
    /// written with the next request. One record is written at a time, for all that wait by then: one with less never follows one
    /// with more.
    pub(crate) async fn write_record(&self) -> bool {
        let Some(writes) = lock(&self.on_record).as_ref().map(OnRecord::writes) else {
            return false;
        };
        match writes.turn().await {
            Ok(turn) => {
                let is_written = self.write_record_now().await;
                turn.done(is_written);
                is_written
            }
            Err(is_written) => is_written,
        }
    }

    async fn write_record_now(&self) -> bool {
        let changes = self.server_session_changes();
        let written = lock(&self.on_record)
            .as_ref()
            .and_then(|on_record| on_record.written(self));
        let Some((archive, name, record)) = written else {
            return false;
        };
        let is_written = archive.records.write(&name, &record).await;
        let is_move_unknown = match &mut *lock(&self.on_record) {
            Some(on_record) if is_written => {
                on_record.has_changes(changes);
                false
            }
            Some(on_record) => {
                on_record.confirm(None);
                !on_record.was_written()
            }
            None => false,
        };
        if is_move_unknown {
            self.give_up_waiting_server_sessions();
        }
        is_written
    }

    /// Has servers open other sessions than those that other replicas have opened: the replica that takes this one over next would
    /// number its requests like this one.
    fn give_up_waiting_server_sessions(&self) {
        let Some(sessions) = &self.server_sessions else {
            return;
        };
        for (place, session) in sessions.all() {
            let at = sessions.at(&place.into());
            if at.is_waiting() {
                at.ended(&session.id);
            }
        }
    }

    /// Whether another replica can take it over, once it is on record.
    pub(crate) fn may_move(&self) -> bool {
        self.server_sessions.is_some()
    }

    /// Whether servers keep sessions for it that another replica could go on with.
    pub(crate) fn is_at_servers(&self) -> bool {
        self.server_sessions
            .as_ref()
            .is_some_and(|sessions| !sessions.is_empty())
    }

    /// Whether another replica may have taken it over, or its record may be missing.
    pub(crate) fn is_doubtful(&self) -> bool {
        lock(&self.on_record)
            .as_ref()
            .is_some_and(|on_record| on_record.doubtful().is_some())
    }

    /// How often its sessions at servers have changed.
    fn server_session_changes(&self) -> u64 {
        self.server_sessions
            .as_ref()
            .map_or(0, |sessions| sessions.changes())
    }

    /// Whether this run still keeps it, as far as is known: another may have taken it over while this one was away. Writes its
    /// record, if that may be missing.
    pub(crate) async fn is_kept(&self) -> bool {
        let (doubtful, is_outdated) = {
            let on_record = lock(&self.on_record);
            let is_outdated =
                |on_record: &OnRecord| on_record.is_outdated(self.server_session_changes());
            (
                on_record.as_ref().and_then(OnRecord::doubtful),
                on_record.as_ref().is_some_and(is_outdated),
            )
        };
        let Some((archive, name, mark)) = doubtful else {
            if is_outdated {
                self.write_record().await;
            }
            return !self.is_lost.load(Ordering::SeqCst);
        };
        match archive.records.is_kept(&name).await {
            Some(true) => {
                lock(&self.on_record)
                    .iter_mut()
                    .for_each(|on_record| on_record.confirm(mark));
                self.write_record().await;
                true
            }
            // Its record is another run's.
            Some(false) => {
                self.is_lost.store(true, Ordering::SeqCst);
                drop(self.no_longer_on_record());
                false
            }
            None => {
                if is_outdated {
                    self.write_record().await;
                }
                true
            }
        }
    }

    /// Takes it from the record: its sessions at servers are others'.
    fn no_longer_on_record(&self) -> Option<OnRecord> {
        let on_record = lock(&self.on_record).take()?;
        self.server_sessions
            .iter()
            .for_each(|sessions| sessions.leave());
        Some(on_record)
    }

    /// Has its record last as long as it does.
    pub(crate) fn prolong_record(&self) {
        lock(&self.on_record).iter_mut().for_each(OnRecord::prolong);
    }

    /// What is to be released of it, once: from then on other replicas may claim it.
    pub(crate) fn leave_record(&self) -> Option<Released> {
        let on_record = self.no_longer_on_record()?;
        let is_due =
            on_record.doubtful().is_some() || on_record.is_outdated(self.server_session_changes());
        let record = if is_due {
            on_record.written(self).map(|(_, _, record)| record)
        } else {
            None
        };
        Some(Released {
            name: on_record.name().into(),
            record,
        })
    }

    /// What a record of it has.
    fn archived(&self) -> ArchivedSession {
        ArchivedSession {
            initialize: self.record.initialize.clone(),
            opened_as: Some(self.opened_as),
            log_level: self.log_level(),
            subscriptions: self.subscriptions(),
            server_sessions: self
                .server_sessions
                .as_ref()
                .map(|sessions| sessions.all())
                .unwrap_or_default(),
        }
    }

    /// Notes that its client subscribes to a resource, if there is room for that; whether that was not noted before.
    pub(crate) fn note_subscription(&self, uri: &str) -> bool {
        if lock(&self.on_record).is_none() {
            return false;
        }
        let mut subscriptions = lock(&self.subscriptions);
        let bytes = subscriptions.iter().map(String::len).sum::<usize>() + uri.len();
        bytes <= MOST_SUBSCRIBED && subscriptions.insert(uri.to_owned())
    }

    /// Notes that its client is not subscribed to a resource.
    pub(crate) fn forget_subscription(&self, uri: &str) {
        lock(&self.subscriptions).remove(uri);
    }

    /// Whether it is noted that its client is subscribed to a resource.
    pub(crate) fn has_subscription(&self, uri: &str) -> bool {
        lock(&self.subscriptions).contains(uri)
    }

    /// The resources that its client has subscribed to, where it is on record.
    pub(crate) fn subscriptions(&self) -> Vec<String> {
        lock(&self.subscriptions).iter().cloned().collect()
    }

    /// Whether it was taken over, so that its client may have missed something.
    pub(crate) fn was_moved(&self) -> bool {
        self.was_moved
    }

    /// Counts the session in the metrics until it ends.
    pub(crate) fn count(&self, telemetry: &Telemetry, network: Network) {
        *lock(&self.counted) = Some(SessionCount::new(telemetry, self.revision(), network));
    }

    /// The principal that opened the session, at its endpoint.
    pub(crate) fn holder(&self) -> &Holder {
        &self.record.holder
    }

    /// Whether `holder` opened the session.
    pub(crate) fn belongs_to(&self, holder: &Holder) -> bool {
        self.record.holder == *holder
    }

    /// The peer in whose share of a limit it counts.
    pub(crate) fn peer(&self) -> &Peer {
        &self.record.peer
    }

    /// The endpoint that it belongs to.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.record.holder.endpoint()
    }

    /// What the client may do is decided by these: where it has its session, and the identity that has opened it.
    pub(crate) fn client(&self) -> Client<'_> {
        Client {
            endpoint: self.endpoint(),
            identity: &self.record.identity,
        }
    }

    /// The revision agreed on.
    pub(crate) fn revision(&self) -> Revision {
        self.record.initialize.revision
    }

    /// The client's `Implementation` object, if it gave one.
    pub(crate) fn client_info(&self) -> Option<&Json> {
        self.record.initialize.client_info.as_ref()
    }

    /// The name of its client and what has shown it, for an operator; `None` if the client is not authenticated.
    pub(crate) fn shown_identity(&self) -> Option<(Arc<str>, &'static str)> {
        let Identity { name, source, .. } = &*self.record.identity;
        (*source != Source::Anonymous).then(|| (Arc::clone(name), source.as_str()))
    }

    /// The level set with `logging/setLevel`, if any.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        *lock(&self.log_level)
    }

    /// Sets the level.
    pub(crate) fn set_log_level(&self, level: Option<LogLevel>) {
        *lock(&self.log_level) = level;
    }

    /// Enters a request of a server; returns its number and the message to send. `None` if the client
    /// cannot be asked, and then the server gets an error.
    pub(crate) fn open_server_request(&self, request: ServerRequest) -> Option<(u64, Json)> {
        let capabilities = &self.record.initialize.capabilities;
        match MissingCapability::for_server_request(
            capabilities,
            &request.method,
            request.params.as_ref(),
        ) {
            Some(missing) => {
                // An error means that the server no longer waits.
                let _ = request
                    .answer
                    .send(Response::from_error(&missing.to_error()));
                None
            }
            None => self.server_requests.open(request),
        }
    }

    /// Cancels what runs. Requests may still finish after this.
    pub(crate) fn end(&self) {
        drop(lock(&self.counted).take());
        if let Some(on_record) = lock(&self.on_record).take() {
            let is_ours = on_record.forget();
            self.server_sessions
                .iter()
                .for_each(|sessions| sessions.end(is_ours.clone()));
        }
        lock(&self.subscriptions).clear();
        self.running.cancel_all();
    }

    /// The context of one request of the session.
    pub(crate) fn context(&self, wants_progress: bool) -> CallContext {
        let SessionRecord {
            holder,
            identity,
            peer,
            initialize,
        } = &self.record;
        CallContext {
            caller: Caller::continued_session_of(holder.clone(), self.key, self.opened_as)
                .with_identity(Arc::clone(identity))
                .with_server_sessions(self.server_sessions.clone()),
            peer: peer.clone(),
            address: None,
            era: ClientEra::Legacy,
            client_info: initialize.client_info.clone(),
            capabilities: initialize.capabilities.clone(),
            log_level: self.log_level(),
            wants_progress,
            request: None,
            tasks: initialize.tasks(),
            trace: Parent::default(),
            sent_to: None,
            once: OnceLock::new(),
        }
    }

    /// Since when the session has had no request; `None` if it has one now.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let usage = lock(&self.usage);
        (usage.guards == 0).then_some(usage.last)
    }

    /// When it was without a request last.
    pub(crate) fn last_unused(&self) -> Instant {
        lock(&self.usage).last
    }
}

impl SessionKeeper for Session {
    fn write(&self) -> Keeping<'_, ()> {
        Box::pin(async move {
            self.write_record().await;
        })
    }

    fn keeps(&self) -> Keeping<'_, bool> {
        let asked = lock(&self.on_record).as_ref().map(OnRecord::named);
        Box::pin(async move {
            match asked {
                Some((archive, name)) => archive.records.is_kept(&name).await == Some(true),
                None => false,
            }
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        (self.report_end)(self.key);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// A session that serves a request, which keeps it from expiring.
#[derive(Debug)]
pub(crate) struct SessionGuard(Arc<Session>);

impl SessionGuard {
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        lock(&session.usage).guards += 1;
        Self(Arc::clone(session))
    }
}

impl Clone for SessionGuard {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl std::ops::Deref for SessionGuard {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let mut usage = lock(&self.0.usage);
        usage.guards = usage.guards.saturating_sub(1);
        if usage.guards == 0 {
            usage.last = Instant::now();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::testing::{ListenCore, Records, archive, at, on_record, server_session};
    use super::*;

    /// A session on record, and its session at a server.
    async fn at_a_server(records: &Arc<Records>) -> (Arc<Session>, fanlight_canonical::SessionAt) {
        let session = on_record(records);
        let at = at(&session, "server");
        at.opened(server_session()).await;
        (session, at)
    }

    /// Polls a future that waits.
    async fn wait(future: &mut (impl Future<Output = ()> + Unpin)) {
        tokio::select! {
            biased;
            () = future => panic!("it does not wait"),
            () = ready(()) => {}
        }
    }

    #[tokio::test]
    async fn record_is_written_for_all_sessions_at_servers_that_wait_for_it() {
        let records = Arc::new(Records::default());
        let session = on_record(&records);
        let closed = records.gate.write().await;
        let servers: Vec<_> = (0..10)
            .map(|number| at(&session, &number.to_string()))
            .collect();
        let mut opened: Vec<_> = servers
            .iter()
            .map(|at| Box::pin(at.opened(server_session())))
            .collect();
        for opened in &mut opened {
            wait(opened).await;
        }
        drop(closed);
        for opened in opened {
            opened.await;
        }
        assert_eq!(*lock(&records.written), 2);
        assert!(session.is_kept().await);
        assert_eq!(*lock(&records.written), 2, "all of them are on record");
    }

    #[tokio::test]
    async fn record_is_written_by_the_next_if_the_one_that_writes_it_is_dropped() {
        let records = Arc::new(Records::default());
        let session = on_record(&records);
        let closed = records.gate.write().await;
        let (one, another) = (at(&session, "one"), at(&session, "another"));
        let mut writes = Box::pin(one.opened(server_session()));
        let mut waits = Box::pin(another.opened(server_session()));
        wait(&mut writes).await;
        wait(&mut waits).await;
        drop(writes);
        drop(closed);
        waits.await;
        assert_eq!(*lock(&records.written), 1);
    }

    /// Of those whose record is as another replica has written it, the next would number its requests like this one.
    #[tokio::test]
    async fn sessions_at_servers_that_cannot_be_put_on_record_are_not_continued() {
        for is_away in [false, true] {
            let records = Arc::new(Records::default());
            let archived = ArchivedSession {
                server_sessions: vec![("server".into(), server_session())],
                ..ListenCore::refusing().session().archived()
            };
            let session = Arc::new(ListenCore::refusing().session().continuing(archived));
            session.put_on_record(archive(&records).of("id"));
            *lock(&records.is_away) = is_away;
            assert!(at(&session, "server").is_waiting());
            assert!(session.is_kept().await);
            assert_eq!(at(&session, "server").is_waiting(), !is_away);
            // What is opened here is this session's, whether or not it can be on record.
            let own = at(&session, "another");
            own.opened(server_session()).await;
            assert!(session.is_at_servers());
            assert_eq!(session.leave_record().unwrap().record.is_some(), is_away);
        }
    }

    #[tokio::test]
    async fn record_is_written_when_a_session_at_a_server_is_opened_and_after_it_has_ended() {
        let records = Arc::new(Records::default());
        let (session, at) = at_a_server(&records).await;
        assert!(session.is_kept().await);
        assert_eq!(*lock(&records.written), 1);
        at.ended("s");
        assert!(session.is_kept().await && session.is_kept().await);
        assert_eq!(*lock(&records.written), 2);
        at.ended("s");
        assert!(
            session.leave_record().unwrap().record.is_none(),
            "it is written"
        );
        assert!(!at.may_end().await, "another may go on with it");
    }

    #[tokio::test]
    async fn sessions_at_servers_end_with_a_session_unless_another_replica_has_it() {
        for is_taken in [false, true] {
            let records = Arc::new(Records::default());
            let (session, at) = at_a_server(&records).await;
            assert!(at.may_end().await);
            *lock(&records.is_taken) = is_taken;
            assert_eq!(at.may_end().await, !is_taken);
            session.end();
            assert_eq!(at.may_end().await, !is_taken);
            let (session, at) = at_a_server(&records).await;
            *lock(&records.is_taken) = !is_taken;
            assert_eq!(
                (session.is_kept().await, session.is_kept().await),
                (is_taken, is_taken)
            );
            session.end();
            assert_eq!(at.may_end().await, is_taken);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn session_context_describes_the_client_and_differs_between_sessions() {
        let core = ListenCore::refusing();
        let (session, other) = (core.session(), core.session());
        session.set_log_level(Some(LogLevel::Error));
        let context = session.context(true);
        assert_eq!(context.log_level, Some(LogLevel::Error));
        assert_eq!(context.capabilities.as_text(), r#"{"sampling":{}}"#);
        assert_ne!(context.session(), other.context(true).session());
        assert_eq!(
            context.client_info.as_ref().unwrap().as_text(),
            r#"{"name":"c"}"#
        );
        assert_ne!(context.caller, other.context(true).caller);
    }
}
