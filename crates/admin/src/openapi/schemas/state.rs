//! The state of servers and of the process.

use utoipa::ToSchema;

/// What is wrong.
#[derive(ToSchema)]
pub(crate) struct Error {
    /// What is wrong, and what to do.
    error: String,
}

/// A server was switched or started.
#[derive(ToSchema)]
pub(crate) struct ServerChanged {
    server: String,
    /// What was done: the action.
    done: String,
}

/// A session was ended.
#[derive(ToSchema)]
pub(crate) struct SessionEnded {
    /// The digest of its id.
    session: String,
    /// `end`.
    done: String,
}

/// The overview.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Overview {
    uptime_seconds: f64,
    /// When the process started.
    started_ms: f64,
    version: String,
    /// The URL of the endpoint for clients, or `stdio`.
    endpoint: String,
    /// Whether requests of clients can be served.
    ready: bool,
    /// Sessions of clients.
    sessions: u64,
    /// Calls that wait for input of their client.
    suspended_calls: u64,
    /// Streams on which clients only listen.
    streams: u64,
    /// Traces in the ring; absent if there is none.
    #[schema(nullable = false)]
    traces: Option<u64>,
    /// Bytes of the ring; absent if there is none.
    #[schema(nullable = false)]
    trace_bytes: Option<u64>,
    page: Page,
    backends: Vec<Backend>,
}

/// When the page asks again.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Page {
    refresh_ms: f64,
    lists_ms: f64,
}

/// A server.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Backend {
    name: String,
    /// `idle`, `connecting`, `ready`, `ejected`, `down` or `failed`.
    state: String,
    /// `stdio`, `http` or `sse`.
    transport: String,
    /// `legacy` or `modern`.
    #[schema(required = true)]
    era: Option<String>,
    #[schema(required = true)]
    revision: Option<String>,
    /// Why it cannot be used.
    #[schema(required = true)]
    error: Option<String>,
    /// The attempt to connect that is being made.
    #[schema(required = true)]
    starting: Option<Starting>,
    /// Why the last attempt to connect failed, until one succeeds.
    #[schema(required = true)]
    failure: Option<Failure>,
    #[schema(required = true)]
    last_error: Option<LastError>,
    /// Messages sent to it that have ended.
    requests: u64,
    errors: u64,
    /// Estimated from the buckets of a histogram.
    #[schema(required = true)]
    median_ms: Option<f64>,
    #[schema(required = true)]
    p95_ms: Option<f64>,
    /// Starts of its process after the first.
    restarts: u64,
    /// Connections after the first.
    reconnects: u64,
    /// Attempts to connect that failed.
    failed_connections: u64,
}

/// The servers.
#[derive(ToSchema)]
pub(crate) struct Backends {
    backends: Vec<Backend>,
}

/// What is known of a server besides its state.
#[derive(ToSchema)]
pub(crate) struct BackendDetails {
    name: String,
    /// Its `initialize` or `server/discover` result, unchanged; null while it is not connected.
    #[schema(required = true, value_type = Option<Object>)]
    description: Option<serde_json::Value>,
    /// Its last 50 states, oldest first.
    history: Vec<StateChange>,
    /// Its processes that run, oldest first; none of servers that have a URL.
    processes: Vec<RunningProcess>,
}

/// A process of a server.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct RunningProcess {
    /// Its number in the log.
    process: u64,
    /// Its id in the system; on Linux that of the guard that has started it, and ends with it.
    #[schema(required = true)]
    id: Option<u32>,
    since_ms: f64,
}

/// A change of a server's state.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct StateChange {
    at_ms: f64,
    state: String,
    /// Why it cannot be used.
    #[schema(required = true)]
    error: Option<String>,
}

/// An attempt to connect that is being made.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Starting {
    /// When it began, in milliseconds since the Unix epoch.
    since: f64,
    /// For how long it has been made. Absent from event streams, since it always changes.
    #[schema(nullable = false)]
    seconds: Option<f64>,
    /// What the process wrote last.
    #[schema(required = true)]
    last_line: Option<String>,
}

/// A failed attempt to connect.
#[derive(ToSchema)]
struct Failure {
    what: String,
    /// `unreachable`, `timeout`, `starting`, `unauthorized` or `error`.
    kind: String,
    /// The last lines of its standard error.
    stderr: Vec<String>,
    /// Its last lines of standard output that were no messages.
    stdout: Vec<String>,
    /// What to do.
    #[schema(required = true)]
    remedy: Option<String>,
}

/// The newest failure in the ring of traces.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct LastError {
    r#type: String,
    at_ms: f64,
    trace_id: String,
}

/// The last lines of a server's processes.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ServerLog {
    name: String,
    dropped_lines: u64,
    lines: Vec<Line>,
}

/// The last lines of the processes of all servers.
#[derive(ToSchema)]
pub(crate) struct AllLogs {
    lines: Vec<Line>,
}

/// A line.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Line {
    /// The name of the server.
    server: String,
    at_ms: f64,
    /// Counts the starts of the server's processes.
    process: u64,
    /// `stderr` or `stdout`.
    stream: String,
    text: String,
}
