//! One instance of a server: its connections to one place with one set of credentials.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use fanlight_canonical::{
    BackendError, BackendState, BackendStatus, Call, CallContext, EndpointStatus, FailureDetails,
    LIST_SETTLE, Pending, Remedy, RemedyKind, place_of,
};
use fanlight_fair::limit;
use fanlight_http::client::{PoolSettings, TcpProbes};
use fanlight_protocol::{Method, Notification, Response, implementation};
use fanlight_telemetry::BackendTelemetry;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::load::Load;
use super::places::Place;
use crate::connection::attempt::Measured;
use crate::connection::supervised::Phase;
use crate::connection::supervisor::{ConnectSettings, Target};
use crate::health::{Health, Item};
use crate::process_log::ProcessLog;
use crate::repeats;
use crate::request::BackendContext;
use crate::sessions::dispatcher::Dispatcher;
use crate::sessions::{SessionPool, is_no_answer};
use crate::settings::{
    BackendSettings, KnownServer, Secret, SessionPolicy, TransportSettings, endpoint_of,
    process_stop,
};
use crate::subscriptions::{RegistrySettings, SessionSubscriptions, SubscriptionRegistry};
use crate::tasks::TaskTranslation;
use crate::tasks::owners::TaskOwners;
use crate::transport::http::HttpEndpoint;
use crate::transport::stdio::ProcessSettings;

/// The interval of TCP probes on a silent connection to a server; the third without an answer closes it.
const TCP_PROBE: Duration = Duration::from_secs(15);

/// How long TCP may leave bytes sent to a server unacknowledged, on Linux.
const TCP_UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// One instance of a server, kept connected. It ends when this is dropped.
pub(super) struct Instance {
    name: Arc<str>,
    /// The number of the instance, which is unique among the present and earlier instances of its
    /// group.
    pub(super) number: u64,
    /// Set for one of several endpoints.
    pub(super) place: Option<Place>,
    pub(super) load: Load,
    /// Whether the server no longer has the endpoint. It then gets only requests that belong to it.
    is_leaving: AtomicBool,
    /// The configured transport.
    transport: &'static str,
    pub(super) pool: Arc<SessionPool>,
    calls: Arc<Dispatcher>,
    pub(super) tasks: Arc<TaskTranslation>,
    _end: DropGuard,
}

/// The parts that the instances of a group have in common.
pub(super) struct Common {
    pub(super) telemetry: BackendTelemetry,
    /// The owners of the tasks at all endpoints.
    pub(super) owners: Arc<TaskOwners>,
    /// The sessions' subscriptions at all endpoints.
    pub(super) subscribed: Arc<SessionSubscriptions>,
    /// The output of processes besides messages.
    pub(super) process_log: Arc<ProcessLog>,
    /// The time of the last connection for lists.
    pub(super) connected: watch::Sender<Option<Instant>>,
    /// Notified when the state of an instance changes.
    pub(super) states: watch::Sender<()>,
    pub(super) tasks: TaskTracker,
    pub(super) shutdown: CancellationToken,
}

/// Whether one of several endpoints can take a call. The variants are ordered, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Readiness {
    /// The last calls got no answer; one call may try the endpoint again.
    Trial,
    Ready,
    /// The first connection is being made.
    Connecting,
    /// The endpoint is unreachable or must get no requests.
    Down,
}

impl Instance {
    /// Begins to connect in the background. `known` has facts about the server from an earlier run,
    /// which apply until there is a connection. `place` has the number and the location of one of
    /// several endpoints; the settings have its URL.
    pub(super) fn start(
        settings: BackendSettings,
        known: Option<KnownServer>,
        place: Option<(u64, Place)>,
        common: &Common,
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
            telemetry: recorder,
            handles,
            endpoints: _,
            repeats,
            is_asked_for_safe,
            names: _,
        } = settings;
        let name: Arc<str> = name.into();
        let (number, place) = place.unzip();
        let number = number.unwrap_or_default();
        let address = place.as_ref().and_then(|place| place.address);
        let (label, telemetry) = match &place {
            None => (Arc::clone(&name), common.telemetry.clone()),
            Some(place) => (
                format!("{name} ({place})").into(),
                common
                    .telemetry
                    .for_replica(&endpoint_of(&transport), address),
            ),
        };
        let (tasks, shutdown) = (common.tasks.clone(), common.shutdown.child_token());
        let (root, end) = (recorder.root(), shutdown.clone());
        let registry = RegistrySettings {
            limit: limits.subscriptions,
            tasks_of_session: limits.tasks.max(1),
            shared: sessions == SessionPolicy::Shared,
            settle: limit("listSettle", LIST_SETTLE),
            records: Arc::clone(&common.subscribed),
            unknown: None,
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
            process_log: Arc::clone(&common.process_log),
            memory: memory.server(&name),
            tasks,
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
                Target::Http(Arc::new(endpoint.recorded_by(&context.telemetry)))
            })
        };
        let sse_first = matches!(transport, TransportSettings::Sse { .. });
        let recorded_as = match &transport {
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
                let (name, grace) = (Arc::clone(&name), process_stop());
                (
                    "stdio",
                    Target::Stdio(Box::new(ProcessSettings {
                        name,
                        command,
                        args,
                        env,
                        cwd,
                        policy: processes,
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
        let connect = ConnectSettings {
            context: Arc::new(context),
            target,
            choice: era,
            timeouts,
            sse_first,
            own_info: implementation(),
            place: recorded_as,
            connected: match place {
                Some(_) => watch::Sender::default(),
                None => common.connected.clone(),
            },
            rests: AtomicBool::new(false),
            states: common.states.clone(),
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
            shutdown,
        );
        let calls = Arc::new(calls);
        let owners = (Arc::clone(&common.owners), number);
        let translation = TaskTranslation::new(Arc::clone(&calls), handles, owners);
        Arc::new(Self {
            name,
            number,
            place,
            load: Load::new(),
            is_leaving: AtomicBool::new(false),
            transport,
            pool,
            calls,
            tasks: translation,
            _end: end.drop_guard(),
        })
    }

    /// Sends the headers in `settings` from the next message on. The settings must be of the same
    /// server ([`BackendSettings::is_same_server`]); secrets in them may have been rotated.
    pub(super) fn use_credentials(&self, settings: &BackendSettings) {
        let (Target::Http(endpoint), Some(headers)) =
            (&self.pool.settings.target, settings.transport.headers())
        else {
            return;
        };
        if let Err(reason) = endpoint.replace_headers(headers) {
            tracing::warn!(backend = &*self.name, reason, "headers not replaced");
        }
        // The server may have refused the former ones.
        let _ = self.pool.base.resting_description();
    }

    /// Sends a request to one of several endpoints, and learns from the outcome. It was sent
    /// `earlier` times before.
    pub(super) async fn request(&self, call: Call, earlier: u32) -> Result<Response, BackendError> {
        if self.place.is_none() {
            return self.send(call, earlier).await;
        }
        let running = self.load.begin(Item::is_of(&call.method));
        let outcome = self.send(call, earlier).await;
        // Perhaps no call comes here for a while, and nothing else would notice the loss.
        if outcome
            .as_ref()
            .is_err_and(|error| error.is_unreachable() || *error == BackendError::ClosedEarly)
        {
            self.pool.health().doubt();
        }
        match &outcome {
            Ok(_) => running.end_answered(),
            Err(error) if is_no_answer(error) => running.end_failed(),
            Err(_) => drop(running),
        }
        outcome
    }

    /// Whether the server no longer has the endpoint.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(super) fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Relaxed);
    }

    /// Sends a request that was sent `earlier` times before.
    pub(super) fn send(&self, call: Call, earlier: u32) -> Pending<'_, Response> {
        if self.calls.may_concern_tasks(&call) {
            return Box::pin(self.tasks.request(call));
        }
        Box::pin(async move { self.calls.request(&call, earlier).await })
    }

    /// Whether repeating the request is harmless. A call that may make a task is not: nobody would
    /// know of the first task. A tool counts by its hint in a list that is at most `oldest` old;
    /// the list is read if necessary.
    pub(super) async fn does_no_harm(&self, call: &Call, oldest: Duration) -> bool {
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
        let Some((base, name)) = self.pool.base.connection().zip(name) else {
            return false;
        };
        !self.calls.may_concern_tasks(call) && base.is_repeatable(&name, oldest).await
    }

    /// Whether a request that may have run may be repeated. Asks the server's current tool list,
    /// and waits for a reconnect if necessary.
    pub(super) async fn may_repeat(&self, call: &Call) -> bool {
        let reads = call.method != Method::CallTool;
        (reads
            || self
                .pool
                .base
                .ready(self.calls.timeouts.connect)
                .await
                .is_ok())
            && self.does_no_harm(call, Duration::ZERO).await
    }

    /// Whether a call could be sent now.
    pub(super) fn readiness(&self) -> Readiness {
        match &self.pool.base.state.borrow().phase {
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
    pub(super) fn is_connected(&self) -> bool {
        self.pool.base.connection().is_some()
    }

    /// The time of its last connection.
    pub(super) fn connected(&self) -> Option<Instant> {
        *self.pool.settings.connected.borrow()
    }

    /// Forwards a notification of a client.
    pub(super) async fn notify(
        &self,
        notification: &Notification,
        client: &CallContext,
    ) -> Result<(), BackendError> {
        let Some(lease) = self.pool.session_lease(client) else {
            self.pool.tell_later(client, notification);
            return Ok(());
        };
        let Some(request) = &client.request else {
            return lease.connection.notify(notification).await;
        };
        match request
            .ids_at(&self.name)
            .and_then(|named| named.rename(notification))
        {
            Some(renamed) => lease.connection.notify(&renamed).await,
            None => Ok(()),
        }
    }

    /// The status of one of several endpoints.
    pub(super) fn endpoint_status(&self) -> Option<EndpointStatus> {
        Some(EndpointStatus {
            place: self.place.as_ref()?.to_string(),
            state: self.status().state,
            running: self.load.running_count(),
            latency: self.load.latency(),
            is_leaving: self.is_leaving(),
        })
    }

    /// The state of its own connection.
    pub(super) fn status(&self) -> BackendStatus {
        let state = self.pool.base.state.borrow();
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
            starting: attempt
                .map(|attempt| attempt.starting(&self.pool.settings.context.process_log)),
            failure: match &state.phase {
                Phase::Connecting { after: error, .. } => error.clone(),
                Phase::Down { error, .. } => Some(error.clone()),
                Phase::Idle | Phase::Ready(_) | Phase::Stopped => None,
            },
            state: match &state.phase {
                Phase::Ready(connection) if !connection.is_lost() => {
                    match self.pool.health().refusal_reason() {
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
