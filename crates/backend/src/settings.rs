//! The settings of a backend: how to reach it, its era, and its limits.
//!
//! Plain structs; the configuration crate reads them and has the defaults. `Debug`
//! shows no secret: no header or environment value, no argument, and no URL path or query.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::HandleSeal;
pub use fanlight_canonical::RetryDelays;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::result::{ResultView as _, ServerDescription};
use fanlight_protocol::{Json, Revision};
pub(crate) use fanlight_settings::origin_of;
pub use fanlight_settings::{
    EndpointUrl, Endpoints, EraChoice, Landlock, Sandbox, Secret, SessionPolicy,
    Transport as TransportSettings,
};
use fanlight_telemetry::{
    BackendInfo, BackendTelemetry, ContentPolicy, Endpoint, Telemetry, TraceContextPolicy,
};

use crate::credentials::CredentialSource;
use crate::memory::MessageMemory;
use crate::names::LookUp;
use crate::repeats::Repeats;

/// One backend.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    /// The name the configuration gives it; it is used in logs.
    pub name: String,
    /// How it is reached.
    pub transport: TransportSettings,
    /// What an HTTP server is shown besides the headers of `transport`.
    pub credentials: Option<Arc<dyn CredentialSource>>,
    /// The file with certificates of authorities, besides those that the system trusts, that its own may come from.
    pub ca_file: Option<PathBuf>,
    /// How its processes are started.
    pub processes: ProcessPolicy,
    /// In which era it is spoken to.
    pub era: EraChoice,
    /// Whether clients share a session with it.
    pub sessions: SessionPolicy,
    /// How Fanlight notices that it has stopped answering.
    pub health: HealthPolicy,
    /// Whether its lists are read by Fanlight itself, for clients of all kinds. Fanlight then declares to a legacy server the capabilities that some client may have, and clients that have
    /// none, and no session, share a session of their own.
    pub catalogue: bool,
    /// Bounds on time.
    pub timeouts: BackendTimeouts,
    /// Bounds on size and number.
    pub limits: BackendLimits,
    /// The memory for what all servers send.
    pub memory: MessageMemory,
    /// The name and version of Fanlight.
    pub identity: Identity,
    /// What is recorded of it.
    pub telemetry: TelemetrySettings,
    /// Seals the ids of the tasks that Fanlight makes for its clients.
    pub handles: Arc<HandleSeal>,
    /// Where else it can be reached, if it has several endpoints.
    pub endpoints: Endpoints,
    /// If safe requests that may have run are sent once more: how often.
    pub repeats: Option<Repeats>,
    /// Whether it is asked which requests are safe though it repeats none.
    pub is_asked_for_safe: bool,
    /// Finds the addresses of endpoints.
    pub names: Arc<dyn LookUp>,
}

impl BackendSettings {
    /// Whether a backend with these settings does not differ from one with `other`, so that it need not be replaced.
    ///
    /// `catalogue` may differ: what a connection declares stays as it was when it was made. So may secrets that headers
    /// refer to ([`crate::Backend::use_credentials`]). Whether `credentials` come from the same place only their maker knows.
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        // Named one by one, so that a new setting cannot be forgotten.
        let Self {
            name,
            transport,
            credentials: _,
            ca_file,
            processes,
            era,
            sessions,
            health,
            catalogue: _,
            timeouts,
            limits,
            memory: _,
            identity,
            telemetry:
                TelemetrySettings {
                    telemetry: _,
                    trace_context,
                    content,
                },
            handles: _,
            endpoints,
            repeats,
            is_asked_for_safe,
            names: _,
        } = self;
        *name == other.name
            && transport.is_same_server(&other.transport)
            && *ca_file == other.ca_file
            && *processes == other.processes
            && *era == other.era
            && *sessions == other.sessions
            && *health == other.health
            && *timeouts == other.timeouts
            && *limits == other.limits
            && *identity == other.identity
            && *trace_context == other.telemetry.trace_context
            && *content == other.telemetry.content
            && *endpoints == other.endpoints
            && repeats.is_some() == other.repeats.is_some()
            && *is_asked_for_safe == other.is_asked_for_safe
    }
}

/// Facts about a server from an earlier run of Fanlight.
#[derive(Clone, Debug)]
pub struct KnownServer {
    /// The revision that was agreed on.
    pub revision: Revision,
    /// What the server said of itself.
    pub description: ServerDescription,
}

impl PartialEq for KnownServer {
    fn eq(&self, other: &Self) -> bool {
        self.revision == other.revision && self.description.json() == other.description.json()
    }
}

/// What is recorded of a backend.
#[derive(Clone, Debug)]
#[cfg_attr(any(test, feature = "test-support"), derive(Default))]
pub struct TelemetrySettings {
    /// What records it.
    pub telemetry: Telemetry,
    /// Whether trace context goes out to it.
    pub trace_context: TraceContextPolicy,
    /// The parts of tool calls that are recorded.
    pub content: ContentPolicy,
}

impl TelemetrySettings {
    /// The attributes of spans and counters of the backend called `name`.
    pub(crate) fn of(self, name: &str, transport: &TransportSettings) -> BackendTelemetry {
        let endpoint = endpoint_of(transport);
        let Self {
            telemetry,
            trace_context,
            content,
        } = self;
        telemetry.backend(BackendInfo {
            name: name.to_owned(),
            endpoint,
            trace_context,
            content,
        })
    }
}

/// How spans name where a server is.
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
    /// Variables of Fanlight's own environment that a process inherits besides the common ones; `*` at the end of a name
    /// stands for any text.
    pub inherit_env: Vec<String>,
    /// Variables that Fanlight's own options use, which no pattern with `*` passes on.
    pub own_variables: Vec<String>,
    /// The program that starts a process and ends it with all its descendants, as `<guard> child-guard <name>`
    /// (`fanlight-child-guard`); absent where only the process group is ended.
    pub guard: Option<PathBuf>,
    /// What each process is confined to; needs the guard.
    pub sandbox: Sandbox,
    /// Whose requests the process of a modern server serves.
    pub serves: Serves,
    /// Whether the first process is started by the first request, and not at once.
    pub starts_on_demand: bool,
    /// Whether its lists outlast Fanlight: those of an earlier run are served until it has been started.
    pub keeps_lists: bool,
    /// Whether it is not started while its lists are known. The first process is then started by the first request that
    /// needs it.
    pub rests_while_known: bool,
    /// How long Fanlight's own process is unused before it is ended; `None` for never.
    pub idle: Option<Duration>,
    /// Attempts to start it that fail in a row, before only a request has it tried again; 0 for no bound.
    pub max_failures: usize,
}

/// Whose requests the process of a modern server serves, which has no sessions to tell clients apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serves {
    /// Those of all clients.
    #[default]
    Everybody,
    /// Those for lists, which are the same for all. Each client that is authenticated has a process for its other requests.
    Lists,
    /// Those of one client that is authenticated, beside a process for lists.
    One,
}

/// How Fanlight notices that a server has stopped answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthPolicy {
    /// Between two checks; `None` for none besides those that calls give rise to.
    pub interval: Option<Duration>,
    /// The answer to a check.
    pub timeout: Duration,
    /// Calls in a row that time out before the server is checked.
    pub timeouts: usize,
}

/// Bounds on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendTimeouts {
    /// A request's wait for a connection that is being made.
    pub connect: Duration,
    /// An attempt to connect, with probe and handshake. Of a process, the time in which it writes nothing to standard
    /// error: one that does is being installed, or reports why it takes so long.
    pub start: Duration,
    /// A whole attempt to start a process, however much it writes.
    pub start_total: Duration,
    /// Waiting for the answer that tells the era; within `start`.
    pub probe: Duration,
    /// A whole call, with waiting for a connection and a permit. Does not run while the
    /// server waits for an answer of the client.
    pub call: Duration,
    /// A whole call, with the time of the client's answers; `call`, if that is longer.
    pub call_total: Duration,
    /// The client's answer to a request of the server during a call.
    pub question: Duration,
    /// A client's own session without a call; then it is closed.
    pub session_idle: Duration,
    /// Waiting for the end of a task, and remembering one without requests.
    pub task: Duration,
    /// Each step of ending a process: by itself, after SIGTERM, after SIGKILL.
    pub process_stop: Duration,
    /// The server's answer to the end of a session.
    pub session_end: Duration,
    /// An HTTP connection that no request uses; it is closed between half of this and this.
    pub idle_connection: Duration,
    /// The answer to a ping, which a process gets after a call has timed out.
    pub ping: Duration,
    /// Pause after a failed attempt to connect, before a request has the next one made.
    pub reconnect_on_demand: Duration,
    /// The same pause, where so many attempts have failed that none is made without a request.
    pub failed_retry: Duration,
    /// Pauses between attempts to connect, or to open a stream.
    pub reconnect: RetryDelays,
    /// Collecting the server's announcements of changes of one list.
    pub list_settle: Duration,
    /// Pauses before the event stream of a call is resumed, where the server names none.
    pub resume: RetryDelays,
    /// Bounds of the `retry` of the server's event streams.
    pub server_retry: RetryDelays,
    /// A connection that lasts this long did not fail at its start.
    pub stable_connection: Duration,
    /// How long a verdict on the era is taken as fresh: a request that the server rejects meanwhile is rejected for its own
    /// sake.
    pub era_recheck: Duration,
    /// A call's wait for an attempt to connect, where the last one failed; within `connect`.
    pub connect_on_call: Duration,
    /// A call's wait until the resources that clients listen to are subscribed to on its process.
    pub subscribe_on_call: Duration,
    /// The next message of a modern server whose request was refused.
    pub refused_request: Duration,
    /// The result of a task that has ended, before it is requested again; doubles each time.
    pub task_result: Duration,
    /// The first request to the client of a task that needs input.
    pub task_input: Duration,
    /// Opening the GET stream of a legacy server, before calls are sent and subscriptions are made without it.
    pub stream_opening: Duration,
    /// Delivering a client's answer to the server that asked for it.
    pub delivery: Duration,
    /// A message of Fanlight's own that prepares or follows a call, such as a cancellation.
    pub own_message: Duration,
    /// Polling of tasks.
    pub task_polls: PollIntervals,
    /// Interval of TCP probes on a silent connection.
    pub tcp_probe: Duration,
    /// How long sent bytes may stay unacknowledged.
    pub tcp_unacknowledged: Duration,
}

/// Polling of one task: the intervals, and the failures that are tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollIntervals {
    /// Where the server suggests none.
    pub usual: Duration,
    /// The least of its suggestions that is followed.
    pub shortest: Duration,
    /// The greatest.
    pub longest: Duration,
    /// Tolerated failures in a row.
    pub failures: usize,
}

/// Bounds on size and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendLimits {
    /// Running calls; as many may wait besides.
    pub concurrency: usize,
    /// Sessions of clients, besides the one that Fanlight itself uses.
    pub sessions: usize,
    /// Additional sessions that each belong to one running or suspended request; further ones count towards `sessions`.
    pub request_sessions: usize,
    /// Resources whose updates clients have subscribed to at the same time, and as many tasks.
    pub subscriptions: usize,
    /// Bytes of one message: a line, an event or a body.
    pub message_bytes: usize,
    /// Bytes that a process may write to its standard output, besides `message_bytes`, without a message among them.
    pub invalid_output: usize,
    /// Bytes that are read of its standard error a second.
    pub process_log: usize,
    /// Bytes that are kept of what its processes write besides messages.
    pub process_log_kept: usize,
    /// Levels of arrays and objects in one message.
    pub nesting: usize,
    /// Requests of the server that one call may have open.
    pub open_server_requests: usize,
    /// Inputs that one task may ask for while a call waits for it.
    pub task_inputs: usize,
    /// Attempts in a row to take up the broken event stream of a call that bring nothing at all.
    pub stream_attempts: usize,
    /// Pages of a tool list that are read in order to make calls.
    pub list_pages: usize,
    /// Entries of a tool list that are read in order to make calls.
    pub list_entries: usize,
    /// Bytes of memory that are kept for a moment for the next long bodies, by all backends together.
    pub spare_bytes: usize,
    /// Tasks remembered for translation between the two ways of speaking of them, and as many
    /// waits for a task.
    pub tasks: usize,
    /// Bytes of results that are kept as tasks.
    pub task_bytes: usize,
    /// Bytes of a client's capabilities, and of its information. A client with more declares none
    /// to legacy servers.
    pub client_description: usize,
    /// Parameters of one tool that are mirrored into headers. A tool with more is not listed.
    pub mirrored_params: usize,
    /// Bytes of a tool list that are read in order to make calls.
    pub list_bytes: usize,
    /// Requests to the client that the server may send during one call.
    pub server_requests: usize,
}

/// The name and version of Fanlight, as `clientInfo` and in `User-Agent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The program's name.
    pub name: String,
    /// The program's version.
    pub version: String,
}

impl Identity {
    /// The `Implementation` object of the protocol.
    pub(crate) fn to_json(&self) -> Json {
        let mut object = ObjectBuilder::new();
        object
            .string("name", &self.name)
            .string("version", &self.version);
        object.finish()
    }
}
