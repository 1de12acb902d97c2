//! One backend.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::{Endpoints, EraChoice, SessionPolicy, Transport, is_own_variable};
use serde_json::json;

use super::auth::values::TEXT;
use super::life::{FOLDER, START, SandboxOptions, StartChoice};
use super::limits::{CONCURRENCY, Limits, Timeouts};
use super::policy::{AllowedClients, WHO};
use super::rewriting::{Argument, ArgumentKind, NEW_NAME, ToolOverride};
use super::server_auth::{ServerAuth, ServerAuthOption};
use super::tools::{Approval, PatternMap, ToolFilter};
use super::versions::{CanaryOptions, MirrorOptions};
use crate::definition::{Form, Visible};
use crate::option::kind::{
    Choice, Each, Flag, LONG_TIME, Maybe, Nested, OrOff, Parsed, Range, TIME, time,
};
use crate::option::map::NameMap;
use crate::option::several::{AllOrEach, OneOrMany};
use crate::option::{Options as _, options};

/// The longest name of a server, in characters.
pub(crate) const MAX_NAME: usize = 64;

options! {
    /// One backend.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Server: "server", "in a server";
    options {
        /// Whether the server is used.
        "enabled" => enabled: bool = true, Flag;
        /// The prefix of its tool and prompt names; may be empty. Default: the name and `naming.separator` if there are
        /// several servers or the naming style is `always`, else none.
        "prefix" => prefix: Option<String> = None, Maybe(PREFIX), example "web_";
        /// The protocol era in which Fanlight talks to the server; `auto` detects it.
        "era" => era: EraChoice = EraChoice::Auto, ERA;
        /// Whether each client session has its own session with a legacy server (over stdio its own process), or all
        /// share one, over which the server cannot send requests to clients. `auto` is `per-client`, except that
        /// clients of one principal share a process if the server shows that it has no session state; `fanlight check`
        /// says why. A modern server over stdio, which has no sessions, has a process for each principal where clients are
        /// authenticated, unless `shared` is written.
        "session" => session: SessionPolicy = SessionPolicy::Auto, SESSION;
        /// Limit for a whole call. Default: `timeouts.call`.
        "timeout" => timeout: Duration = Timeouts::default().call, TIME;
        /// Limit on running calls. Default: `limits.concurrency`.
        "concurrency" => concurrency: usize = Limits::default().concurrency, CONCURRENCY;
        /// The tools that are offered.
        "tools" => tools: ToolFilter = ToolFilter::default(), Nested::<ToolFilter>::KIND;
        /// Who may use anything of it: `group:NAME`, `user:ISSUER#SUBJECT`, `scope:NAME` or `*`. Default: everybody. For
        /// others it has nothing.
        "allow" => allow: Option<Vec<AllowedClients>> = None, Maybe(WHO), example "[\"group:dev\"]";
        /// Who may use some of its tools, by patterns of the tools' own names. For others these do not exist.
        "allowTools" => allow_tools: Vec<(String, Vec<AllowedClients>)> = Vec::new(), PatternMap(NameMap(WHO)), example "{\"delete_*\": [\"group:admins\"]}";
        /// Words about it for policies: `resource.tags.contains("prod")`.
        "tags" => tags: Vec<String> = Vec::new(), OneOrMany(TEXT), example "[prod]";
        /// Calls of its tools that run only if somebody agrees.
        "approval" => approval: Approval = Approval::default(), Nested::<Approval>::KIND;
        /// New names for its tools and prompts, by their own names.
        "rename" => renames: Vec<(String, String)> = Vec::new(), NameMap(NEW_NAME);
        /// Parts of the definitions of its tools that are replaced, by the tools' own names.
        "override" => overrides: Vec<(String, ToolOverride)> = Vec::new(), NameMap(Nested::<ToolOverride>::KIND);
        /// Arguments of its tools that are fixed, have another default, or are hidden, by the tools' own names.
        "arguments" => arguments: Vec<(String, Vec<(String, Argument)>)> = Vec::new(), NameMap(NameMap(ArgumentKind));
        /// Methods and notifications that Fanlight does not know, and that reach the server although some of its tools,
        /// prompts or resources are hidden, renamed, or have fixed or hidden arguments. Their parameters are not checked:
        /// they may name what filters hide. Without filters and rewriting, all reach it.
        "methods" => methods: Vec<String> = Vec::new(), Each(METHOD), example "[batch/run]";
        /// Whether trace context is sent to it.
        "traceContext" => forwards_trace_context: bool = true, TRACE_CONTEXT;
        /// Variables of Fanlight's environment that its process inherits, besides PATH, HOME, USER, LOGNAME, SHELL, TERM,
        /// TMPDIR, TZ, LANG and LC_*; a `*` at the end stands for any text, and `true` or `*` alone for all variables.
        /// Secrets of Fanlight itself are never among them: `FANLIGHT_*`, the headers for its collector
        /// (`OTEL_EXPORTER_OTLP_HEADERS`), and, unless they are named in full, variables that its own options use.
        "inheritEnv" => inherit_env: Vec<String> = Vec::new(), AllOrEach { each: Each(VARIABLE), all: "*" }, example "[HTTPS_PROXY, NO_PROXY]";
        /// When its process is started: `eager` together with Fanlight, `lazy` on the first request that needs it.
        /// Default: together with Fanlight, unless its lists are known from `stateDir`. In either case it is started
        /// again after it has ended.
        "start" => start: Option<StartChoice> = None, Maybe(START), example "# lazy";
        /// The time after which an unused process is ended: no call, no subscription to a resource, and no task. Its
        /// lists remain, and the next call starts it again. Processes of client sessions end after
        /// `timeouts.backendSessionIdle` instead. Null or `off` for never.
        "idle" => idle: Option<Duration> = None, OrOff(LONG_TIME), example "15m";
        /// How long an attempt to connect may take. For a process: how long it may write nothing to its standard error,
        /// so that one that reports progress, such as an `npx` that installs a package, is not ended before
        /// `timeouts.startTotal`. Default: 90 seconds for a `command`, `timeouts.connect` for a `url`.
        "startTimeout" => start_timeout: Option<Duration> = None, Maybe(TIME), example "3m";
        /// How often the host of its `url`, or of each of its `urls`, is looked up. Each address that is found is then an
        /// endpoint of the server. Default: it has one endpoint, wherever its host is at the moment.
        "resolve" => resolve: Option<Duration> = None, Maybe(RESOLVE), example "# 5s";
        /// `safe`: a request that breaks off is sent once more if it reads by its definition, or calls a tool that says that it
        /// changes nothing (`readOnlyHint`) or nothing more the second time (`idempotentHint`). At most one in five requests
        /// is. Default: nothing that may have run is sent again.
        "retry" => repeats_safe: bool = false, RETRY;
        /// The version of it that serves a share of its clients.
        "canary" => canary: Option<CanaryOptions> = None, Maybe(Nested::<CanaryOptions>::KIND), example "# {server: search-v2, share: 0.1}";
        /// The server that gets copies of its safe requests, to compare the answers.
        "mirror" => mirror: Option<MirrorOptions> = None, Maybe(Nested::<MirrorOptions>::KIND), example "# {server: search-next, share: 0.05}";
        /// A file with certificates (PEM) of authorities that are trusted for this server in addition to those of the
        /// system; relative to the folder of this file.
        "caFile" => ca_file: Option<String> = None, Maybe(FOLDER), example "internal-ca.pem";
        /// The credentials that it gets. Default: what `headers` has.
        "auth" => auth: Option<ServerAuth> = None, Maybe(ServerAuthOption);
        /// Restrictions for its process; Linux only. A process whose sandbox the system cannot enforce is not started.
        "sandbox" => sandbox: SandboxOptions = SandboxOptions::defaults(), Nested::<SandboxOptions>::KIND;
        /// Whether traces record arguments and results of its tools, truncated at `limits.recordedContent`.
        "recordContent" => records_content: bool = false, Flag;
    }
    keys {
        /// The program to start.
        "command" => Form::Text(Visible::FirstWord), example "npx";
        /// Its arguments.
        "args" => Form::Scalars, example "[-y, \"@modelcontextprotocol/server-everything\"]";
        /// Environment variables set for it. `${user:SERVER}` as a whole value is what each user has granted or deposited at
        /// that server, and gives each user a process.
        "env" => Form::Pairs, example "{NODE_ENV: production}";
        /// A file with environment variables for it, one `NAME=value` per line; relative to the folder of this file.
        /// `env` overrides it.
        "envFile" => Form::Text(Visible::All), example "# github.env";
        /// Its working directory; relative to the folder of this file.
        "cwd" => Form::Text(Visible::All), example ".";
        /// Endpoint of a Streamable HTTP server; http or https.
        "url" => Form::Text(Visible::Authority), example "https://mcp.example.com/mcp";
        /// Instead of `url`: the endpoints of a server that is reached at several, which serve the same; each a URL, or
        /// `{url: …, zone: …}`. The first is the server's own URL where it has to have one, as for `auth`.
        "urls" => Form::Json(&["array"], Visible::Nothing), example "# [{url: \"https://a.example.com/mcp\", zone: a}]";
        /// Headers sent to the server.
        "headers" => Form::Pairs, example "{Authorization: \"Bearer ${TOKEN}\"}";
    }
    fields {
        /// Its key in the file; unique, not empty.
        name: String = String::new();
        /// How it is reached.
        transport: Transport = Transport::Http { url: String::new(), headers: Vec::new() };
        /// Its endpoints, if it has several.
        endpoints: Endpoints = Endpoints::default();
        /// The file with environment variables for it.
        env_file: Option<PathBuf> = None;
        /// Environment variables that are each user's own, each with the server for which the user has signed in or deposited a
        /// key: `${user:SERVER}`.
        user_env: Vec<(String, String)> = Vec::new();
    }
    aliases {
        /// The transport. Default: by `command` or `url`. `sse` is the deprecated HTTP+SSE transport, which is detected
        /// without it, too.
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
    /// An enabled backend with every option at its default.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            ..Self::defaults()
        }
    }

    /// All URLs that it is reached at.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        let url = match &self.transport {
            Transport::Http { url, .. } | Transport::Sse { url, .. } => Some(url.as_str()),
            Transport::Stdio { .. } | Transport::Incomplete { .. } => None,
        };
        url.into_iter().chain(
            self.endpoints
                .urls
                .iter()
                .map(|endpoint| endpoint.url.as_str()),
        )
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

const TRACE_CONTEXT: Choice<bool> = Choice(&[("forward", true), ("omit", false)]);

/// Faster than the name servers of most networks change their answers.
const RESOLVE: Range<Duration> = time(Duration::from_secs(1), Duration::from_secs(3600));

const METHOD: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |_, text| Some(text.value),
    show: |method| json!(method),
};

const VARIABLE: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let name = text.value.strip_suffix('*').unwrap_or(&text.value);
        if text.value.is_empty()
            || name.contains(['=', '*', '\0'])
            || name.contains(char::is_whitespace)
        {
            let help = "write the name of a variable, such as `HTTPS_PROXY`; `*` only at the end";
            reader.error(
                text.span,
                format!("{} is not the name of a variable", text.shown()),
                help,
            );
            return None;
        }
        if is_own_variable(name) {
            let help = "remove it; give the server credentials of its own, in `env` or `envFile`";
            let message = format!(
                "{} is for Fanlight itself, whose secrets no server gets",
                text.shown()
            );
            reader.error(text.span, message, help);
            return None;
        }
        Some(text.value)
    },
    show: |name| json!(name),
};

const PREFIX: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        if text
            .value
            .chars()
            .any(|c| c.is_control() || c.is_whitespace())
        {
            let message = format!("{} cannot start the name of a tool", text.shown());
            reader.error(
                text.span,
                message,
                "write letters, digits, `_` and `-` only, or nothing: `\"\"`",
            );
            return None;
        }
        Some(text.value)
    },
    show: |prefix| json!(prefix),
};
