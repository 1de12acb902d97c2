//! The connections to one backend: the one that Fanlight itself uses, and one for each client that
//! must not share state with others.
//!
//! The base connection finds out the era. A modern server has no sessions, so everything goes
//! over it. With a legacy server each client session has a connection of its own, opened when first
//! needed and declared with that client's capabilities; clients without a session share one with
//! those of the same principal and capabilities. Unused connections are closed after a while, or when the limit is
//! reached.

pub(crate) mod dispatcher;
mod shares;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::{Era, Method, Response};
use fanlight_telemetry::Parent;
use tokio::sync::{Notify, watch};

use crate::connection::supervised::{InUse, SupervisedConnection};
use crate::connection::supervisor::{ConnectSettings, ForClient, Phase, State, Supervisor};
use crate::connection::{Connection, Loss};
use crate::listening::{self, Listeners, ListeningWorker};
use crate::request::TransportContext;
use crate::request::declared::Declared;
use crate::settings::SessionPolicy;
use crate::subscriptions::{Origin, SubscriptionRegistry, UnsolicitedSender};
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, CallContext, Caller, Peer, Principal, SessionKey, Shares};
use fanlight_canonical::{Listen, Listening};

/// Bounds of the interval between looks for idle connections, which is a quarter of their allowed idle time.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));

pub(crate) struct SessionPool {
    settings: Arc<ConnectSettings>,
    policy: SessionPolicy,
    /// The base connection declares more than clients without capabilities have.
    catalogue: bool,
    registry: Arc<SubscriptionRegistry>,
    listeners: Listeners,
    base: Arc<SupervisedConnection>,
    connections: Mutex<HashMap<Owner, Arc<SupervisedConnection>>>,
}

/// Who owns a connection. Two principals never share one, except under [`SessionPolicy::Shared`]. The base connection is
/// Fanlight's own; anonymous clients without a session and without capabilities share it, unless it declares more than
/// they have for the sake of the catalogue.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Owner {
    principal: Principal,
    clients: Clients,
}

/// Which clients of a principal share a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Clients {
    /// One session.
    Session(SessionKey),
    /// All without a session that have these capabilities.
    Capabilities(Bytes),
}

/// A connection for one request.
pub(crate) struct Lease {
    pub(crate) connection: Arc<Connection>,
    /// The base connection, if this is another.
    base: Option<Arc<SupervisedConnection>>,
    /// Keeps a client's connection from being closed as idle; the base connection never is.
    _in_use: Option<InUse>,
}

impl SessionPool {
    /// Begins to make the base connection, in the background.
    /// `catalogue`: lists are read on it for clients of all kinds.
    pub(crate) fn start(
        settings: ConnectSettings,
        policy: SessionPolicy,
        catalogue: bool,
        registry: Arc<SubscriptionRegistry>,
    ) -> Arc<Self> {
        let settings = Arc::new(settings);
        // Where clients share it, all that is declared is what all of them can be asked.
        let catalogue = catalogue && policy == SessionPolicy::PerClient;
        let declared = if catalogue { Declared::for_lists() } else { Declared::nothing() };
        let base = open(&settings, &registry, Origin::Base, declared, None, &settings.context.root);
        let (limits, tasks) = (settings.context.limits, settings.context.tasks.clone());
        let (nesting, patience) = (limits.nesting, settings.timeouts.connect);
        let listeners =
            Listeners::new(Arc::clone(&registry), base.state.clone(), tasks, nesting, patience, limits.sessions);
        let pool =
            Arc::new(Self { settings, policy, catalogue, registry, listeners, base, connections: Mutex::default() });
        if pool.policy == SessionPolicy::PerClient {
            let (tasks, shutdown) = (&pool.settings.context.tasks, pool.settings.shutdown.clone());
            let sweeping = Arc::clone(&pool);
            tasks.spawn(async move { shutdown.run_until_cancelled(sweeping.sweep()).await });
        }
        pool
    }

    /// The connection that Fanlight itself uses.
    pub(crate) fn base(&self) -> &SupervisedConnection {
        &self.base
    }

    /// Why there is no connection for a client, if there is none for some time to come.
    pub(crate) fn down(&self, client: &CallContext) -> Option<BackendError> {
        match self.existing(client) {
            Some(supervised) => supervised.down(),
            None => self.base.down(),
        }
    }

    /// The connection for a client's request, if it is there.
    pub(crate) fn lease_at_once(&self, client: &CallContext) -> Option<Lease> {
        let ready = |supervised: &SupervisedConnection| supervised.state.borrow().verdict()?.ok();
        match self.existing(client) {
            Some(supervised) => Some(Lease {
                connection: ready(&supervised)?,
                base: Some(Arc::clone(&self.base)),
                _in_use: Some(supervised),
            }),
            None => {
                let connection = ready(&self.base)?;
                let has_line = connection.era() == Era::Legacy && self.owner(client).is_some();
                (!has_line).then(|| Lease { connection, base: None, _in_use: None })
            }
        }
    }

    /// The connection that a client's session has of its own, if it is there.
    pub(crate) fn of_session(&self, client: &CallContext) -> Option<Lease> {
        let supervised = self.existing(client).filter(|_| client.session().is_some())?;
        let connection = supervised.state.borrow().verdict()?.ok()?;
        Some(Lease { connection, base: Some(Arc::clone(&self.base)), _in_use: Some(supervised) })
    }

    /// The connection for a client's request, made first if needed.
    pub(crate) async fn lease(&self, client: &CallContext) -> Result<Lease, BackendError> {
        let supervised = match self.existing(client) {
            Some(supervised) => supervised,
            None => {
                let connection = self.base.ready(self.settings.timeouts.connect).await?;
                let owner = if connection.era() == Era::Legacy { self.owner(client) } else { None };
                match owner {
                    Some(owner) => self.open_for(owner, client, &connection)?,
                    None => return Ok(Lease { connection, base: None, _in_use: None }),
                }
            }
        };
        let connection = supervised.ready(self.settings.timeouts.connect).await.map_err(|error| match error {
            BackendError::ShuttingDown if !self.settings.shutdown.is_cancelled() => {
                BackendError::Unreachable { reason: "the client's session has ended".into() }
            }
            error => error,
        })?;
        Ok(Lease { connection, base: Some(Arc::clone(&self.base)), _in_use: Some(supervised) })
    }

    /// A connection to the server that is there at the moment: the client's own or the base one.
    pub(crate) fn current(&self, client: &CallContext) -> Option<Arc<Connection>> {
        let ready = |supervised: &SupervisedConnection| supervised.state.borrow().verdict()?.ok();
        ready(&self.base).or_else(|| self.existing(client).and_then(|supervised| ready(&supervised)))
    }

    /// Begins to listen for a client.
    pub(crate) async fn listen(&self, listen: Listen) -> Result<Listening, BackendError> {
        let ready = self.base.ready(self.settings.timeouts.connect);
        if listen.interest.session && listen.interest.unknown.is_none() {
            return self.listeners.add_of_session(listen, ready).await;
        }
        let connection = ready.await?;
        self.listeners.add(listen, connection.era()).await
    }

    /// The answer to a call about what is listened to that the server is not asked for, if it is one.
    pub(crate) async fn local_answer(&self, call: &Call, lease: &Lease) -> Option<Response> {
        self.registry.note_level(&call.context);
        if lease.base.is_some() {
            return listening::refusal(&self.registry, call);
        }
        if !matches!(call.method, Method::Subscribe | Method::Unsubscribe) {
            return None;
        }
        // Large: boxed to keep the futures of other calls small.
        Box::pin(listening::local_answer(&self.registry, call, lease.connection.era())).await
    }

    /// Remembers what an answered call has changed on a client's own connection.
    pub(crate) fn remember(&self, call: &Call, answer: &Response) {
        listening::record(&self.registry, call, answer);
    }

    /// Closes the connections of a client session.
    pub(crate) fn end_session(&self, session: SessionKey) {
        let ended = Clients::Session(session);
        for (_, supervised) in self.connections().extract_if(|owner, _| owner.clients == ended) {
            supervised.end();
        }
        self.registry.end_session(session);
    }

    /// The client's own connection, if it has one already.
    fn existing(&self, client: &CallContext) -> Option<InUse> {
        // Cheaper than finding the owner.
        if self.base_is_modern() {
            return None;
        }
        let owner = self.owner(client)?;
        self.connections().get(&owner).map(SupervisedConnection::take)
    }

    fn base_is_modern(&self) -> bool {
        matches!(&self.base.state.borrow().phase, Phase::Ready(connection) if connection.era() == Era::Modern)
    }

    /// `None` if the client uses the base connection.
    fn owner(&self, client: &CallContext) -> Option<Owner> {
        if self.policy == SessionPolicy::Shared || (self.catalogue && client.caller.is_gateway()) {
            return None;
        }
        let principal = client.caller.principal();
        let clients = match client.session() {
            Some(session) => Clients::Session(session),
            None => {
                let shares_base =
                    !self.catalogue && (client.caller.is_gateway() || *principal == Principal::anonymous());
                let none = || (!shares_base).then(|| Bytes::from_static(b"{}"));
                Clients::Capabilities(Declared::key(client, self.largest_description()).or_else(none)?)
            }
        };
        Some(Owner { principal: principal.clone(), clients })
    }

    fn open_for(&self, owner: Owner, client: &CallContext, base: &Connection) -> Result<InUse, BackendError> {
        let mut connections = self.connections();
        // Another request of the same client may have been first.
        if let Some(supervised) = connections.get(&owner) {
            return Ok(supervised.take());
        }
        let limit = self.settings.context.limits.sessions;
        if connections.len() >= limit {
            let owner = longest_idle(&connections, &client.peer).ok_or(BackendError::TooManySessions { limit })?;
            if let Some(supervised) = connections.remove(&owner) {
                supervised.end();
            }
        }
        let named = matches!(owner.clients, Clients::Session(_));
        let for_client = ForClient { known: base.known(), reprobed: base.is_reprobed() };
        let origin = match owner.clients {
            Clients::Session(_) => Origin::Session(client.caller.clone()),
            Clients::Capabilities(_) => Origin::Pooled(owner.principal.clone()),
        };
        let declared = Declared::by(client, named, self.largest_description());
        let for_client = Some((for_client, client.peer.clone()));
        let supervised = open(&self.settings, &self.registry, origin, declared, for_client, &client.trace);
        let taken = supervised.take();
        connections.insert(owner, supervised);
        Ok(taken)
    }

    /// The size limit of a client's capabilities, and of its information, in bytes.
    fn largest_description(&self) -> usize {
        self.settings.context.limits.client_description
    }

    async fn sweep(&self) {
        let bound = self.settings.timeouts.session_idle;
        loop {
            tokio::time::sleep((bound / 4).clamp(LOOK.0, LOOK.1)).await;
            self.connections().retain(|owner, supervised| {
                // A listening client needs its connection.
                let listening = match owner.clients {
                    Clients::Session(session) => {
                        self.registry.is_listening(&Caller::session_of(owner.principal.clone(), session))
                    }
                    Clients::Capabilities(_) => self.registry.any_task(&owner.principal),
                };
                let expired = !listening && supervised.idle().is_some_and(|idle| idle >= bound);
                if expired {
                    supervised.end();
                }
                !expired
            });
        }
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<Owner, Arc<SupervisedConnection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Gives the connection up. If the era is in doubt, the base connection is given up as well, and finds out.
    pub(crate) fn lose(self, loss: Loss) {
        self.connection.lose(loss);
        if loss == Loss::EraDoubt
            && let Some(Phase::Ready(base)) = self.base.map(|base| base.state.borrow().phase.clone())
        {
            base.lose(loss);
        }
    }
}

fn open(
    settings: &Arc<ConnectSettings>,
    registry: &Arc<SubscriptionRegistry>,
    origin: Origin,
    declared: Declared,
    for_client: Option<(ForClient, Peer)>,
    asked_by: &Parent,
) -> Arc<SupervisedConnection> {
    let (for_client, peer) = for_client.map_or((None, Peer::Local), |(client, peer)| (Some(client), peer));
    let phase = if for_client.is_some() { Phase::Idle } else { Phase::Connecting { after: None } };
    let (sender, state) = watch::channel(State { phase, revision: None, attempted: false, attempts: 0 });
    let (wanted, end) = (Arc::new(Notify::new()), settings.shutdown.child_token());
    let (outlet, requests) = UnsolicitedSender::new(Arc::clone(registry), origin.clone());
    let context = TransportContext { declared: Arc::new(declared), outlet, ..settings.context.clone() };
    let tasks = &settings.context.tasks;
    let supervisor = Supervisor {
        context: context.clone(),
        settings: Arc::clone(settings),
        for_client,
        asked_by: asked_by.clone(),
        wanted: Arc::clone(&wanted),
        state: sender,
        shutdown: end.clone(),
    };
    tasks.spawn(supervisor.run());
    let worker = ListeningWorker {
        registry: Arc::clone(registry),
        origin,
        context,
        state: state.clone(),
        wanted: Arc::clone(&wanted),
        requests,
        patience: settings.timeouts.connect,
    };
    tasks.spawn(worker.run());
    SupervisedConnection::new(state, wanted, end, peer)
}

/// The owner of the connection that ends for one of `newcomer`: of the peers that have most, the one that has been idle
/// longest.
fn longest_idle(connections: &HashMap<Owner, Arc<SupervisedConnection>>, newcomer: &Peer) -> Option<Owner> {
    let shares = Shares::count(connections.values().map(|supervised| supervised.peer()), newcomer);
    let idle = connections.iter().filter_map(|(owner, supervised)| {
        let (idle, peer) = (supervised.idle()?, supervised.peer());
        shares.may_lose(peer).then(|| ((shares.of(peer), idle), owner))
    });
    idle.max_by_key(|(rank, _)| *rank).map(|(_, owner)| owner.clone())
}
