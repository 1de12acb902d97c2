//! The settings of a backend: how to reach it, its era, and its limits.
//!
//! Plain structs; the configuration crate reads them and has the defaults. `Debug`
//! shows no secret: no header or environment value, no argument, and no URL path or query.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_telemetry::{BackendInfo, BackendTelemetry, ContentPolicy, Endpoint, Telemetry, TraceContextPolicy};

/// One backend.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    /// The name the configuration gives it; it is used in logs.
    pub name: String,
    /// How it is reached.
    pub transport: TransportSettings,
    /// In which era it is spoken to.
    pub era: EraChoice,
    /// Whether clients share a session with it.
    pub sessions: SessionPolicy,
    /// Whether its lists are read by Fanlight itself, for clients of all kinds. Fanlight then declares to a legacy server the capabilities that some client may have, and clients that have
    /// none, and no session, share a session of their own.
    pub catalogue: bool,
    /// Bounds on time.
    pub timeouts: Timeouts,
    /// Bounds on size and number.
    pub limits: Limits,
    /// The name and version of Fanlight.
    pub identity: Identity,
    /// What is recorded of it.
    pub telemetry: TelemetrySettings,
}

/// What is recorded of a backend.
#[derive(Clone, Debug)]
#[cfg_attr(any(test, feature = "test-support"), derive(Default))]
pub struct TelemetrySettings {
    /// What records it.
    pub telemetry: Telemetry,
    /// Whether trace context goes out to it.
    pub trace_context: TraceContextPolicy,
    /// What of tool calls is recorded.
    pub content: ContentPolicy,
}

impl TelemetrySettings {
    /// What spans and counters of the backend called `name` need.
    pub(crate) fn of(self, name: &str, transport: &TransportSettings) -> BackendTelemetry {
        let endpoint = match transport {
            TransportSettings::Stdio { .. } => Endpoint::Stdio,
            TransportSettings::Http { url, .. } | TransportSettings::Sse { url, .. } => {
                let url = reqwest::Url::parse(url).ok();
                let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default().to_owned();
                Endpoint::Http { host, port: url.and_then(|url| url.port_or_known_default()).unwrap_or_default() }
            }
        };
        let Self { telemetry, trace_context, content } = self;
        telemetry.backend(BackendInfo { name: name.to_owned(), endpoint, trace_context, content })
    }
}

/// How a backend is reached.
#[derive(Clone)]
pub enum TransportSettings {
    /// A child process that speaks over its standard input and output.
    Stdio {
        /// The program, looked up in `PATH` if it has no slash.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables set besides those of Fanlight's own environment.
        env: Vec<(String, Secret)>,
        /// Its working directory; Fanlight's own if absent.
        cwd: Option<PathBuf>,
    },
    /// A Streamable HTTP server. One of the deprecated HTTP+SSE transport is recognised.
    Http {
        /// Its endpoint, `http` or `https`.
        url: String,
        /// Headers sent with each request. Those that the protocol itself defines are ignored.
        headers: Vec<(String, Secret)>,
    },
    /// A server that is said to be of the deprecated HTTP+SSE transport of 2024-11-05. Should it be
    /// none, it is reached as [`TransportSettings::Http`] is.
    Sse {
        /// Where its event stream is, `http` or `https`.
        url: String,
        /// Headers sent with each request. Those that the protocol itself defines are ignored.
        headers: Vec<(String, Secret)>,
    },
}

/// The era of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// In the one found by asking.
    #[default]
    Auto,
    /// With `initialize` and sessions.
    Legacy,
    /// Stateless, with `server/discover`.
    Modern,
}

/// Whether clients share a session with a legacy backend. A modern one has no sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionPolicy {
    /// Each client session has one of its own, over stdio a process of its own. Clients without a
    /// session share one with those that have the same capabilities.
    #[default]
    PerClient,
    /// All share one, which declares no capability.
    Shared,
}

/// Bounds on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A whole attempt to connect: start of the process, probe and handshake.
    pub connect: Duration,
    /// PendingCall for the answer that tells the era; within `connect`.
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
    /// Pause after a failed attempt to connect, before a request has the next one made.
    pub reconnect_on_demand: Duration,
    /// Pauses between attempts to connect, or to open a stream.
    pub reconnect: RetryDelays,
    /// Collecting the server's announcements of changes of one list.
    pub list_settle: Duration,
}

/// Pauses between attempts, which double from the shortest to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelays {
    /// After the first failure.
    pub shortest: Duration,
    /// After many.
    pub longest: Duration,
}

/// Bounds on size and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Running calls; as many may wait besides.
    pub concurrency: usize,
    /// Sessions of clients, besides the one that Fanlight itself uses.
    pub sessions: usize,
    /// Resources whose updates clients have subscribed to at the same time, and as many tasks.
    pub subscriptions: usize,
    /// Bytes of one message: a line, an event or a body.
    pub message_bytes: usize,
    /// Levels of arrays and objects in one message.
    pub nesting: usize,
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
    /// Bytes read of a tool list for the sake of calls.
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
        object.string("name", &self.name).string("version", &self.version);
        object.finish()
    }
}

/// Text that is never shown: `Debug` and `Display` print `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for its one use.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for TransportSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &format_args!("[{} hidden]", args.len()))
                .field("env", env)
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers } => {
                f.debug_struct("Http").field("url", &origin_of(url)).field("headers", headers).finish()
            }
            Self::Sse { url, headers } => {
                f.debug_struct("Sse").field("url", &origin_of(url)).field("headers", headers).finish()
            }
        }
    }
}

/// Scheme, host and port of a URL; user information, path and query may hold secrets.
pub(crate) fn origin_of(url: &str) -> String {
    match reqwest::Url::parse(url) {
        Ok(url) if url.has_host() => url.origin().ascii_serialization(),
        _ => "***".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let stdio = TransportSettings::Stdio {
            command: "run".into(),
            args: vec!["--key=s3cret".into()],
            env: vec![("TOKEN".into(), Secret::new("s3cret"))],
            cwd: None,
        };
        let http = TransportSettings::Http {
            url: "https://me:s3cret@host/s3cret?key=s3cret".into(),
            headers: vec![("authorization".into(), Secret::new("s3cret"))],
        };
        let shown = format!("{stdio:?} {http:?} {}", Secret::new("s3cret"));
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("TOKEN") && shown.contains("https://host"), "{shown}");
        assert_eq!(origin_of("not a url with s3cret"), "***");
    }
}
