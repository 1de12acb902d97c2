//! A backend as the core sees it: its parts, what each of them answers, and its life.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, Call, CallContext, FailureDetails,
    Listen, Listening, Pending, ProcessOutput, Remedy, RemedyKind, SessionKey, place_of,
};
use fanlight_http_pool::{PoolSettings, TcpProbes};
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Method, Notification, Response, Revision};
use fanlight_telemetry::BackendTelemetry;
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
};
use crate::subscriptions::{
    InMemorySubscriptions, RegistrySettings, SessionSubscriptions, SubscriptionRegistry,
};
use crate::tasks::TaskTranslation;
use crate::tasks::owners::InMemory as TaskOwners;
use crate::transport::http::HttpEndpoint;
use crate::transport::stdio::ProcessSettings;

/// Waits of [`crate::BackendTimeouts::process_stop`] until everything has ended: a process has three, and the processes that it left
/// behind have as many.
const STOP_STEPS: u32 = 6;

/// One MCP server, kept connected.
pub struct Backend {
    name: Arc<str>,
    /// The configured transport.
    transport: &'static str,
    pool: Arc<SessionPool>,
    /// Of a server that is reached over HTTP.
    endpoint: Option<Arc<HttpEndpoint>>,
    calls: Arc<Dispatcher>,
    tasks: Arc<TaskTranslation>,
    /// Of a server whose safe requests are sent once more.
    repeats: Option<Repeats>,
    life: BackendLife,
}

/// What one endpoint of a server does not have from the server's settings.
pub(crate) struct Replica {
    /// Tells it from the server's other endpoints.
    pub(crate) number: u64,
    /// Where it is, if that is not left to whoever connects.
    pub(crate) address: Option<SocketAddr>,
    /// What the log calls it.
    pub(crate) label: Arc<str>,
    pub(crate) telemetry: BackendTelemetry,
    /// The owners of the tasks of all endpoints.
    pub(crate) owners: Arc<TaskOwners>,
    /// What sessions have subscribed to at any endpoint.
    pub(crate) subscribed: Arc<dyn SessionSubscriptions>,
    /// What processes write besides messages.
    pub(crate) process_log: Arc<ProcessLog>,
}

/// Whether a call can be sent to one endpoint of several. The first is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readiness {
    /// Its last calls got no answer, and it is time to try one.
    Trial,
    Ready,
    /// It is being connected to for the first time.
    Connecting,
    /// It cannot be reached, or is left alone.
    Down,
}

/// The life of a backend, apart from its use: it ends when the last reference to the [`Backend`] is dropped, or when it is stopped.
#[derive(Clone, Debug)]
pub struct BackendLife {
    name: Arc<str>,
    process_stop: Duration,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Backend {
    /// Begins to connect, in the background. `shutdown` ends the backend as [`Backend::stop`] does,
    /// but without waiting: cancel it once nothing is in flight that should still be answered.
    ///
    /// Needs a tokio runtime around it.
    #[must_use]
    pub fn start(settings: BackendSettings, shutdown: CancellationToken) -> Arc<Self> {
        Self::resume(settings, None, shutdown)
    }

    /// [`Backend::start`] with what is `known` of the server from an earlier run, which is used until there is a
    /// connection.
    #[must_use]
    pub fn resume(
        settings: BackendSettings,
        known: Option<KnownServer>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let log = Arc::new(ProcessLog::new(settings.limits.process_log_kept));
        Self::logging_to(log, settings, known, shutdown)
    }

    /// [`Backend::resume`] for one whose processes share a log with those of others.
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
        let owners = Arc::new(TaskOwners::new(settings.limits.tasks));
        let label = settings.name.as_str().into();
        let subscribed = Arc::new(InMemorySubscriptions::new(settings.limits.subscriptions));
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

    /// [`Backend::resume`] for one endpoint of a server.
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
            processes,
            era,
            sessions,
            health,
            catalogue,
            timeouts,
            limits,
            memory,
            identity,
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
            settle: timeouts.list_settle,
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
            idle_timeout: timeouts.idle_connection,
            max_idle: limits.concurrency,
            probes: TcpProbes {
                interval: timeouts.tcp_probe,
                unacknowledged: timeouts.tcp_unacknowledged,
            },
        };
        let http = |url: &str, headers: &[(String, Secret)]| {
            let place = (url, address);
            let endpoint = HttpEndpoint::new(
                place,
                headers,
                &identity,
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
                let (name, grace) = (Arc::clone(&name), timeouts.process_stop);
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
            own_info: identity.to_json(),
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
            process_stop: timeouts.process_stop,
            shutdown,
            tasks,
        };
        // Of several endpoints, whoever chooses among them repeats.
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

    /// Ends the connection and the child process, and waits for that, for a few seconds at most.
    /// Requests fail from now on.
    pub async fn stop(&self) {
        self.life.stop().await;
    }

    /// Sends the headers of `settings`, those of the same server ([`BackendSettings::is_same_server`]), from the next message
    /// on: secrets that they refer to may have been rotated.
    pub fn use_credentials(&self, settings: &BackendSettings) {
        let Some((endpoint, headers)) = self.endpoint.as_ref().zip(settings.transport.headers())
        else {
            return;
        };
        if let Err(reason) = endpoint.replace_headers(headers) {
            tracing::warn!(backend = &*self.name, reason, "headers not replaced");
        }
    }

    /// Sends a request, which was sent `earlier` times before.
    pub(crate) fn send(&self, call: Call, earlier: u32) -> Pending<'_, Response> {
        if self.tasks.concerns(&call) {
            return Box::pin(self.tasks.request(call));
        }
        Box::pin(async move { self.calls.request(&call, earlier).await })
    }

    /// Whether a request does no harm if it runs twice. A call that may make a task does: nobody knows of the first one. Of its
    /// tool, what counts is what a list says that was read no longer ago than `oldest`; it is read if necessary.
    pub(crate) async fn does_no_harm(&self, call: &Call, oldest: Duration) -> bool {
        let could_be = repeats::could_be_safe(call);
        if !could_be || call.method != Method::CallTool {
            return could_be;
        }
        // What its server would take for the name if there were two is unknown.
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

    /// Whether a request that may have run may be sent once more, as its server says now: that may be connecting anew.
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

    /// Whether it is connected, though its calls may get no answer.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.pool.base().state.borrow().verdict(), Some(Ok(_)))
    }

    /// A request has met that it may be gone: it is checked at once.
    pub(crate) fn doubt(&self) {
        self.pool.health().doubt();
    }

    /// Sees changes of its state.
    pub(crate) fn state(&self) -> watch::Receiver<State> {
        self.pool.base().state.clone()
    }

    /// Whether it keeps something for its clients that would be lost with it, or that they wait for.
    pub(crate) fn is_needed(&self) -> bool {
        self.pool.is_needed()
    }

    /// Whether a client's requests run on a connection that is not everybody's, as far as its server has one for it: that is
    /// found out first.
    pub(crate) async fn has_own_connection(
        &self,
        client: &CallContext,
    ) -> Result<bool, BackendError> {
        self.pool.has_own_connection_for(client).await
    }

    /// Has its process start if it rests: another process of the server is in use, which may have other lists by now.
    pub(crate) fn wake(&self) {
        self.pool.wake();
    }

    /// What its processes have written.
    pub(crate) fn process_log(&self) -> &Arc<ProcessLog> {
        self.pool.process_log()
    }

    /// Whether the client's session has a connection of its own.
    pub(crate) fn has_session(&self, client: &CallContext) -> bool {
        self.pool.has_session(client)
    }

    /// Has a client's session that goes on here be subscribed to what it has subscribed to at another endpoint. Returns what it was
    /// not subscribed to here before.
    pub(crate) async fn subscribe_again(
        &self,
        client: &CallContext,
    ) -> Result<Vec<Arc<str>>, BackendError> {
        self.pool.subscribe_again(client).await
    }

    /// A client's session goes on at another endpoint.
    pub(crate) fn leave_session(&self, session: SessionKey) {
        self.tasks.end_session(session);
        self.pool.leave_session(session);
    }

    /// Whether it has connections of clients.
    pub(crate) fn has_clients(&self) -> bool {
        self.pool.has_clients()
    }

    /// Facts about the server, for a later run.
    #[must_use]
    pub fn known(&self) -> Option<KnownServer> {
        self.pool.known()
    }

    /// Ends it without keeping it alive.
    #[must_use]
    pub fn life(&self) -> BackendLife {
        self.life.clone()
    }
}

/// The error of a server whose entry in the configuration needs a value that is not there.
fn incomplete(why: String) -> BackendError {
    let text = "put it there; a variable is set where Fanlight is started, which is then started again, or gets a default, as in \
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
    pub(crate) fn new(
        name: &Arc<str>,
        process_stop: Duration,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            name: Arc::clone(name),
            process_stop,
            shutdown,
            tasks: TaskTracker::new(),
        }
    }

    /// Runs a task that [`Self::stop`] waits for; it must end with the backend.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// The name that the configuration gives the backend.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until nothing uses the backend, or it has been stopped.
    pub async fn unused(&self) {
        self.shutdown.cancelled().await;
    }

    /// See [`Backend::stop`].
    pub async fn stop(&self) {
        self.end();
        if timeout(self.process_stop * STOP_STEPS, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(backend = self.name(), "backend did not stop in time");
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

    fn is_safe<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
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
        self.tasks.end_session(session);
        self.pool.end_session(session);
    }

    fn connection_made(
        &self,
        since: Option<Instant>,
    ) -> Pin<Box<dyn Future<Output = Instant> + Send + '_>> {
        Box::pin(self.pool.connection_made(since))
    }

    fn session_choice(&self) -> Pending<'_, Option<String>> {
        Box::pin(self.pool.session_choice())
    }

    fn may_rest(&self) -> bool {
        self.pool.may_rest()
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
        // Others are not to wait for one that takes long to start.
        let is_slow =
            attempt.is_some_and(|attempt| attempt.elapsed() >= self.calls.timeouts.connect);
        BackendStatus {
            era: state.revision.map(Revision::era),
            revision: state.revision.map(Revision::as_str),
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
