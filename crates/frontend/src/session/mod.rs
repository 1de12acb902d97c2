//! A legacy client's session: its principal, the result of `initialize`, and its running requests.

pub(crate) mod archive;
mod running_requests;
mod server_requests;
#[cfg(test)]
#[path = "../../tests/session/testing.rs"]
pub(crate) mod testing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use fanlight_canonical::{
    CallContext, Caller, Endpoint, Holder, Identity, KEPT_PARAMS, Keeping, Peer, ServerRequest,
    ServerSessions, SessionKeeper, SessionKey, Source,
};
use fanlight_fair::Spent;
use fanlight_gateway::Gateway;
use fanlight_protocol::{Json, LogLevel, MissingCapability, Response, Revision};
use fanlight_telemetry::{Network, Parent, Telemetry};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::eras::legacy::InitializeParams;
use crate::gates::Client;
use crate::session_records::Released;
use crate::settings::Reservation;
use crate::trace::SessionCount;
use archive::{ArchivedSession, OnRecord};
pub(crate) use running_requests::{Cancellation, RunningRequests};
pub(crate) use server_requests::ServerRequests;

/// The maximum number of bytes for subscribed URIs in a session's record. A constant: each change
/// writes them all. Further subscriptions end with the replica.
const MOST_SUBSCRIBED: usize = 64 << 10;

/// The bytes of a subscription in all tables, besides URI and parameters.
const SUBSCRIPTION: usize = 512;

/// A legacy client after `initialize`: an HTTP session, a stream of the HTTP+SSE transport, or a
/// stdio connection.
pub(crate) struct Session {
    record: SessionRecord,
    /// Counts the size of `initialize`.
    memory: Reservation,
    key: SessionKey,
    /// A random number, which differs between all sessions of the client at all replicas.
    opened_as: u64,
    log_level: Mutex<Option<LogLevel>>,
    pub(crate) running: Arc<RunningRequests>,
    pub(crate) server_requests: ServerRequests,
    usage: Mutex<Usage>,
    /// The session's record for a take-over; `None` if no other replica can take the session over.
    on_record: Mutex<Option<OnRecord>>,
    /// Whether another replica has taken the session over.
    is_lost: AtomicBool,
    /// The server sessions that another replica continues after a take-over; `None` if none can
    /// take the session over.
    server_sessions: Option<Arc<ServerSessions>>,
    /// Whether the session was taken over, so the client may have missed messages.
    pub(crate) was_moved: bool,
    counted: Mutex<Option<SessionCount>>,
    /// Told of the session's end when the session is dropped, so that none of its calls can follow.
    pub(crate) core: Arc<Gateway>,
}

/// The owner of a session; plain data that is valid in any process.
#[derive(Debug)]
pub(crate) struct SessionRecord {
    /// The only principal and endpoint that may use the session.
    pub(crate) holder: Holder,
    /// The identity that opened the session, for operators. Later requests may prove newer
    /// credentials.
    pub(crate) identity: Arc<Identity>,
    /// The peer whose share of a limit the session uses.
    pub(crate) peer: Peer,
    pub(crate) initialize: InitializeParams,
}

#[derive(Debug)]
struct Usage {
    /// The number of [`SessionGuard`]s.
    guards: usize,
    /// The time when the last guard was dropped or the session was opened.
    last: Instant,
}

impl Session {
    /// Creates the session of a client that sent `initialize`. It may have `max_server_requests`
    /// open server requests.
    pub(crate) fn new(
        record: SessionRecord,
        memory: Reservation,
        running: Arc<RunningRequests>,
        max_server_requests: usize,
        core: &Arc<Gateway>,
    ) -> Self {
        Self {
            record,
            memory,
            key: SessionKey::generate(),
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
            was_moved: false,
            counted: Mutex::default(),
            core: Arc::clone(core),
        }
    }

    /// Adds server sessions, which are recorded with the session.
    pub(crate) fn with_server_sessions(mut self, server_sessions: ServerSessions) -> Self {
        self.server_sessions = Some(Arc::new(server_sessions));
        self
    }

    /// Restores the state from another replica's record.
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
        for uri in subscriptions {
            let context = self.context(false);
            if self.note_subscription(&context, &uri, None).is_err() {
                tracing::warn!(
                    "subscription of a session that was taken over is lost: no memory is left"
                );
            }
        }
        self.was_moved = true;
        self
    }

    /// The key of this session in this process. A session that returns to this process gets a new
    /// one.
    pub(crate) fn key(&self) -> SessionKey {
        self.key
    }

    /// Keeps a record of the session until its end.
    pub(crate) fn put_on_record(self: &Arc<Self>, on_record: OnRecord) {
        *self.on_record.lock() = Some(on_record);
        if let Some(server_sessions) = &self.server_sessions {
            let keeper: Weak<Self> = Arc::downgrade(self);
            server_sessions.put_on_record(keeper);
        }
    }

    /// Writes the session's record, if it has one. Returns whether the record has the current
    /// state; a failed write is repeated with the next request. One write runs at a time for all
    /// callers that wait for it, so an older state never replaces a newer one.
    pub(crate) async fn write_record(&self) -> bool {
        let Some(writes) = self.on_record.lock().as_ref().map(OnRecord::writes) else {
            return false;
        };
        writes.write(self.write_record_now()).await
    }

    async fn write_record_now(&self) -> bool {
        let changes = self.server_session_changes();
        let written = self
            .on_record
            .lock()
            .as_ref()
            .and_then(|on_record| on_record.session_record(self));
        let Some((archive, name, record)) = written else {
            return false;
        };
        let is_written = archive.records.write(&name, &record).await;
        let is_move_unknown = match &mut *self.on_record.lock() {
            Some(on_record) if is_written => {
                on_record.changes = Some(changes);
                false
            }
            Some(on_record) => {
                on_record.mark = None;
                !on_record.was_written()
            }
            None => false,
        };
        if is_move_unknown {
            self.give_up_waiting_server_sessions();
        }
        is_written
    }

    /// Makes servers open new sessions instead of those that another replica opened. Otherwise the
    /// next replica to take over would repeat this one's request numbers.
    fn give_up_waiting_server_sessions(&self) {
        let Some(sessions) = &self.server_sessions else {
            return;
        };
        for (place, session) in sessions.entries() {
            let at = sessions.session_at(&place.into());
            if at.is_waiting() {
                at.remove(&session.id);
            }
        }
    }

    /// Whether another replica can take over the session once it is recorded.
    pub(crate) fn may_move(&self) -> bool {
        self.server_sessions.is_some()
    }

    /// Whether servers keep sessions for it that another replica could continue.
    pub(crate) fn is_at_servers(&self) -> bool {
        self.server_sessions
            .as_ref()
            .is_some_and(|sessions| !sessions.is_empty())
    }

    /// Whether another replica may have taken over the session, or its record may be missing.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.on_record
            .lock()
            .as_ref()
            .is_some_and(|on_record| on_record.doubtful_record().is_some())
    }

    /// The change counter of its server sessions.
    fn server_session_changes(&self) -> u64 {
        self.server_sessions
            .as_ref()
            .map_or(0, |sessions| sessions.changes())
    }

    /// Whether this run still keeps the session, as far as known. Another replica may have taken it
    /// over while this one was disconnected. Writes the record if it may be missing.
    pub(crate) async fn is_kept(&self) -> bool {
        let (doubtful, is_outdated) = {
            let on_record = self.on_record.lock();
            let is_outdated =
                |on_record: &OnRecord| on_record.is_outdated(self.server_session_changes());
            (
                on_record.as_ref().and_then(OnRecord::doubtful_record),
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
                self.on_record
                    .lock()
                    .iter_mut()
                    .for_each(|on_record| on_record.mark = mark);
                self.write_record().await;
                true
            }
            // The record belongs to another run.
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

    /// Drops the record: other replicas may now use the server sessions.
    fn no_longer_on_record(&self) -> Option<OnRecord> {
        let on_record = self.on_record.lock().take()?;
        self.server_sessions
            .iter()
            .for_each(|sessions| sessions.leave());
        Some(on_record)
    }

    /// Extends the record's lifetime.
    pub(crate) fn prolong_record(&self) {
        self.on_record.lock().iter_mut().for_each(OnRecord::prolong);
    }

    /// Releases the record once; from then on other replicas may claim the session.
    pub(crate) fn leave_record(&self) -> Option<Released> {
        let on_record = self.no_longer_on_record()?;
        let is_due = on_record.doubtful_record().is_some()
            || on_record.is_outdated(self.server_session_changes());
        let record = if is_due {
            on_record.session_record(self).map(|(_, _, record)| record)
        } else {
            None
        };
        Some(Released {
            name: on_record.name().into(),
            record,
        })
    }

    /// The content of the session's record.
    fn archived(&self) -> ArchivedSession {
        ArchivedSession {
            initialize: self.record.initialize.clone(),
            opened_as: Some(self.opened_as),
            log_level: self.log_level(),
            subscriptions: self.subscriptions(),
            server_sessions: self
                .server_sessions
                .as_ref()
                .map(|sessions| sessions.entries())
                .unwrap_or_default(),
        }
    }

    /// Notes a resource that the client subscribes to, in a request with this context and these
    /// parameters; returns whether it is new.
    pub(crate) fn note_subscription(
        &self,
        context: &CallContext,
        uri: &str,
        params: Option<&Json>,
    ) -> Result<bool, Spent> {
        let size = params.map_or(0, |params| params.bytes().len());
        let bytes = SUBSCRIPTION + 4 * uri.len() + 2 * size.min(KEPT_PARAMS);
        let memory = self.memory.reserve_more(bytes)?;
        Ok(self.core.subscribed.add(context, uri, params, memory))
    }

    /// Notes that the client is not subscribed to a resource.
    pub(crate) fn forget_subscription(&self, uri: &str) {
        self.core.subscribed.remove(self.key, uri);
    }

    /// The resources that the client has subscribed to, as far as a record has room for them.
    pub(crate) fn subscriptions(&self) -> Vec<String> {
        let mut room = MOST_SUBSCRIBED;
        let uris = self.core.subscribed.resources(self.key).into_iter();
        let fitting = uris.take_while(|uri| {
            let rest = room.checked_sub(uri.len());
            room = rest.unwrap_or_default();
            rest.is_some()
        });
        fitting.collect()
    }

    /// Counts the session in the metrics until it ends.
    pub(crate) fn count(&self, telemetry: &Telemetry, network: Network) {
        *self.counted.lock() = Some(SessionCount::new(telemetry, self.revision(), network));
    }

    /// The principal that opened the session, at its endpoint.
    pub(crate) fn holder(&self) -> &Holder {
        &self.record.holder
    }

    /// Whether `holder` opened the session.
    pub(crate) fn belongs_to(&self, holder: &Holder) -> bool {
        self.record.holder == *holder
    }

    /// The peer whose share of a limit the session uses.
    pub(crate) fn peer(&self) -> &Peer {
        &self.record.peer
    }

    /// The session's endpoint.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.record.holder.endpoint()
    }

    /// The endpoint and identity by which the policy decides about the client.
    pub(crate) fn client(&self) -> Client<'_> {
        Client {
            endpoint: self.endpoint(),
            identity: &self.record.identity,
        }
    }

    /// The agreed revision.
    pub(crate) fn revision(&self) -> Revision {
        self.record.initialize.revision
    }

    /// The client's `Implementation` object, if it sent one.
    pub(crate) fn client_info(&self) -> Option<&Json> {
        self.record.initialize.client_info.as_ref()
    }

    /// The client's name for operators, and the kind of credentials that proved it; `None` for an
    /// unauthenticated client.
    pub(crate) fn shown_identity(&self) -> Option<(Arc<str>, &'static str)> {
        let Identity { name, source, .. } = &*self.record.identity;
        (*source != Source::Anonymous).then(|| (Arc::clone(name), source.as_str()))
    }

    /// The level set with `logging/setLevel`, if any.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        *self.log_level.lock()
    }

    pub(crate) fn set_log_level(&self, level: Option<LogLevel>) {
        *self.log_level.lock() = level;
    }

    /// Adds a server's request; returns its number and the message to send. `None` if the client
    /// cannot be asked; the server then gets an error.
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

    /// Cancels all running requests. Some may still finish after this.
    pub(crate) fn end(&self) {
        drop(self.counted.lock().take());
        if let Some(on_record) = self.on_record.lock().take() {
            let is_ours = on_record.forget();
            self.server_sessions
                .iter()
                .for_each(|sessions| sessions.end(is_ours.clone()));
        }
        self.core.subscribed.end(self.key);
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
            era: initialize.revision.era,
            client_info: initialize.client_info.clone(),
            capabilities: initialize.capabilities.clone(),
            log_level: self.log_level(),
            wants_progress,
            request: None,
            tasks: initialize.revision.tasks,
            trace: Parent::default(),
            noted: None,
            once: OnceLock::new(),
            has_accepted_link: OnceLock::new(),
            gate: OnceLock::new(),
        }
    }

    /// The time since which the session has no request; `None` if it has one now.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let usage = self.usage.lock();
        (usage.guards == 0).then_some(usage.last)
    }

    /// The time at which the session last had no request.
    pub(crate) fn last_unused(&self) -> Instant {
        self.usage.lock().last
    }
}

impl SessionKeeper for Session {
    fn write(&self) -> Keeping<'_, ()> {
        Box::pin(async move {
            self.write_record().await;
        })
    }

    fn keeps(&self) -> Keeping<'_, bool> {
        let asked = self.on_record.lock().as_ref().map(OnRecord::record_key);
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
        self.core.end_session(self.key);
    }
}

/// A session that serves a request. The guard keeps it from expiring.
pub(crate) struct SessionGuard(Arc<Session>);

impl SessionGuard {
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        session.usage.lock().guards += 1;
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
        let mut usage = self.0.usage.lock();
        usage.guards = usage.guards.saturating_sub(1);
        if usage.guards == 0 {
            usage.last = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::testing::{ListenCore, Records, archive, at, on_record, server_session};
    use super::*;

    /// A recorded session and its session at a server.
    async fn at_a_server(records: &Arc<Records>) -> (Arc<Session>, fanlight_canonical::SessionAt) {
        let session = on_record(records);
        let at = at(&session, "server");
        at.record_opened(server_session()).await;
        (session, at)
    }

    /// Polls a future that has to wait.
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
            .map(|at| Box::pin(at.record_opened(server_session())))
            .collect();
        for opened in &mut opened {
            wait(opened).await;
        }
        drop(closed);
        for opened in opened {
            opened.await;
        }
        assert_eq!(*records.written.lock(), 2);
        assert!(session.is_kept().await);
        assert_eq!(*records.written.lock(), 2, "all of them are on record");
    }

    #[tokio::test]
    async fn record_is_written_by_the_next_if_the_one_that_writes_it_is_dropped() {
        let records = Arc::new(Records::default());
        let session = on_record(&records);
        let closed = records.gate.write().await;
        let (one, another) = (at(&session, "one"), at(&session, "another"));
        let mut writes = Box::pin(one.record_opened(server_session()));
        let mut waits = Box::pin(another.record_opened(server_session()));
        wait(&mut writes).await;
        wait(&mut waits).await;
        drop(writes);
        drop(closed);
        waits.await;
        assert_eq!(*records.written.lock(), 1);
    }

    /// The next replica would repeat this one's request numbers in server sessions whose record
    /// another replica wrote.
    #[tokio::test]
    async fn sessions_at_servers_that_cannot_be_put_on_record_are_not_continued() {
        for is_away in [false, true] {
            let records = Arc::new(Records::default());
            let archived = ArchivedSession {
                server_sessions: vec![("server".into(), server_session())],
                ..ListenCore::refusing().session().archived()
            };
            let session = Arc::new(ListenCore::refusing().session().continuing(archived));
            session.put_on_record(archive(&records).record("id"));
            *records.is_away.lock() = is_away;
            assert!(at(&session, "server").is_waiting());
            assert!(session.is_kept().await);
            assert_eq!(at(&session, "server").is_waiting(), !is_away);
            // A server session that is opened here belongs to this session, whether or not it can
            // be recorded.
            let own = at(&session, "another");
            own.record_opened(server_session()).await;
            assert!(session.is_at_servers());
            assert_eq!(session.leave_record().unwrap().record.is_some(), is_away);
        }
    }

    #[tokio::test]
    async fn record_is_written_when_a_session_at_a_server_is_opened_and_after_it_has_ended() {
        let records = Arc::new(Records::default());
        let (session, at) = at_a_server(&records).await;
        assert!(session.is_kept().await);
        assert_eq!(*records.written.lock(), 1);
        at.remove("s");
        assert!(session.is_kept().await && session.is_kept().await);
        assert_eq!(*records.written.lock(), 2);
        at.remove("s");
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
            *records.is_taken.lock() = is_taken;
            assert_eq!(at.may_end().await, !is_taken);
            session.end();
            assert_eq!(at.may_end().await, !is_taken);
            let (session, at) = at_a_server(&records).await;
            *records.is_taken.lock() = !is_taken;
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
