//! What a config file says, checked and complete: the types the rest of Fanlight reads. They know nothing of files.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::limits::{Limits, Timeouts};

/// A checked configuration, defaults filled in.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the HTTP front listens.
    pub listen: SocketAddr,
    /// Path of the MCP endpoint; starts with `/`.
    pub path: String,
    /// Where the deprecated HTTP+SSE transport is served; starts with `/`. Absent when it is switched off.
    pub sse_path: Option<String>,
    /// The admin listener.
    pub admin: Admin,
    /// Values of `Origin` that are answered, as `scheme://host[:port]` in lower case without a default port, or `*`.
    /// Empty means loopback origins only.
    pub allowed_origins: Vec<String>,
    /// Values of `Host` that are answered, as `host` (any port) or `host:port` in lower case, or `*`.
    /// Empty means loopback names and the listen address.
    pub allowed_hosts: Vec<String>,
    /// The keys that seal cursors and `requestState`: the first seals, all open. None means a new one at each start.
    pub keys: Vec<SealKey>,
    /// What is recorded of requests, and where it goes.
    pub telemetry: Telemetry,
    /// Bounds on size and number.
    pub limits: Limits,
    /// Bounds on time.
    pub timeouts: Timeouts,
    /// The backends in the order of the file, disabled ones included.
    pub servers: Vec<Server>,
}

impl Default for Config {
    /// What a file without any field but its servers says.
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            listen: loopback(8080),
            path: "/mcp".to_owned(),
            sse_path: Some("/sse".to_owned()),
            admin: Admin { listen: Some(loopback(8081)), is_default: true, token: None },
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            keys: Vec::new(),
            telemetry: Telemetry::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            servers: Vec::new(),
        }
    }
}

/// The admin listener, which serves `/healthz`, `/readyz`, `/metrics`, `/api` and `/ui`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens; absent when it is switched off.
    pub listen: Option<SocketAddr>,
    /// Whether the file leaves open where. `fanlight stdio` listens only where it is told to.
    pub is_default: bool,
    /// What whoever asks has to know; there is one unless `listen` is a loopback address.
    pub token: Option<Secret>,
}

impl Admin {
    /// Whether an address may be listened on: without a token, only one that is reached from this machine alone.
    pub fn may_listen(&self, address: SocketAddr) -> bool {
        self.token.is_some() || address.ip().to_canonical().is_loopback()
    }
}

/// What is recorded of requests, and where it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// Base URL of a collector that takes OTLP; goes before the `OTEL_*` variables.
    pub endpoint: Option<String>,
    /// How to speak to the collector; goes before the `OTEL_*` variables.
    pub protocol: Option<OtlpChoice>,
    /// `service.name`, unless `OTEL_SERVICE_NAME` says another.
    pub service_name: Option<String>,
    /// What the trace context of clients is worth.
    pub trust_inbound: TrustChoice,
}

/// How OTLP travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpChoice {
    /// Over HTTP, in Protobuf.
    HttpProtobuf,
    /// Over gRPC.
    Grpc,
}

/// What the trace context of clients is worth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrustChoice {
    /// It is the parent.
    #[default]
    True,
    /// A trace of Fanlight's own begins, with a link to it.
    Link,
    /// A trace of Fanlight's own begins.
    Ignore,
}

/// One backend.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its key in the file; unique, not empty.
    pub name: String,
    /// Whether it takes part.
    pub enabled: bool,
    /// How it is reached.
    pub transport: Transport,
    /// What its tool and prompt names start with; absent means `<name>__`.
    pub prefix: Option<String>,
    /// Which era it is spoken to in.
    pub era: EraChoice,
    /// Whether clients share one session with it, or one process; legacy era only.
    pub session: SessionChoice,
    /// Bound on a whole call.
    pub timeout: Duration,
    /// Bound on its running calls.
    pub concurrency: usize,
    /// Which of its tools are offered.
    pub tools: ToolFilter,
    /// Whether trace context goes out to it.
    pub forwards_trace_context: bool,
    /// Whether arguments and results of its tools are recorded.
    pub records_content: bool,
}

impl Server {
    /// An enabled backend with every option at its default.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            enabled: true,
            transport,
            prefix: None,
            era: EraChoice::Auto,
            session: SessionChoice::PerClient,
            timeout: Timeouts::default().call,
            concurrency: Limits::default().concurrency,
            tools: ToolFilter::default(),
            forwards_trace_context: true,
            records_content: false,
        }
    }
}

/// How a backend is reached. `Debug` shows no argument, no value of a variable or header, and no URL path.
#[derive(Clone)]
pub enum Transport {
    /// A child process that speaks over its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables set besides the inherited ones, in the order of the file.
        env: Vec<(String, Secret)>,
        /// Its folder; a relative one in the file is relative to the file's folder.
        cwd: Option<PathBuf>,
    },
    /// A Streamable HTTP server.
    Http {
        /// Its endpoint; `http` or `https`, with a host.
        url: String,
        /// Headers sent with each request, in the order of the file; names and values are valid, names in lower case.
        headers: Vec<(String, Secret)>,
    },
    /// A server of the deprecated HTTP+SSE transport of 2024-11-05.
    Sse {
        /// Where its event stream is; as for [`Transport::Http`].
        url: String,
        /// Headers sent with each request; as for [`Transport::Http`].
        headers: Vec<(String, Secret)>,
    },
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &format_args!("[{} hidden]", args.len()))
                .field("env", env)
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers } => f
                .debug_struct("Http")
                .field("url", &format_args!("{}", url_without_secrets(url)))
                .field("headers", headers)
                .finish(),
            Self::Sse { url, headers } => f
                .debug_struct("Sse")
                .field("url", &format_args!("{}", url_without_secrets(url)))
                .field("headers", headers)
                .finish(),
        }
    }
}

/// The era of a backend, when the file fixes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// Found by asking.
    #[default]
    Auto,
    /// `initialize` and sessions.
    Legacy,
    /// Stateless, with `server/discover`.
    Modern,
}

/// Whether clients share a session with a legacy backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SessionChoice {
    /// Each client session has a session of its own with the backend; over stdio a process of its own.
    #[default]
    PerClient,
    /// All share one, over which the backend can ask no client anything.
    Shared,
}

/// Which tools of a backend are offered. Patterns match the backend's own names; `*` stands for any characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// When present, only these are offered.
    pub allow: Option<Vec<String>>,
    /// These are not offered, even when allowed.
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// Whether a tool of this name is offered.
    pub fn permits(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        self.allow.as_deref().is_none_or(any) && !any(&self.deny)
    }
}

/// Text that is never shown: `Debug` and `Display` print `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for its one use.
    pub fn expose(&self) -> &str {
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

/// A 256-bit key that seals what clients carry; `Debug` prints `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for their one use.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Scheme and authority of a URL, without user information; paths and queries of MCP endpoints often hold tokens.
pub(crate) fn url_without_secrets(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(url) => format!("{}/***", url.origin().ascii_serialization()),
        Err(_) => "***".to_owned(),
    }
}

/// Whether a pattern with `*` matches the whole of a name. Time is at most the product of both lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    // Each part but the last is best found as early as possible; the last must end the name.
    let mut rest = rest;
    while let Some((part, after)) = rest.split_once('*') {
        let Some(at) = name.find(part) else {
            return false;
        };
        name = name.get(at + part.len()..).unwrap_or_default();
        rest = after;
    }
    name.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("read", "read"),
            ("*", ""),
            ("*", "anything"),
            ("read_*", "read_"),
            ("*_file", "read_file"),
            ("a*b*c", "a-b-b-c"),
            ("*b*b*", "bb"),
            ("**", "x"),
            ("é*", "éa"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("read", "read_file"),
            ("read", "Read"),
            ("", "x"),
            ("*_file", "read_files"),
            ("a*a", "a"),
            ("*b*b*", "b"),
            ("ab*bc", "abc"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn deny_wins_and_an_empty_allow_list_permits_nothing() {
        let all = ToolFilter::default();
        assert!(all.permits("anything"));
        let none = ToolFilter { allow: Some(Vec::new()), deny: Vec::new() };
        assert!(!none.permits("anything"));
        let some = ToolFilter { allow: Some(vec!["read_*".to_owned()]), deny: vec!["*_all".to_owned()] };
        assert!(some.permits("read_one"));
        assert!(!some.permits("read_all"));
        assert!(!some.permits("write_one"));
    }

    #[test]
    fn debug_shows_no_secret() {
        let stdio = Transport::Stdio {
            command: "run".to_owned(),
            args: vec!["--key=s3cret".to_owned()],
            env: vec![("TOKEN".to_owned(), Secret::new("s3cret"))],
            cwd: None,
        };
        let http = Transport::Http {
            url: "https://me:s3cret@host/s3cret?key=s3cret".to_owned(),
            headers: vec![("authorization".to_owned(), Secret::new("s3cret"))],
        };
        let shown = format!("{stdio:?} {http:?} {} {:?}", Secret::new("s3cret"), SealKey::new([7; 32]));
        assert!(!shown.contains("s3cret") && !shown.contains('7'), "{shown}");
        assert!(shown.contains("TOKEN") && shown.contains("https://host/***"), "{shown}");
    }
}
