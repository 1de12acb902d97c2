//! The settings of a server: how to reach it, its era, and its limits.
//!
//! Plain structs; the configuration crate reads them and has the defaults. `Debug` shows no secret:
//! no header or environment value, no argument, and no URL path or query.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

pub use fanlight_canonical::RetryDelays;
use fanlight_canonical::{HandleSeal, LIST_BYTES, LIST_PAGES};
pub use fanlight_config::settings::{
    Endpoints, EraChoice, Landlock, Sandbox, Secret, SessionPolicy, Transport as TransportSettings,
};
pub(crate) use fanlight_config::settings::{origin_of, split_credentials};
use fanlight_fair::limit;
use fanlight_protocol::{ResultView as _, Revision, ServerDescription};
use fanlight_telemetry::{BackendInfo, BackendTelemetry, Endpoint, Telemetry};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::credentials::CredentialSource;
use crate::{MessageMemory, Repeats};

/// The settings of one server.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    /// The configured name, also used in logs.
    pub name: String,
    /// How to reach the server.
    pub transport: TransportSettings,
    /// The source of an HTTP server's credentials, besides the headers in `transport`.
    pub credentials: Option<Arc<dyn CredentialSource>>,
    /// A file with certificate authorities for this server, besides those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Headers of clients' requests that an HTTP server gets: the client's name in lower case, and
    /// the server's.
    pub forward_headers: Vec<(String, String)>,
    /// How to start the server's processes.
    pub processes: ProcessPolicy,
    /// The era to use with the server.
    pub era: EraChoice,
    /// Whether clients share a session at the server.
    pub sessions: SessionPolicy,
    /// How Fanlight notices that the server has stopped answering.
    pub health: HealthPolicy,
    /// Whether Fanlight itself reads the server's lists, for clients of all kinds. It then declares
    /// all client capabilities to a legacy server, and clients without capabilities and session
    /// share a separate session.
    pub catalogue: bool,
    /// Time limits.
    pub timeouts: BackendTimeouts,
    /// Limits of size and number.
    pub limits: BackendLimits,
    /// The memory for the messages of all servers.
    pub memory: MessageMemory,
    /// The recorder of traces and metrics.
    pub telemetry: Telemetry,
    /// Seals the ids of tasks that Fanlight makes for its clients.
    pub handles: Arc<HandleSeal>,
    /// The server's other endpoints, if it has several.
    pub endpoints: Endpoints,
    /// The budget for repeating safe requests that may have run; `None` never repeats.
    pub repeats: Option<Repeats>,
    /// Whether clients ask which requests are safe, although this server repeats none.
    pub is_asked_for_safe: bool,
    /// Resolves the host names of endpoints.
    pub names: Arc<dyn LookUp>,
}

impl BackendSettings {
    /// Whether these settings and `other` mean the same server, so that it need not be replaced.
    ///
    /// `catalogue` may differ: a connection keeps its declaration. So may secrets in headers
    /// ([`crate::Backend::use_credentials`]). Only the maker of `credentials` knows whether they
    /// have the same source.
    pub fn is_same_server(&self, other: &Self) -> bool {
        // All fields are named, so that a new setting cannot be forgotten.
        let Self {
            name,
            transport,
            credentials: _,
            ca_file,
            forward_headers,
            processes,
            era,
            sessions,
            health,
            catalogue: _,
            timeouts,
            limits,
            memory: _,
            telemetry: _,
            handles: _,
            endpoints,
            repeats,
            is_asked_for_safe,
            names: _,
        } = self;
        *name == other.name
            && transport.is_same_server(&other.transport)
            && *ca_file == other.ca_file
            && *forward_headers == other.forward_headers
            && *processes == other.processes
            && *era == other.era
            && *sessions == other.sessions
            && *health == other.health
            && *timeouts == other.timeouts
            && *limits == other.limits
            && *endpoints == other.endpoints
            && repeats.is_some() == other.repeats.is_some()
            && *is_asked_for_safe == other.is_asked_for_safe
    }
}

/// Facts about a server from an earlier run of Fanlight.
#[derive(Clone, Debug)]
pub struct KnownServer {
    /// The agreed revision.
    pub revision: Revision,
    /// The server's description of itself.
    pub description: ServerDescription,
}

impl PartialEq for KnownServer {
    fn eq(&self, other: &Self) -> bool {
        self.revision == other.revision && self.description.json() == other.description.json()
    }
}

/// The attributes of spans and the counters of the server called `name`.
pub(crate) fn telemetry_of(
    telemetry: &Telemetry,
    name: &str,
    transport: &TransportSettings,
) -> BackendTelemetry {
    telemetry.backend(BackendInfo {
        name: name.to_owned(),
        endpoint: endpoint_of(transport),
    })
}

/// The server's address in spans.
pub(crate) fn endpoint_of(transport: &TransportSettings) -> Endpoint {
    match transport {
        TransportSettings::Stdio { .. }
        | TransportSettings::Incomplete {
            is_process: true, ..
        } => Endpoint::Stdio,
        TransportSettings::Incomplete { .. } => Endpoint::Http {
            host: String::new(),
            port: 0,
        },
        TransportSettings::Http { url, .. } | TransportSettings::Sse { url, .. } => {
            let url = reqwest::Url::parse(url).ok();
            let host = url
                .as_ref()
                .and_then(|url| url.host_str())
                .unwrap_or_default()
                .to_owned();
            Endpoint::Http {
                host,
                port: url
                    .and_then(|url| url.port_or_known_default())
                    .unwrap_or_default(),
            }
        }
    }
}

/// How child processes are started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessPolicy {
    /// Variables of Fanlight's environment that a process inherits besides the common ones. A `*`
    /// at the end of a name stands for any text.
    pub inherit_env: Vec<String>,
    /// Variables of Fanlight's own options. No pattern with `*` passes them on.
    pub own_variables: Vec<String>,
    /// The program that starts a process and ends it with all its descendants, as `<guard>
    /// child-guard <name>` (`fanlight-child-guard`). Without it, only the process group is ended.
    pub guard: Option<PathBuf>,
    /// The restrictions of each process; they need the guard.
    pub sandbox: Sandbox,
    /// The clients that the process of a modern server serves.
    pub serves: Serves,
    /// The only principal of its processes, for operators.
    pub owner: Option<String>,
    /// Whether the first request starts the first process, which otherwise starts at once.
    pub starts_on_demand: bool,
    /// Whether lists outlast Fanlight: until the process has started, lists of an earlier run are
    /// served.
    pub keeps_lists: bool,
    /// Whether the process rests while its lists are known. The first request that needs it then
    /// starts it.
    pub rests_while_known: bool,
    /// The idle time after which Fanlight's own process ends; `None` for never.
    pub idle: Option<Duration>,
}

/// The clients that the process of a modern server serves. Such a server has no sessions to
/// separate clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serves {
    /// All clients.
    #[default]
    Everybody,
    /// Lists only, which are the same for all. Each authenticated client has a process for its
    /// other requests.
    Lists,
    /// One authenticated client; another process serves lists.
    One,
}

/// How Fanlight notices that a server has stopped answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthPolicy {
    /// The interval between checks; `None` for checks only after failing calls.
    pub interval: Option<Duration>,
    /// The time limit of a check.
    pub timeout: Duration,
    /// The number of calls that time out in a row before the server is checked.
    pub timeouts: usize,
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self {
            interval: None,
            timeout: limit("healthTimeout", Duration::from_secs(5)),
            timeouts: limit("healthTimeouts", 3),
        }
    }
}

/// Time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendTimeouts {
    /// A request's wait for a connection in progress.
    pub connect: Duration,
    /// An attempt to connect, with probe and handshake. For a process, this limits the time without
    /// output on standard error: a process that writes is being installed, or explains the delay.
    pub start: Duration,
    /// The wait for the answer that shows the era; within `start`.
    pub probe: Duration,
    /// A whole call, including the wait for a connection and a permit. Paused while the server
    /// waits for a client's answer.
    pub call: Duration,
    /// The client's answer to a server's request during a call.
    pub question: Duration,
    /// The idle time after which a client's own session is closed.
    pub session_idle: Duration,
    /// How long to wait for a task's end, and to remember a task without requests.
    pub task: Duration,
    /// The pause after a failed attempt to connect, until a request can start the next.
    pub reconnect_on_demand: Duration,
    /// The pauses between attempts to connect or to open a stream.
    pub reconnect: RetryDelays,
    /// Fanlight's own message before or after a call, such as a cancellation.
    pub own_message: Duration,
}

impl Default for BackendTimeouts {
    fn default() -> Self {
        Self {
            connect: limit("connect", Duration::from_secs(10)),
            start: Duration::from_secs(10),
            probe: limit("probe", Duration::from_secs(3)),
            call: Duration::from_secs(300),
            question: limit("clientAnswer", Duration::from_secs(600)),
            session_idle: Duration::from_secs(30 * 60),
            task: Duration::from_secs(3600),
            reconnect_on_demand: limit("reconnectOnCall", Duration::from_secs(1)),
            reconnect: RetryDelays {
                shortest: limit("reconnect", Duration::from_millis(500)),
                longest: limit("reconnectMax", Duration::from_secs(30)),
            },
            own_message: Duration::from_secs(5),
        }
    }
}

/// The longest attempt to start a process, however much it writes.
pub(crate) fn start_total() -> Duration {
    limit("startTotal", Duration::from_secs(15 * 60))
}

/// The time for each step of ending a process: by itself, after SIGTERM, after SIGKILL.
pub(crate) fn process_stop() -> Duration {
    limit("processStop", Duration::from_secs(2))
}

/// The least and the greatest `retry` that is taken from a server's event stream.
pub(crate) fn server_retry() -> RetryDelays {
    RetryDelays {
        shortest: limit("sseRetryMin", Duration::from_millis(100)),
        longest: limit("sseRetryMax", Duration::from_secs(60)),
    }
}

/// The time for opening the GET stream of a legacy server, before calls are sent and subscriptions are made without it.
pub(crate) fn stream_opening() -> Duration {
    limit("streamOpening", Duration::from_secs(2))
}

/// The longest pause that a server may ask for before the next attempt. A constant: it only limits
/// the harm of a wrong `Retry-After`.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// A connection that lasts this long did not fail at its start.
pub(crate) const STABLE_CONNECTION: Duration = Duration::from_secs(5);

/// The time for delivering a client's answer to the server that asked for it.
pub(crate) const DELIVERY: Duration = Duration::from_secs(30);

/// The intervals for polling a task, and the tolerated failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PollIntervals {
    /// The default interval; a server may suggest another.
    pub(crate) usual: Duration,
    /// The shortest suggestion that is followed.
    pub(crate) shortest: Duration,
    /// The longest suggestion that is followed.
    pub(crate) longest: Duration,
    /// The number of tolerated failures in a row.
    pub(crate) failures: usize,
}

impl Default for PollIntervals {
    fn default() -> Self {
        Self {
            usual: Duration::from_secs(1),
            shortest: limit("taskPollMin", Duration::from_millis(50)),
            longest: limit("taskPollMax", Duration::from_secs(30)),
            failures: limit("taskPollFailures", 14),
        }
    }
}

/// Limits of size and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendLimits {
    /// Running calls; as many more may wait.
    pub concurrency: usize,
    /// Sessions of clients, besides Fanlight's own.
    pub sessions: usize,
    /// Additional sessions that each belong to one running or suspended request; further ones count
    /// towards `sessions`.
    pub request_sessions: usize,
    /// Resources that clients are subscribed to at the same time, and as many tasks.
    pub subscriptions: usize,
    /// Bytes of one message: a line, an event or a body.
    pub message_bytes: usize,
    /// Bytes of memory that all servers together keep for a moment for the next long bodies.
    pub spare_bytes: usize,
    /// Tasks that are remembered for translation between the two task dialects, and as many waits
    /// for a task.
    pub tasks: usize,
    /// Bytes of results that are kept as tasks.
    pub task_bytes: usize,
    /// Bytes of the state of tasks besides their results, in each table of a server. Most of it is
    /// clients' capabilities.
    pub task_state_bytes: usize,
}

impl Default for BackendLimits {
    fn default() -> Self {
        Self {
            concurrency: 256,
            sessions: 64,
            request_sessions: 0,
            subscriptions: 10_000,
            message_bytes: limit("message", 64 << 20),
            spare_bytes: 32 << 20,
            tasks: limit("tasks", 10_000),
            task_bytes: 64 << 20,
            task_state_bytes: 16 << 20,
        }
    }
}

/// The most pages of a tool list that are read to make calls.
pub(crate) fn list_pages() -> usize {
    limit("listPages", LIST_PAGES)
}

/// The most bytes of a tool list that are read to make calls.
pub(crate) fn list_bytes() -> usize {
    limit("listBytes", LIST_BYTES)
}

/// The most bytes that are kept of the output of a server's processes, apart from messages.
pub(crate) fn process_log_kept() -> usize {
    limit("processLogKept", 256 << 10)
}

/// The most bytes of a client's capabilities, and of its information. A client with more declares none to legacy servers.
pub(crate) const CLIENT_DESCRIPTION: usize = 128 << 10;

/// The most requests of the server that one call may have open.
pub(crate) const OPEN_SERVER_REQUESTS: usize = 16;

/// Resolves host names.
pub trait LookUp: fmt::Debug + Send + Sync {
    /// All addresses of `host`, with this port.
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct SystemNames;

impl LookUp for SystemNames {
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
    }
}
