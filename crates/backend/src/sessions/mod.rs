//! The connections to one server: the base connection, which Fanlight itself uses, and connections
//! of clients that must not share state with others.
//!
//! The base connection determines the era. A modern server has no sessions, so modern clients need
//! no other connection. A legacy client is served in its own era if the server has it, too
//! (`finding`).
//!
//! In that case, and at a legacy server, each client session has its own connection. It is opened
//! when first needed, and declares the client's capabilities. So does each client without a session
//! that can be asked, if its requests show which client it is; otherwise each request has a
//! connection (`clients`). All others share one per principal and capabilities. Unused connections
//! are closed after a while, or at the limit.
//!
//! A session that an HTTP server opened for a client's session can be recorded with it
//! (`ServerSessions`). If another process continues the client's session, it opens its connection
//! from that record, without `initialize`.

mod clients;
pub(crate) mod dispatcher;
mod finding;
mod listeners;
mod sharing;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::{Json, Method, Notification, Response, ServerDescription};
use fanlight_telemetry::{Parent, Subject};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::connection::attempt::Attempt;
use crate::connection::supervised::{InUse, Phase, State, SupervisedConnection};
use crate::connection::supervisor::{ConnectSettings, ForClient, Supervisor, Target};
use crate::connection::{Connection, Loss};
use crate::handshake::Known;
use crate::health::Health;
use crate::listening::{self, ListeningWorker};
use crate::request::TransportContext;
use crate::request::declared::Declared;
use crate::settings::{
    BackendLimits, BackendTimeouts, CLIENT_DESCRIPTION, EraChoice, KnownServer, Serves,
    SessionPolicy, start_total,
};
use crate::subscriptions::{Origin, SubscriptionRegistry, UnsolicitedSender};
use clients::{ClientConnections, IdleBounds, Owner, Room, SpareKey};
pub(crate) use dispatcher::is_no_answer;
use fanlight_canonical::{
    BackendError, Call, CallContext, Caller, Names, Peer, Principal, SameClient, SessionAt,
    SessionKey,
};
use finding::{Finding, LegacyEra, Refusal};
use sharing::Verdict;
use turns::{Place, Turns, WakeOnDrop};

/// The divisor of the idle time while a server has more than half of the processes that it may
/// have.
pub(crate) const CROWDED: u32 = 10;

pub(crate) struct SessionPool {
    pub(crate) settings: Arc<ConnectSettings>,
    policy: SessionPolicy,
    /// Whether the base connection declares the capabilities for reading lists
    /// ([`Declared::for_lists`]).
    catalogue: bool,
    /// The server's listeners.
    pub(crate) registry: Arc<SubscriptionRegistry>,
    /// Limits the subscriptions of single listeners.
    dedicated: Arc<Semaphore>,
    /// The connection that Fanlight itself uses.
    pub(crate) base: Arc<SupervisedConnection>,
    /// Whether a modern server serves the legacy era, too.
    legacy_era: Finding<LegacyEra>,
    /// Whether client sessions may share a process.
    sharing: Finding<Verdict>,
    connections: Mutex<ClientConnections>,
    turns: Turns,
}

/// A connection for one request.
pub(crate) struct Lease {
    pub(crate) connection: Arc<Connection>,
    /// The base connection, if this one is another.
    base: Option<Arc<SupervisedConnection>>,
    /// Keeps a client's connection from being closed as idle; the base connection never is.
    in_use: Option<InUse>,
    /// Ends the use of a connection that belongs to the request alone. Dropped after `in_use`.
    release: Option<Release>,
}

/// Releases a request's connection when dropped.
struct Release {
    pool: Arc<SessionPool>,
    owner: Owner,
    key: SpareKey,
    since: Instant,
}

impl Drop for Release {
    fn drop(&mut self) {
        let limit = self.pool.settings.context.limits.sessions;
        let key = self.key.clone();
        let is_spare = self
            .pool
            .connections
            .lock()
            .release(&self.owner, key, limit);
        self.pool
            .turns
            .record_use(is_spare.then(|| self.since.elapsed()));
    }
}

impl SessionPool {
    /// Begins to make the base connection in the background. `catalogue`: the connection reads
    /// lists for clients of all kinds. `known`: facts from an earlier run.
    pub(crate) fn start(
        settings: ConnectSettings,
        policy: SessionPolicy,
        catalogue: bool,
        registry: Arc<SubscriptionRegistry>,
        known: Option<KnownServer>,
    ) -> Arc<Self> {
        let settings = Arc::new(settings);
        // A shared session declares only capabilities that all its clients have.
        let catalogue = catalogue && policy != SessionPolicy::Shared;
        let declared = if catalogue {
            Declared::for_lists()
        } else {
            Declared::empty()
        };
        let policy_of_process = settings.process();
        let keeps_lists = policy_of_process.is_some_and(|process| process.keeps_lists);
        let known = known.filter(|_| keeps_lists);
        let rests = policy_of_process.is_some_and(|process| {
            process.starts_on_demand || (process.rests_while_known && known.is_some())
        });
        let (revision, description) = known
            .map(|known| (known.revision, known.description))
            .unzip();
        let first = State {
            phase: first_phase(rests),
            revision,
            description,
            ..State::default()
        };
        let base = open(
            &settings,
            &registry,
            Origin::Base,
            declared,
            (None, first),
            &settings.context.root,
        );
        let dedicated = settings.context.limits.sessions;
        let dedicated = Arc::new(Semaphore::new(dedicated.min(Semaphore::MAX_PERMITS)));
        let (legacy_era, sharing, connections, turns) = Default::default();
        Arc::new(Self {
            settings,
            policy,
            catalogue,
            registry,
            dedicated,
            base,
            legacy_era,
            sharing,
            connections,
            turns,
        })
    }

    /// Whether all clients share one session at the server, whatever its era.
    pub(crate) fn is_shared(&self) -> bool {
        self.policy == SessionPolicy::Shared
    }

    /// The server's health.
    pub(crate) fn health(&self) -> &Health {
        &self.settings.context.health
    }

    /// Whether the base connection's process may end while nothing uses it, or starts only on
    /// demand.
    pub(crate) fn may_rest(&self) -> bool {
        self.settings.process().is_some_and(|policy| {
            policy.idle.is_some() || policy.starts_on_demand || policy.rests_while_known
        })
    }

    /// Counts a request for which there was no connection.
    fn count_unsent(&self, call: &Call, error: &BackendError) {
        let subject = Subject::new(&call.method, call.params.as_ref());
        self.settings.context.telemetry.not_sent(
            &call.method,
            subject.target(),
            error.error_type(),
        );
    }

    /// Facts about the server, for a later run.
    pub(crate) fn facts(&self) -> Option<KnownServer> {
        let state = self.base.state.borrow();
        Some(KnownServer {
            revision: state.revision?,
            description: state.description.clone()?,
        })
    }

    /// The time limit for a base connection without which nothing can be answered: as long as a
    /// process may take to start. Callers with less time stop waiting earlier.
    fn start_limit(&self) -> Duration {
        let BackendTimeouts { connect, start, .. } = self.settings.timeouts;
        self.settings
            .process()
            .map_or(connect, |_| start_total().max(start))
    }

    /// The reason why there is no connection for a client and will be none soon.
    pub(crate) fn down_reason(&self, client: &CallContext) -> Option<BackendError> {
        // An unresponsive server does not respond on other connections either. Background checks
        // notice when it responds again.
        if self.health().is_ejected()
            && let Some(Err(error)) = self.base.resting_description()
        {
            return Some(error);
        }
        match self.own_connection(client) {
            // The base connection may serve instead.
            Some(_)
                if self
                    .modern_base()
                    .is_some_and(|base| self.legacy_era.find(Some(&base)).is_none()) =>
            {
                None
            }
            Some(supervised) => supervised.down_reason(),
            None => self.base.down_reason(),
        }
    }

    /// The connection for a client's request, if it is ready.
    fn lease_at_once(self: &Arc<Self>, client: &CallContext) -> Option<Lease> {
        match self.own_connection(client) {
            Some(supervised) => {
                let connection = supervised.connection()?;
                Some(self.own_lease(client, connection, supervised))
            }
            None => {
                let connection = self.base.connection()?;
                let is_own = self.has_own_connection(client, &connection);
                (!is_own).then(|| Lease::from_base(connection))
            }
        }
    }

    /// The own connection of a client's session, if it is ready.
    pub(crate) fn session_lease(self: &Arc<Self>, client: &CallContext) -> Option<Lease> {
        let supervised = self
            .own_connection(client)
            .filter(|_| client.session().is_some() && !self.shares_process(client))?;
        let connection = supervised.connection()?;
        Some(self.own_lease(client, connection, supervised))
    }

    /// Keeps a notification until the client's session has its own connection. One that names a
    /// request is lost, as the request is.
    pub(crate) fn tell_later(&self, client: &CallContext, notification: &Notification) {
        if client.request.is_none()
            && let Some(Owner::Session(session)) = self.owner(client)
        {
            self.registry.add_early(&session, notification);
        }
    }

    /// Whether the client's session has its own connection that has not ended, or must continue a
    /// session at the server.
    pub(crate) fn has_session(&self, client: &CallContext) -> bool {
        client.session().is_some()
            && (self
                .own_connection(client)
                .is_some_and(|own| !own.has_stopped())
                || self.is_to_continue(client))
    }

    /// Whether the base connection's server keeps anything that clients wait for or that would be
    /// lost with it.
    pub(crate) fn is_needed(&self) -> bool {
        self.registry.needs_more_than_lists() || self.base.has_open_task()
    }

    /// The clients that a modern server's process serves.
    fn serves(&self) -> Serves {
        self.settings
            .process()
            .map_or(Serves::Everybody, |policy| policy.serves)
    }

    /// Whether a call must not run on a connection that other principals use as well.
    fn is_apart(&self, call: &Call, lease: &Lease) -> bool {
        self.serves() == Serves::Lists
            && lease.base.is_none()
            && !lease.connection.revision().has_sessions
            && !call.context.caller.is_gateway()
            && !is_for_all(&call.method)
    }

    /// Whether a client's requests run on a connection that not everybody shares. Waits until that
    /// is clear.
    pub(crate) async fn has_own_connection_for(
        self: &Arc<Self>,
        client: &CallContext,
    ) -> Result<bool, BackendError> {
        let is_known_modern = {
            let state = self.base.state.borrow();
            state
                .revision
                .is_some_and(|revision| !revision.has_sessions)
        };
        // The answer is known without its process.
        if is_known_modern && !self.may_have_second_era(client) {
            return Ok(false);
        }
        let base = self.base.ready(self.patience_of_calls()).await?;
        if self.is_second_era(client, &base) && self.legacy_era.find(Some(&base)).is_none() {
            drop(self.lease(client).await?);
        }
        Ok(base.revision().has_sessions
            || (self.is_second_era(client, &base) && self.is_proven_at(&base)))
    }

    /// Repeats the recorded subscriptions of a client's session here, and ends all others, unless
    /// the session has its own connection. Returns the new ones.
    pub(crate) async fn subscribe_again(
        self: &Arc<Self>,
        client: &CallContext,
    ) -> Result<Names, BackendError> {
        if self.registry.is_as_recorded(&client.caller)
            || self.has_own_connection_for(client).await?
        {
            return Ok(Names::new());
        }
        let answered = self.registry.subscribe_as_recorded(&client.caller);
        Ok(timeout(self.settings.timeouts.connect, answered)
            .await
            .unwrap_or_default())
    }

    /// Whether any client has a connection of its own.
    pub(crate) fn has_clients(&self) -> bool {
        !self.connections.lock().is_empty()
    }

    /// The connection for a client's request, made first if necessary.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        client: &CallContext,
    ) -> Result<Lease, BackendError> {
        self.lease_within(self.patience_of_calls(), client).await
    }

    /// How long a call waits for a process that starts. A little shorter than calls may take, so
    /// that the error says what the call waited for.
    fn patience_of_calls(&self) -> Duration {
        let BackendTimeouts { connect, call, .. } = self.settings.timeouts;
        let margin = (call / 8).min(Duration::from_secs(1));
        let of_process = |_| connect.max(call - margin);
        self.settings.process().map_or(connect, of_process)
    }

    /// The connection for a client's request, made within `patience` if necessary.
    async fn lease_within(
        self: &Arc<Self>,
        patience: Duration,
        client: &CallContext,
    ) -> Result<Lease, BackendError> {
        let supervised = match self.own_connection(client) {
            Some(supervised) => supervised,
            None => {
                let base = self.base.ready(patience).await?;
                if self.may_share_process(client, base.revision().has_sessions) {
                    // Determined once for each base connection.
                    let _ = self.verdict(&base).await;
                }
                let owner = if self.has_own_connection(client, &base) {
                    self.owner(client)
                } else {
                    None
                };
                match owner {
                    Some(owner) => match self.wait_for_turn(&owner, client).await {
                        Place::Free(free) => free,
                        Place::Start(_starting) => self.open_for(owner, client, &base)?,
                    },
                    None => return Ok(Lease::from_base(base)),
                }
            }
        };
        let waking = WakeOnDrop(&self.turns);
        let outcome = supervised.ready(patience).await;
        drop(waking);
        let outcome = outcome.map(|connection| self.own_lease(client, connection, supervised));
        let outcome = match self.modern_base() {
            Some(base) => self.learn_era(base, client, outcome),
            None => outcome,
        };
        match outcome {
            Err(BackendError::ShuttingDown) if !self.settings.shutdown.is_cancelled() => {
                Err(BackendError::Unreachable {
                    reason: "the client's session has ended".into(),
                })
            }
            outcome => outcome,
        }
    }

    /// The server's description for a client, in the era in which the client will be served; from
    /// memory while its process rests. If the server is down, does not wait, but retries in the
    /// background.
    pub(crate) async fn describe(
        self: &Arc<Self>,
        client: &CallContext,
    ) -> Result<ServerDescription, BackendError> {
        if let Some(described) = self
            .base
            .resting_description()
            .filter(|_| !self.may_have_second_era(client))
        {
            return described;
        }
        let base = self.base.ready(self.start_limit()).await?;
        if !self.is_second_era(client, &base) {
            return Ok(base.description());
        }
        match self.legacy_era.find(Some(&base)) {
            Some(LegacyEra::Served(description)) => Ok(description),
            Some(LegacyEra::NotServed) => Ok(base.description()),
            None => Ok(self.lease(client).await?.connection.description()),
        }
    }

    /// The connection that determines what a client can be sent, if it is ready: the client's own
    /// or the base one.
    pub(crate) fn current(&self, client: &CallContext) -> Option<Arc<Connection>> {
        let base = self.base.connection();
        // A server's two eras may have different capabilities.
        if client.session().is_some()
            && base
                .as_ref()
                .is_none_or(|base| self.is_second_era(client, base))
        {
            return self.own_connection(client)?.connection();
        }
        base
    }

    /// The answer to a call about subscriptions that the server need not get; `None` for other
    /// calls.
    pub(crate) async fn local_answer(&self, call: &Call, lease: &Lease) -> Option<Response> {
        if !matches!(call.method, Method::Subscribe | Method::Unsubscribe) {
            return None;
        }
        if lease.base.is_some() {
            return listening::refusal(&self.registry, call);
        }
        // Boxed, since it is large: this keeps the futures of other calls small.
        Box::pin(listening::local_answer(
            &self.registry,
            call,
            lease.connection.revision(),
        ))
        .await
    }

    /// Records the effect of an answered call on a client's own connection.
    pub(crate) fn remember(&self, call: &Call, lease: &Lease, answer: &Response) {
        if matches!(call.method, Method::Subscribe | Method::Unsubscribe) {
            listening::record(&self.registry, call, answer);
        }
        if lease.release.is_some()
            && call.method == Method::CallTool
            && answer
                .result()
                .is_some_and(|result| result.get("task").is_some())
            && let Some(connection) = &lease.in_use
        {
            connection.note_task();
        }
    }

    /// Closes the connections of a client's session.
    pub(crate) fn end_session(&self, session: SessionKey) {
        self.connections.lock().end_session(session);
        self.registry.end_session(session);
    }

    /// Closes the connections of a client's session that continues at another endpoint.
    pub(crate) fn leave_session(&self, session: SessionKey) {
        self.connections.lock().end_session(session);
        self.registry.leave_session(session);
    }

    /// The client's own connection, if there is one.
    fn own_connection(&self, client: &CallContext) -> Option<InUse> {
        // Cheaper than determining the owner.
        if client.session().is_none() && self.is_base_modern() {
            return None;
        }
        let owner = self.owner(client)?;
        self.connections.lock().find(&owner)
    }

    fn is_base_modern(&self) -> bool {
        matches!(&self.base.state.borrow().phase, Phase::Ready(connection) if !connection.revision().has_sessions)
    }

    /// The base connection, if it is ready and modern.
    fn modern_base(&self) -> Option<Arc<Connection>> {
        match &self.base.state.borrow().phase {
            Phase::Ready(connection) if !connection.revision().has_sessions => {
                Some(Arc::clone(connection))
            }
            _ => None,
        }
    }

    /// Whether a client has a connection other than `base`.
    fn has_own_connection(&self, client: &CallContext, base: &Arc<Connection>) -> bool {
        if base.revision().has_sessions {
            self.owner(client).is_some()
        } else {
            self.is_second_era(client, base)
        }
    }

    /// Whether a client must be served in the legacy era although the base connection is modern.
    /// Only legacy clients have sessions. Over stdio this takes a process per client. A client that
    /// cannot be asked does not need one, since it uses only features that both eras have.
    fn is_second_era(&self, client: &CallContext, base: &Arc<Connection>) -> bool {
        !base.revision().has_sessions
            && client.session().is_some()
            && self.settings.choice == EraChoice::Auto
            && !self.is_shared()
            && self.serves() != Serves::One
            && (matches!(self.settings.target, Target::Http(_)) || Declared::lets_ask(client))
            && !matches!(self.legacy_era.find(Some(base)), Some(LegacyEra::NotServed))
    }

    /// Whether a client might be served in another era than a modern base connection's.
    fn may_have_second_era(&self, client: &CallContext) -> bool {
        client.session().is_some()
            && self
                .base
                .state
                .borrow()
                .revision
                .is_none_or(|revision| !revision.has_sessions)
            && Declared::lets_ask(client)
    }

    /// Learns whether the server serves the legacy era, from an attempt to open a client's own
    /// connection. If it does not, the client's requests are translated for the base connection.
    fn learn_era(
        &self,
        base: Arc<Connection>,
        client: &CallContext,
        outcome: Result<Lease, BackendError>,
    ) -> Result<Lease, BackendError> {
        let error = match outcome {
            Ok(lease) => {
                // Another process opened the session, so this proves nothing about the server now.
                if !lease.connection.is_continued {
                    let description = lease.connection.description();
                    self.legacy_era
                        .record(&base, LegacyEra::Served(description));
                }
                return Ok(lease);
            }
            Err(error) => error,
        };
        match (self.legacy_era.find(Some(&base)), Refusal::classify(&error)) {
            // The server has served that era, so this is an ordinary failure.
            (Some(LegacyEra::Served(_)), _) | (None, Refusal::Unusable) => Err(error),
            (Some(LegacyEra::NotServed), _) => {
                // Another client's attempt has determined this meanwhile.
                self.end_own(client);
                Ok(Lease::from_base(base))
            }
            (None, Refusal::Unclear) => Ok(Lease::from_base(base)),
            (None, Refusal::Era) => {
                let backend = &*self.settings.context.name;
                tracing::info!(backend, %error, "server does not serve the legacy era: legacy clients are translated");
                self.legacy_era.record(&base, LegacyEra::NotServed);
                self.end_own(client);
                Ok(Lease::from_base(base))
            }
        }
    }

    /// Ends a client's own connection.
    fn end_own(&self, client: &CallContext) {
        if let Some(owner) = self.owner(client) {
            self.connections.lock().end(&owner);
        }
    }

    fn own_lease(
        self: &Arc<Self>,
        client: &CallContext,
        connection: Arc<Connection>,
        in_use: InUse,
    ) -> Lease {
        let release = self.has_one_for_each_request(client).then(|| Release {
            pool: Arc::clone(self),
            owner: Owner::Request(client.caller.clone()),
            key: self.spare_key(client),
            since: Instant::now(),
        });
        Lease {
            connection,
            base: Some(Arc::clone(&self.base)),
            in_use: Some(in_use),
            release,
        }
    }

    /// The owner of the client's connection; `None` if the client uses the base connection of a
    /// legacy server.
    fn owner(&self, client: &CallContext) -> Option<Owner> {
        let is_own = client.caller.is_gateway();
        if self.is_shared() || (self.catalogue && is_own) {
            return None;
        }
        let (caller, principal) = (&client.caller, client.caller.principal());
        if client.session().is_some() && !self.shares_process(client) {
            return Some(Owner::Session(caller.clone()));
        }
        if self.has_one_for_each_request(client) {
            return Some(Owner::Request(caller.clone()));
        }
        let told = self.forwarded_headers(client);
        let is_nobody = *principal == Principal::anonymous() && told.is_empty();
        let shares_base = !self.catalogue && (is_own || is_nobody);
        let none = || (!shares_base).then(|| Bytes::from_static(b"{}"));
        let mut capabilities = Declared::key(client).or_else(none)?;
        if !told.is_empty() {
            capabilities = [&*capabilities, told.as_bytes()].concat().into();
        }
        Some(match caller.client() {
            Some(told) if told == SameClient::Connection || Declared::lets_ask(client) => {
                let info = client.client_info.as_ref().map(Json::bytes);
                let info = info.filter(|info| info.len() <= CLIENT_DESCRIPTION);
                let declared = [&*capabilities, info.map_or(&[], Bytes::as_ref)].concat();
                Owner::Client(caller.holder().clone(), told, declared.into())
            }
            _ => Owner::Capabilities(principal.clone(), capabilities),
        })
    }

    /// The forwarded headers of a client, as one text. Clients with other values never share a session
    /// at the server, which may keep them.
    fn forwarded_headers(&self, client: &CallContext) -> String {
        match &self.settings.target {
            Target::Http(endpoint) => endpoint.forwarded_headers(&client.caller),
            Target::Stdio(_) | Target::Unusable(_) => String::new(),
        }
    }

    /// The key of connections that a request may leave to others, and take over.
    fn spare_key(&self, client: &CallContext) -> SpareKey {
        let told = self.forwarded_headers(client);
        let key = [client.capabilities.bytes(), told.as_bytes()].concat();
        (client.caller.principal().clone(), key.into())
    }

    /// Whether each request of a client needs its own connection to a legacy server, since nothing
    /// tells which client it is.
    fn has_one_for_each_request(&self, client: &CallContext) -> bool {
        client.session().is_none()
            && client.caller.client().is_none()
            && !client.caller.is_gateway()
            && !self.is_shared()
            && Declared::lets_ask(client)
    }

    /// Continues the session at the server that another process opened for a client's session, if
    /// there is one.
    pub(crate) fn continue_session(&self, client: &CallContext) {
        if !self.is_to_continue(client) {
            return;
        }
        let revision = self.base.state.borrow().revision;
        let for_client = ForClient {
            known: Known::LEGACY,
            reprobed: false,
            is_second_era: revision.is_some_and(|revision| !revision.has_sessions),
            is_proven: self
                .modern_base()
                .is_some_and(|base| self.is_proven_at(&base)),
        };
        match self.open_as(Owner::Session(client.caller.clone()), client, for_client) {
            Ok(opened) => opened.wake(),
            Err(error) => {
                let backend = &*self.settings.context.name;
                tracing::debug!(backend, %error, "no connection to continue a session at the server");
            }
        }
        // The client's session may have ended here meanwhile.
        if client
            .caller
            .server_sessions()
            .is_some_and(|sessions| sessions.are_given_up())
            && let Some(session) = client.session()
        {
            self.end_session(session);
        }
    }

    /// Whether this process must continue a session at the server that another process opened for a
    /// client's session.
    fn is_to_continue(&self, client: &CallContext) -> bool {
        !self.is_shared()
            && self.settings.choice != EraChoice::Modern
            && kept_of(&self.settings, &client.caller).is_some_and(|kept| kept.is_waiting())
    }

    fn open_for(
        &self,
        owner: Owner,
        client: &CallContext,
        base: &Arc<Connection>,
    ) -> Result<InUse, BackendError> {
        let is_second_era = !base.revision().has_sessions;
        let known = if is_second_era {
            Known::LEGACY
        } else {
            base.facts()
        };
        self.open_as(
            owner,
            client,
            ForClient {
                known,
                reprobed: base.reprobed,
                is_second_era,
                is_proven: self.is_proven_at(base),
            },
        )
    }

    /// Whether the server is known to serve the legacy era, too.
    fn is_proven_at(&self, base: &Arc<Connection>) -> bool {
        matches!(self.legacy_era.find(Some(base)), Some(LegacyEra::Served(_)))
    }

    fn open_as(
        &self,
        owner: Owner,
        client: &CallContext,
        for_client: ForClient,
    ) -> Result<InUse, BackendError> {
        let mut connections = self.connections.lock();
        // Another request of the same client may have been first.
        if let Some(supervised) = connections.find(&owner) {
            return Ok(supervised);
        }
        if let Owner::Request(_) = owner
            && let Some(spare) = connections.claim(&owner, &self.spare_key(client))
        {
            return Ok(spare);
        }
        let origin = match &owner {
            Owner::Session(caller) => Origin::Session(caller.clone()),
            Owner::Capabilities(..) | Owner::Client(..) | Owner::Request(_) => Origin::Clients {
                principal: client.caller.principal().clone(),
                is_one: !matches!(owner, Owner::Capabilities(..)),
            },
        };
        let is_named = matches!(owner, Owner::Session(_) | Owner::Client(..));
        let BackendLimits {
            sessions,
            request_sessions,
            ..
        } = self.settings.context.limits;
        connections.make_room(
            &owner,
            Room {
                sessions,
                of_requests: request_sessions,
            },
            &client.peer,
        )?;
        let declared = if client.caller.is_gateway() {
            Declared::by_gateway(client)
        } else {
            Declared::from_client(client, is_named)
        };
        let first = State {
            phase: first_phase(true),
            ..State::default()
        };
        let for_client = (Some((for_client, client.peer.clone())), first);
        let supervised = open(
            &self.settings,
            &self.registry,
            origin,
            declared,
            for_client,
            &client.trace,
        );
        let taken = supervised.take();
        connections.insert(owner, supervised);
        Ok(taken)
    }

    /// Ends connections that have been unused for too long. If connections are `short`, ends the
    /// spare ones instead.
    pub(crate) fn sweep(&self, short: bool) {
        if short {
            return self.connections.lock().end_spares();
        }
        let bound = self.settings.timeouts.session_idle;
        let policy = self.settings.process();
        let idle = policy.and_then(|policy| policy.idle);
        let unused = idle.unwrap_or(bound).min(bound);
        let mut connections = self.connections.lock();
        // Processes take much memory, and connections do not.
        let is_crowded =
            policy.is_some() && connections.count() > self.settings.context.limits.sessions / 2;
        let part = if is_crowded { CROWDED } else { 1 };
        connections.sweep(
            IdleBounds {
                of_sessions: bound / part,
                shared: unused / part,
            },
            |owner| match owner {
                // A listening client needs its connection.
                Owner::Session(session) => self.registry.is_listening(session),
                Owner::Capabilities(principal, _) => {
                    self.registry.any_task(principal) || self.registry.needs_more_than_lists()
                }
                Owner::Client(holder, told, _) => {
                    // Standard input lasts as long as its client.
                    (*told == SameClient::Connection && idle.is_none())
                        || self.registry.any_task(holder.principal())
                        || self.registry.needs_more_than_lists()
                }
                Owner::Request(caller) => self.registry.any_task(caller.principal()),
            },
        );
    }
}

/// The record of the server's session for a client's session; `None` if there is to be none.
fn kept_of(settings: &ConnectSettings, caller: &Caller) -> Option<SessionAt> {
    Some(
        caller
            .server_sessions()?
            .session_at(settings.place.as_ref()?),
    )
}

/// Whether the answer is the same for all clients: the request is for a list, or never sent to a
/// modern server.
pub(crate) fn is_for_all(method: &Method) -> bool {
    method.is_list() || matches!(method, Method::Ping | Method::SetLogLevel)
}

impl Lease {
    fn from_base(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            base: None,
            in_use: None,
            release: None,
        }
    }

    /// Ends the use of the connection. If the era is in doubt, also ends the use of the base
    /// connection, which then determines the era again.
    pub(crate) fn lose(self, loss: Loss) {
        self.connection.lose(loss);
        if loss == Loss::EraDoubt
            && let Some(Phase::Ready(base)) =
                self.base.map(|base| base.state.borrow().phase.clone())
        {
            base.lose(loss);
        }
    }
}

/// The initial phase of a supervised connection.
fn first_phase(rests: bool) -> Phase {
    if rests {
        Phase::Idle
    } else {
        Phase::Connecting {
            after: None,
            attempt: Attempt::new(),
        }
    }
}

fn open(
    settings: &Arc<ConnectSettings>,
    registry: &Arc<SubscriptionRegistry>,
    origin: Origin,
    declared: Declared,
    (for_client, first): (Option<(ForClient, Peer)>, State),
    asked_by: &Parent,
) -> Arc<SupervisedConnection> {
    let (for_client, peer) =
        for_client.map_or((None, Peer::Local), |(client, peer)| (Some(client), peer));
    let (sender, state) = watch::channel(first);
    let (wanted, end) = (Arc::new(Notify::new()), settings.shutdown.child_token());
    let declared = Arc::new(declared);
    let kept = origin
        .session()
        .and_then(|caller| kept_of(settings, caller));
    let (outlet, requests) = UnsolicitedSender::new(Arc::clone(registry), origin);
    let context = TransportContext::new(
        Arc::clone(&settings.context),
        Arc::clone(&declared),
        outlet,
        end.clone(),
        kept,
    );
    let tasks = &settings.context.tasks;
    let supervisor = Supervisor {
        context: Arc::clone(&context),
        settings: Arc::clone(settings),
        for_client,
        asked_by: asked_by.clone(),
        wanted: Arc::clone(&wanted),
        state: sender,
        shutdown: end.clone(),
        opening: Mutex::default(),
    };
    tasks.spawn(supervisor.run());
    let worker = ListeningWorker {
        context,
        state: state.clone(),
        wanted: Arc::clone(&wanted),
        requests,
    };
    tasks.spawn(worker.run());
    let log = Arc::clone(&settings.context.process_log);
    SupervisedConnection::new(state, wanted, end, declared, peer, log)
}
