//! The options of one server.

use std::path::PathBuf;
use std::time::Duration;

use fanlight_fair::limit;
use serde_json::json;

use super::auth::values::TEXT;
use super::endpoint::Results;
use super::headers::ForwardedHeaders;
use super::life::{FOLDER, START, SandboxOptions, StartChoice};
use super::limits::Timeouts;
use super::operators::{CONTENT, ContentChoice};
use super::policy::{AllowedClients, WHO};
use super::rewriting::{Argument, ArgumentKind, NEW_NAME, ToolOverride};
use super::server_auth::{ServerAuth, ServerAuthOption};
use super::tools::{Approval, EntryFilter, PatternMap};
use super::versions::OtherVersion;
use crate::definition::{Form, Visible};
use crate::option::{
    AllOrEach, Choice, Each, Flag, LONG_TIME, Maybe, NameMap, Nested, OneOrMany, OrOff, Parsed,
    Range, TIME, checked, count, options, time,
};
use crate::settings::{Endpoints, EraChoice, SessionPolicy, Transport, is_own_variable};

/// The longest name of a server, in characters.
pub(crate) const MAX_NAME: usize = 64;

options! {
    /// One server.
    pub struct Server: "server", "in a server";
    options {
        /// Whether the server is used.
        "enabled" => enabled: bool = true, Flag;
        /// The prefix of its tool and prompt names; may be empty. Default: the name and
        /// `naming.separator` if there are several servers or the naming style is `always`, else
        /// none.
        "prefix" => prefix: Option<String> = None, Maybe(PREFIX), example "web_";
        /// The protocol era in which Fanlight talks to the server; `auto` detects it.
        "era" => era: EraChoice = EraChoice::Auto, ERA;
        /// Whether each client session has its own session with a legacy server (over stdio, its
        /// own process), or all share one, over which the server cannot send requests to clients.
        /// `auto` means `per-client`, but clients of one principal share a process if the server
        /// shows that it has no session state; `fanlight check` gives the reason. A modern stdio
        /// server has no sessions: with authentication it has a process for each principal, unless
        /// this is `shared`.
        "session" => session: SessionPolicy = SessionPolicy::Auto, SESSION;
        /// Limit for a whole call. Default: `timeouts.call`.
        "timeout" => timeout: Duration = Timeouts::default().call, TIME;
        /// Limit on running calls.
        "concurrency" => concurrency: usize = limit("concurrency", 256), count(1, 100_000);
        /// The offered tools.
        "tools" => tools: EntryFilter = EntryFilter::default(), Nested::<EntryFilter>::KIND;
        /// The clients that may use it: `group:NAME`, `user:ISSUER#SUBJECT`, `scope:NAME` or `*`.
        /// Default: everybody. For others it has nothing.
        "allow" => allow: Option<Vec<AllowedClients>> = None, Maybe(WHO), example "[\"group:dev\"]";
        /// The clients that may use some of its tools, by patterns of the tools' own names. For
        /// others these tools do not exist.
        "allowTools" => allow_tools: Vec<(String, Vec<AllowedClients>)> = Vec::new(), PatternMap(NameMap(WHO)), example "{\"delete_*\": [\"group:admins\"]}";
        /// Words about it for policies: `resource.tags.contains("prod")`.
        "tags" => tags: Vec<String> = Vec::new(), OneOrMany(TEXT), example "[prod]";
        /// Calls of its tools that need an approval.
        "approval" => approval: Approval = Approval::default(), Nested::<Approval>::KIND;
        /// New names for its tools and prompts, by their own names.
        "rename" => renames: Vec<(String, String)> = Vec::new(), NameMap(NEW_NAME);
        /// Replaced parts of its tools' definitions, by the tools' own names.
        "override" => overrides: Vec<(String, ToolOverride)> = Vec::new(), NameMap(Nested::<ToolOverride>::KIND);
        /// Arguments of its tools that are fixed, have another default, or are hidden, by the
        /// tools' own names.
        "arguments" => arguments: Vec<(String, Vec<(String, Argument)>)> = Vec::new(), NameMap(NameMap(ArgumentKind));
        /// Variables of Fanlight's environment that its process inherits, besides PATH, HOME, USER,
        /// LOGNAME, SHELL, TERM, TMPDIR, TZ, LANG and LC_*. A `*` at the end stands for any text;
        /// `true` or a lone `*` means all variables. The process never gets secrets of Fanlight
        /// itself: `FANLIGHT_*`, the headers for the collector (`OTEL_EXPORTER_OTLP_HEADERS`), and,
        /// unless they are named in full, variables in Fanlight's own options.
        "inheritEnv" => inherit_env: Vec<String> = Vec::new(), AllOrEach { each: Each(VARIABLE), all: "*" }, example "[HTTPS_PROXY, NO_PROXY]";
        /// The start of its process: `eager` together with Fanlight, `lazy` on the first request
        /// that needs it. Default: together with Fanlight, unless its lists are known from
        /// `stateDir`. In either case Fanlight starts it again after it has ended.
        "start" => start: Option<StartChoice> = None, Maybe(START), example "# lazy";
        /// The time after which an unused process is ended: without a call, a subscription to a
        /// resource, or a task. Its lists remain, and the next call starts it again. Processes of
        /// client sessions end after 30 minutes without use instead. Null or `off` for never.
        "idle" => idle: Option<Duration> = None, OrOff(LONG_TIME), example "15m";
        /// The time limit for an attempt to connect. For a process: the time without any output on
        /// standard error. So a process that reports progress, such as an `npx` that installs a
        /// package, has up to 15 minutes. Default: 90 seconds for a `command`, 10 seconds
        /// for a `url`.
        "startTimeout" => start_timeout: Option<Duration> = None, Maybe(TIME), example "3m";
        /// The interval of looking up the hosts of its `url` or `urls`. Each found address is then
        /// an endpoint of the server. Default: one endpoint, wherever its host is at the moment.
        "resolve" => resolve: Option<Duration> = None, Maybe(RESOLVE), example "# 5s";
        /// `safe`: a broken request is sent once more if its method only reads, or if it calls a
        /// tool that declares that it changes nothing (`readOnlyHint`) or nothing more the second
        /// time (`idempotentHint`). At most one in five requests is repeated. Default: a request
        /// that may have run is never repeated.
        "retry" => repeats_safe: bool = false, RETRY;
        /// The version of it that serves a share of its clients. A principal stays at one version,
        /// and without authentication a session does.
        "canary" => canary: Option<OtherVersion> = None, Maybe(Nested::<OtherVersion>::KIND), example "# {server: search-v2, share: 0.1}";
        /// The server that gets copies of a share of its safe requests. The answers are compared and
        /// discarded.
        "mirror" => mirror: Option<OtherVersion> = None, Maybe(Nested::<OtherVersion>::KIND), example "# {server: search-next, share: 0.05}";
        /// A file with certificates (PEM) of authorities that are trusted for this server in
        /// addition to the system's; relative to the folder of this file.
        "caFile" => ca_file: Option<String> = None, Maybe(FOLDER), example "internal-ca.pem";
        /// Headers of clients' requests that it gets: a list, or a mapping of the clients' names to
        /// its own. Never credentials, nor what HTTP, MCP, tracing and Fanlight define. Lists are
        /// read without them. Answers to requests that have any are not kept for others.
        "forwardHeaders" => forward_headers: Vec<(String, String)> = Vec::new(), ForwardedHeaders, example "[X-Tenant]";
        /// The credentials that it gets. Default: those in `headers`.
        "auth" => auth: Option<ServerAuth> = None, Maybe(ServerAuthOption);
        /// Restrictions for its process; Linux only. A process whose sandbox the system cannot
        /// enforce is not started.
        "sandbox" => sandbox: SandboxOptions = SandboxOptions::default(), Nested::<SandboxOptions>::KIND;
        /// Shortens its large results for clients and keeps them whole for a while, unless the
        /// endpoint has `results` of its own.
        "results" => results: Option<Results> = None, Maybe(Nested::<Results>::KIND);
        /// The calls whose content traces keep, instead of `telemetry.content`. Of this and the
        /// endpoint's, the narrower holds. The content is exported, too.
        "content" => content: Option<ContentChoice> = None, Maybe(CONTENT), example "# errors";
    }
    keys {
        /// The program to start.
        "command" => Form::Text(Visible::FirstWord), example "npx";
        /// Its arguments.
        "args" => Form::Scalars, example "[-y, \"@modelcontextprotocol/server-everything\"]";
        /// Environment variables set for it. `${user:SERVER}` as a whole value is each user's own
        /// grant or deposited key for that server, and gives each user a process.
        "env" => Form::Pairs, example "{NODE_ENV: production}";
        /// A file with environment variables for it, one `NAME=value` per line; relative to the
        /// folder of this file. `env` overrides it.
        "envFile" => Form::Text(Visible::All), example "# github.env";
        /// Its working directory; relative to the folder of this file.
        "cwd" => Form::Text(Visible::All), example ".";
        /// Endpoint of a Streamable HTTP server; http or https.
        "url" => Form::Text(Visible::Authority), example "https://mcp.example.com/mcp";
        /// Instead of `url`: the URLs of a server with several equivalent endpoints. The first one
        /// is the server's own URL, for example for `auth`.
        "urls" => Form::Json(&["array"], Visible::Nothing), example "# [\"https://a.example.com/mcp\", \"https://b.example.com/mcp\"]";
        /// Headers sent to the server.
        "headers" => Form::Pairs, example "{Authorization: \"Bearer ${TOKEN}\"}";
    }
    fields {
        /// The server's key in the file; unique, not empty.
        name: String = String::new();
        /// The transport.
        transport: Transport = Transport::Http { url: String::new(), headers: Vec::new() };
        /// Its endpoints, if it has several.
        endpoints: Endpoints = Endpoints::default();
        /// The file with environment variables for it.
        env_file: Option<PathBuf> = None;
        /// Environment variables with each user's own value, each with the server for which the
        /// user has signed in or deposited a key: `${user:SERVER}`.
        user_env: Vec<(String, String)> = Vec::new();
    }
    aliases {
        /// The transport. Default: by `command` or `url`. `sse` is the deprecated HTTP+SSE
        /// transport, which is detected without it, too.
        "type" => Form::Choice(TYPES.to_vec());
        /// Another name of `url`.
        "serverUrl" => Form::Text(Visible::Authority);
        /// Another name of `url`.
        "httpUrl" => Form::Text(Visible::Authority);
        /// The opposite of `enabled`.
        "disabled" => Form::Flag;
        /// Tools added to `tools.deny`.
        "disabledTools" => Form::Texts(Visible::All);
        /// Tools added to `tools.deny`.
        "excludeTools" => Form::Texts(Visible::All);
        /// Another name of `tools.allow`.
        "includeTools" => Form::Texts(Visible::All);
    }
    foreign {
        "alwaysAllow", "autoApprove", "description", "dev", "gallery", "icon", "metadata", "oauth", "trust",
        "version",
    }
}

impl Server {
    /// Whether each principal has its own process of a modern server. A process with variables of
    /// its user is separate in any case.
    pub fn keeps_principals_apart(&self) -> bool {
        matches!(self.transport, Transport::Stdio { .. })
            && self.session != SessionPolicy::Shared
            && self.era != EraChoice::Legacy
            && self.user_env.is_empty()
    }

    /// An enabled server with every option at its default.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            ..Self::default()
        }
    }

    /// All URLs of the server.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        let url = match &self.transport {
            Transport::Http { url, .. } | Transport::Sse { url, .. } => Some(url.as_str()),
            Transport::Stdio { .. } | Transport::Incomplete { .. } => None,
        };
        url.into_iter()
            .chain(self.endpoints.urls.iter().map(String::as_str))
    }
}

/// Values of `type`. The first is for `command`, the others are for `url`.
pub(crate) const TYPES: &[&str] = &["stdio", "http", "streamable-http", "streamableHttp", "sse"];

const ERA: Choice<EraChoice> = Choice(&[
    ("auto", EraChoice::Auto),
    ("legacy", EraChoice::Legacy),
    ("modern", EraChoice::Modern),
]);

const SESSION: Choice<SessionPolicy> = Choice(&[
    ("auto", SessionPolicy::Auto),
    ("per-client", SessionPolicy::PerClient),
    ("shared", SessionPolicy::Shared),
]);

const RETRY: Choice<bool> = Choice(&[("off", false), ("safe", true)]);

/// The shortest interval is faster than the changes of most networks' name servers.
const RESOLVE: Range<Duration> = time(Duration::from_secs(1), Duration::from_secs(3600));

const VARIABLE: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let name = text.value.strip_suffix('*').unwrap_or(&text.value);
        if text.value.is_empty()
            || name.contains(['=', '*', '\0'])
            || name.contains(char::is_whitespace)
        {
            let help = "write the name of a variable, such as `HTTPS_PROXY`; `*` only at the end";
            reader.refuse(&text, "is not the name of a variable", help);
            return None;
        }
        if is_own_variable(name) {
            let help = "remove it; give the server credentials of its own, in `env` or `envFile`";
            let fault = "is for Fanlight itself, whose secrets no server gets";
            reader.refuse(&text, fault, help);
            return None;
        }
        Some(text.value)
    },
    show: |name| json!(name),
};

const PREFIX: Parsed<String> = checked!(
    |text| !text.chars().any(|c| c.is_control() || c.is_whitespace()),
    "cannot start the name of a tool",
    "write letters, digits, `_` and `-` only, or nothing: `\"\"`"
);
