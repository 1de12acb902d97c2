//! One server as the core sees it: its parts, the answers of each, and its life cycle.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, Call, CallContext, FailureDetails,
    LIST_SETTLE, Listen, Listening, Pending, ProcessOutput, Remedy, RemedyKind, RunningProcess,
    SessionKey, place_of,
};
use fanlight_fair::limit;
use fanlight_http::client::{PoolSettings, TcpProbes};
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Method, Notification, Response, implementation};
use fanlight_telemetry::BackendTelemetry;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::measured::Measured;
use crate::connection::supervisor::{ConnectSettings, Phase, State, Target};
use crate::health::Health;
use crate::process_log::ProcessLog;
use crate::repeats::{self, Repeats};
use crate::request::BackendContext;
use crate::sessions::SessionPool;
use crate::sessions::dispatcher::Dispatcher;
use crate::settings::{
    BackendSettings, KnownServer, Secret, SessionPolicy, TelemetrySettings, TransportSettings,
    process_log_kept, process_stop,
};
use crate::subscriptions::{RegistrySettings, SessionSubscriptions, SubscriptionRegistry};
use crate::tasks::TaskTranslation;
use crate::tasks::owners::TaskOwners;
use crate::transport::http::HttpEndpoint;
use crate::transport::stdio::ProcessSettings;

/// The number of [`process_stop`] waits until everything has ended: three
/// for a process, and three for the processes that it left behind.
const STOP_STEPS: u32 = 6;

/// The interval of TCP probes on a silent connection to a server; the third without an answer closes it.
const TCP_PROBE: Duration = Duration::from_secs(15);

/// How long TCP may leave bytes sent to a server unacknowledged, on Linux.
const TCP_UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// One MCP server, kept connected.
pub struct Backend {
    name: Arc<str>,
    /// The configured transport.
    transport: &'static str,
    pool: Arc<SessionPool>,
    /// Set for a server over HTTP.
    endpoint: Option<Arc<HttpEndpoint>>,
    calls: Arc<Dispatcher>,
    tasks: Arc<TaskTranslation>,
    /// Set for a server whose safe requests are repeated.
    repeats: Option<Repeats>,
    life: BackendLife,
}

/// The data of one endpoint of a server that the server's settings do not have.
pub(crate) struct Replica {
    /// The number of the endpoint, which tells it from the server's others.
    pub(crate) number: u64,
    /// The fixed address; `None` resolves the host on connect.
    pub(crate) address: Option<SocketAddr>,
    /// The name in the log.
    pub(crate) label: Arc<str>,
    pub(crate) telemetry: BackendTelemetry,
    /// The owners of the tasks at all endpoints.
    pub(crate) owners: Arc<TaskOwners>,
    /// The sessions' subscriptions at all endpoints.
    pub(crate) subscribed: Arc<SessionSubscriptions>,
    /// The output of processes besides messages.
    pub(crate) process_log: Arc<ProcessLog>,
}

/// Whether one of several endpoints can take a call. The variants are ordered, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readiness {
    /// Its last calls got no answer, and one call may try it again.
    Trial,
    Ready,
    /// Its first connection is being made.
    Connecting,
    /// It is unreachable or must be left alone.
    Down,
}

/// The life of a server's connections. It ends when the last reference to the [`Backend`] is
/// dropped, or when it is stopped.
#[derive(Clone, Debug)]
pub struct BackendLife {
    name: Arc<str>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Backend {
    /// Begins to connect in the background. Cancelling `shutdown` ends the server as
    /// [`Backend::stop`] does, but without waiting. Cancel it only when no request should still be
    /// answered.
    ///
    /// Needs a tokio runtime around it.
    pub fn start(settings: BackendSettings, shutdown: CancellationToken) -> Arc<Self> {
        Self::resume(settings, None, shutdown)
    }

    /// Like [`Backend::start`], with facts about the server from an earlier run (`known`). They
    /// apply until there is a connection.
    pub fn resume(
        settings: BackendSettings,
        known: Option<KnownServer>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let log = Arc::new(ProcessLog::new(process_log_kept()));
        Self::logging_to(log, settings, known, shutdown)
    }

    /// Like [`Backend::resume`], for a server whose processes share a log with others.
    pub(crate) fn logging_to(
        process_log: Arc<ProcessLog>,
        settings: BackendSettings,
        known: Option<KnownServer>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let telemetry = settings
            .telemetry
            .clone()
            .of(&settings.name, &settings.transport);
        let owners = Arc::new(TaskOwners::new(
            settings.limits.tasks,
            settings.limits.task_state_bytes,
        ));
        let label = settings.name.as_str().into();
        let subscribed = Arc::new(SessionSubscriptions::new(settings.limits.subscriptions));
        let alone = Replica {
            number: 0,
            address: None,
            label,
            telemetry,
            owners,
            subscribed,
            process_log,
        };
        Self::begin(settings, known, alone, shutdown)
    }

    /// Like [`Backend::resume`], for one endpoint of a server.
    pub(crate) fn begin(
        settings: BackendSettings,
        known: Option<KnownServer>,
        replica: Replica,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let BackendSettings {
            name,
            transport,
            credentials,
            ca_file,
            forward_headers,
            processes,
            era,
            sessions,
            health,
            catalogue,
            timeouts,
            limits,
            memory,
            telemetry:
                TelemetrySettings {
                    telemetry: recorder,
                    ..
                },
            handles,
            endpoints: _,
            repeats,
            is_asked_for_safe,
            names: _,
        } = settings;
        let Replica {
            number,
            address,
            label,
            telemetry,
            owners,
            subscribed,
            process_log,
        } = replica;
        let name: Arc<str> = name.into();
        let life_name = Arc::clone(&name);
        let tasks = TaskTracker::new();
        let shutdown = shutdown.child_token();
        let root = recorder.root();
        let shared = sessions == SessionPolicy::Shared;
        let registry = RegistrySettings {
            limit: limits.subscriptions,
            shared,
            settle: limit("listSettle", LIST_SETTLE),
            records: subscribed,
            tasks: tasks.clone(),
            shutdown: shutdown.clone(),
        };
        let registry = SubscriptionRegistry::new(Arc::clone(&name), registry);
        let context = BackendContext {
            name: Arc::clone(&name),
            limits,
            timeouts,
            stream_is_late: AtomicBool::new(false),
            ids: AtomicI64::new(1),
            health: Health::new(
                label,
                health,
                timeouts.reconnect,
                Arc::clone(telemetry.metrics()),
            ),
            outages: Default::default(),
            process_log,
            memory: memory.of(&name),
            tasks: tasks.clone(),
            telemetry,
            root,
            knows_safe: repeats.is_some() || is_asked_for_safe,
        };
        let bounds = PoolSettings {
            connect_timeout: timeouts.connect,
            idle_timeout: limit("backendIdleConnection", Duration::from_secs(90)),
            max_idle: limits.concurrency,
            probes: TcpProbes {
                interval: TCP_PROBE,
                unacknowledged: TCP_UNACKNOWLEDGED,
            },
        };
        let http = |url: &str, headers: &[(String, Secret)]| {
            let place = (url, address);
            let endpoint = HttpEndpoint::new(
                place,
                headers,
                &forward_headers,
                bounds,
                ca_file.as_deref(),
                credentials.clone(),
            );
            endpoint.map_or_else(Target::Unusable, |endpoint| {
                Target::Http(Arc::new(endpoint))
            })
        };
        let sse_first = matches!(transport, TransportSettings::Sse { .. });
        let place = match &transport {
            TransportSettings::Http { url, headers } => {
                let address = address
                    .map(|address| address.to_string())
                    .unwrap_or_default();
                let headers = headers
                    .iter()
                    .flat_map(|(name, value)| [name.as_str(), value.as_written()]);
                Some(place_of(
                    &name,
                    [url.as_str(), address.as_str()].into_iter().chain(headers),
                ))
            }
            _ => None,
        };
        let (transport, target) = match transport {
            TransportSettings::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                let policy = processes;
                let (name, grace) = (Arc::clone(&name), process_stop());
                (
                    "stdio",
                    Target::Stdio(Box::new(ProcessSettings {
                        name,
                        command,
                        args,
                        env,
                        cwd,
                        policy,
                        grace,
                    })),
                )
            }
            TransportSettings::Http { url, headers } => ("http", http(&url, &headers)),
            TransportSettings::Sse { url, headers } => ("sse", http(&url, &headers)),
            TransportSettings::Incomplete { is_process, why } => (
                if is_process { "stdio" } else { "http" },
                Target::Unusable(incomplete(why)),
            ),
        };
        let endpoint = match &target {
            Target::Http(endpoint) => Some(Arc::clone(endpoint)),
            Target::Stdio(_) | Target::Unusable(_) => None,
        };
        let connect = ConnectSettings {
            context: Arc::new(context),
            target,
            choice: era,
            timeouts,
            sse_first,
            own_info: implementation(),
            place,
            connections_made: watch::Sender::default(),
            starts: Measured::default(),
            shutdown: shutdown.clone(),
        };
        let pool = SessionPool::start(connect, sessions, catalogue, registry, known);
        let repeats_lists = repeats.is_none();
        let calls = Dispatcher::new(
            Arc::clone(&pool),
            timeouts,
            limits.concurrency,
            repeats_lists,
            shutdown.clone(),
        );
        let calls = Arc::new(calls);
        let translation = (Arc::clone(&calls), handles);
        let owners = (owners, number);
        let translation = TaskTranslation::new(
            &name,
            translation,
            owners,
            shared,
            &limits,
            tasks.clone(),
            shutdown.clone(),
        );
        let life = BackendLife {
            name: life_name,
            shutdown,
            tasks,
        };
        // With several endpoints, the code that chooses among them repeats requests.
        let repeats = repeats.filter(|_| number == 0);
        Arc::new(Self {
            name,
            transport,
            pool,
            endpoint,
            calls,
            tasks: translation,
            repeats,
            life,
        })
    }

    /// Ends the connection and the child process; waits for their end, a few seconds at most.
    /// Requests fail from now on.
    pub async fn stop(&self) {
        self.life.stop().await;
    }

    /// Sends the headers in `settings` from the next message on. The settings must be of the same
    /// server ([`BackendSettings::is_same_server`]); secrets in them may have been rotated.
    pub fn use_credentials(&self, settings: &BackendSettings) {
        let Some((endpoint, headers)) = self.endpoint.as_ref().zip(settings.transport.headers())
        else {
            return;
        };
        if let Err(reason) = endpoint.replace_headers(headers) {
            tracing::warn!(backend = &*self.name, reason, "headers not replaced");
        }
        // The server may have refused the former ones.
        let _ = self.pool.base().at_rest();
    }

    /// Sends a request that was sent `earlier` times before.
    pub(crate) fn send(&self, call: Call, earlier: u32) -> Pending<'_, Response> {
        if self.tasks.concerns(&call) {
            return Box::pin(self.tasks.request(call));
        }
        Box::pin(async move { self.calls.request(&call, earlier).await })
    }

    /// Whether repeating the request is harmless. A call that may make a task is not: nobody would
    /// know of the first task. A tool counts by its hint in a list that is at most `oldest` old;
    /// the list is read if necessary.
    pub(crate) async fn does_no_harm(&self, call: &Call, oldest: Duration) -> bool {
        let could_be = repeats::could_be_safe(call);
        if !could_be || call.method != Method::CallTool {
            return could_be;
        }
        // If the name occurs twice, the server's choice is unknown.
        let name = call
            .params
            .as_ref()
            .and_then(|params| params.find_distinct(&["name"]).ok().zip(Some(params)));
        let name = name.and_then(|([at], params)| params.slice(at?).as_str().map(Cow::into_owned));
        let Some((Ok(base), name)) = self.pool.base().state.borrow().verdict().zip(name) else {
            return false;
        };
        !self.tasks.concerns(call) && base.is_repeatable(&name, oldest).await
    }

    /// Whether a request that may have run may be repeated. Asks the server's current tool list,
    /// and waits for a reconnect if necessary.
    pub(crate) async fn may_repeat(&self, call: &Call) -> bool {
        let reads = call.method != Method::CallTool;
        (reads
            || self
                .pool
                .base()
                .ready(self.calls.timeouts.connect)
                .await
                .is_ok())
            && self.does_no_harm(call, Duration::ZERO).await
    }

    /// Whether a call could be sent now.
    pub(crate) fn readiness(&self) -> Readiness {
        match &self.pool.base().state.borrow().phase {
            Phase::Ready(connection) if !connection.is_lost() => {
                match self.pool.health().trial_is_due() {
                    None => Readiness::Ready,
                    Some(true) => Readiness::Trial,
                    Some(false) => Readiness::Down,
                }
            }
            Phase::Idle | Phase::Connecting { after: None, .. } => Readiness::Connecting,
            Phase::Ready(_) | Phase::Connecting { .. } | Phase::Down { .. } | Phase::Stopped => {
                Readiness::Down
            }
        }
    }

    /// Whether there is a connection; calls may still get no answer.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.pool.base().state.borrow().verdict(), Some(Ok(_)))
    }

    /// Has the connection checked at once, because a request failed as if it were gone.
    pub(crate) fn doubt(&self) {
        self.pool.health().doubt();
    }

    /// Observes changes of the connection state.
    pub(crate) fn state(&self) -> watch::Receiver<State> {
        self.pool.base().state.clone()
    }

    /// Whether clients wait for anything here, or would lose anything with it.
    pub(crate) fn is_needed(&self) -> bool {
        self.pool.is_needed()
    }

    /// Whether the client's requests run on a connection of their own. Waits until it is clear
    /// whether the server has one for it.
    pub(crate) async fn has_own_connection(
        &self,
        client: &CallContext,
    ) -> Result<bool, BackendError> {
        self.pool.has_own_connection_for(client).await
    }

    /// Starts the server's process if it rests. Called when another process of the server is in
    /// use, whose lists may be newer.
    pub(crate) fn wake(&self) {
        self.pool.wake();
    }

    /// The output of its processes.
    pub(crate) fn process_log(&self) -> &Arc<ProcessLog> {
        self.pool.process_log()
    }

    /// Whether the client's session has a connection of its own.
    pub(crate) fn has_session(&self, client: &CallContext) -> bool {
        self.pool.has_session(client)
    }

    /// Repeats the subscriptions of a client's session that moved here from another endpoint.
    /// Returns the new ones.
    pub(crate) async fn subscribe_again(
        &self,
        client: &CallContext,
    ) -> Result<Vec<Arc<str>>, BackendError> {
        self.pool.subscribe_again(client).await
    }

    /// Ends a client's session here, because it goes on at another endpoint.
    pub(crate) fn leave_session(&self, session: SessionKey) {
        self.pool.leave_session(session);
    }

    /// Whether any client has a connection of its own here.
    pub(crate) fn has_clients(&self) -> bool {
        self.pool.has_clients()
    }

    /// Facts about the server, for a later run.
    pub fn known(&self) -> Option<KnownServer> {
        self.pool.known()
    }

    /// A handle that can end the server but does not keep it alive.
    pub fn life(&self) -> BackendLife {
        self.life.clone()
    }
}

/// The error of a server whose configuration refers to a missing value.
fn incomplete(why: String) -> BackendError {
    let text = "add it; set a variable in Fanlight's environment and restart Fanlight, or give the variable a default, as in \
                `${NAME:-default}`";
    let remedy = Remedy {
        kind: RemedyKind::Configuration,
        text: text.into(),
    };
    let details = FailureDetails {
        remedy: Some(remedy),
        ..FailureDetails::default()
    };
    BackendError::Unreachable { reason: why }.with_details(details)
}

impl BackendLife {
    pub(crate) fn new(name: &Arc<str>, shutdown: CancellationToken) -> Self {
        Self {
            name: Arc::clone(name),
            shutdown,
            tasks: TaskTracker::new(),
        }
    }

    /// Runs a task that [`Self::stop`] waits for; it must end with the server.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// The server's configured name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until nothing uses the server, or it has been stopped.
    pub async fn unused(&self) {
        self.shutdown.cancelled().await;
    }

    /// See [`Backend::stop`].
    pub async fn stop(&self) {
        self.end();
        if timeout(process_stop() * STOP_STEPS, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(backend = self.name(), "server did not stop in time");
        }
    }

    pub(crate) fn end(&self) {
        self.shutdown.cancel();
        self.tasks.close();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.life.end();
    }
}

impl BackendClient for Backend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> Pending<'_, ServerDescription> {
        Box::pin(self.pool.describe())
    }

    fn describe_to<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        Box::pin(self.pool.describe_to(client))
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        match &self.repeats {
            Some(repeats) if repeats::could_be_safe(&call) => Box::pin(async move {
                let first = |call| async move {
                    let is_safe = self.does_no_harm(&call, Duration::MAX).await;
                    (is_safe, self.send(call, 0).await)
                };
                let again = |call| async move {
                    match self.may_repeat(&call).await {
                        true => self.send(call, 1).await,
                        false => Err(repeats::no_longer_safe()),
                    }
                };
                repeats
                    .send(call, self.calls.timeouts.call, first, again)
                    .await
            }),
            _ => self.send(call, 0),
        }
    }

    fn is_safe<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, bool> {
        Box::pin(self.does_no_harm(call, repeats::RECENTLY))
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(self.tasks.listen(listen))
    }

    fn notify<'a>(
        &'a self,
        notification: &'a Notification,
        client: &'a CallContext,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            let Some(lease) = self.pool.of_session(client) else {
                self.pool.tell_later(client, notification);
                return Ok(());
            };
            let Some(request) = &client.request else {
                return lease.connection.notify(notification).await;
            };
            match request
                .at(&self.name)
                .and_then(|named| named.rename(notification))
            {
                Some(renamed) => lease.connection.notify(&renamed).await,
                None => Ok(()),
            }
        })
    }

    fn continue_session(&self, client: &Arc<CallContext>) {
        self.pool.continue_session(client);
    }

    fn end_session(&self, session: SessionKey) {
        self.pool.end_session(session);
    }

    fn connection_made(&self, since: Option<Instant>) -> BoxFuture<'_, Instant> {
        Box::pin(self.pool.connection_made(since))
    }

    fn session_choice(&self) -> Pending<'_, Option<String>> {
        Box::pin(self.pool.session_choice())
    }

    fn may_rest(&self) -> bool {
        self.pool.may_rest()
    }

    fn processes(&self) -> Vec<RunningProcess> {
        self.pool.process_log().running()
    }

    fn process_output(&self) -> ProcessOutput {
        self.pool.process_log().output()
    }

    fn status(&self) -> BackendStatus {
        let state = self.pool.base().state.borrow();
        let attempt = match &state.phase {
            Phase::Connecting { attempt, .. } => Some(attempt),
            _ => None,
        };
        // Nobody should wait for a server that takes long to start.
        let is_slow =
            attempt.is_some_and(|attempt| attempt.elapsed() >= self.calls.timeouts.connect);
        BackendStatus {
            era: state.revision.map(|revision| revision.era),
            revision: state.revision.map(|revision| revision.name),
            transport: match &state.phase {
                Phase::Ready(connection) => connection.transport(),
                _ => self.transport,
            },
            attempted: state.attempted || is_slow,
            starting: attempt.map(|attempt| attempt.starting(self.pool.process_log())),
            failure: match &state.phase {
                Phase::Connecting { after: error, .. } => error.clone(),
                Phase::Down { error, .. } => Some(error.clone()),
                Phase::Idle | Phase::Ready(_) | Phase::Stopped => None,
            },
            state: match &state.phase {
                Phase::Ready(connection) if !connection.is_lost() => {
                    match self.pool.health().left_alone() {
                        Some((error, retry_in)) => BackendState::Ejected { error, retry_in },
                        None => BackendState::Ready,
                    }
                }
                Phase::Idle => BackendState::Idle,
                Phase::Ready(_) | Phase::Connecting { .. } => BackendState::Connecting,
                Phase::Down {
                    error, until: None, ..
                } => BackendState::Failed {
                    error: error.clone(),
                },
                Phase::Down {
                    error,
                    until: Some(until),
                    ..
                } => BackendState::Down {
                    error: error.clone(),
                    retry_in: until.saturating_duration_since(Instant::now()),
                },
                Phase::Stopped => BackendState::Down {
                    error: BackendError::ShuttingDown,
                    retry_in: Duration::MAX,
                },
            },
        }
    }
}
