//! Every field a config file may have, with what the schema says of it. The parser accepts the names in these tables and no
//! others; the schema is made from them.

use serde_json::{Value, json};

use crate::config::Config;
use crate::limits::{LIMITS, TIMEOUTS};
use crate::units::format_duration;

/// A mapping of the config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Top,
    Admin,
    Telemetry,
    Limits,
    Timeouts,
    Server,
    Tools,
}

/// One field of a section.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) shape: Shape,
    pub(crate) default: Option<fn(&Config) -> Value>,
}

/// What values a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Flag,
    Address,
    Path,
    Duration,
    Concurrency,
    Choice(&'static [&'static str]),
    Texts,
    Scalars,
    Pairs,
    Of(Section),
    Servers,
    Anything,
}

/// Values of a server's `type`. The first is for `command`, the others are for `url`.
pub(crate) const TYPES: &[&str] = &["stdio", "http", "streamable-http", "streamableHttp", "sse"];

/// Values of a server's `era`.
pub(crate) const ERAS: &[&str] = &["auto", "legacy", "modern"];

/// Values of a server's `session`.
pub(crate) const SESSIONS: &[&str] = &["per-client", "shared"];

/// Values of `protocol` in `telemetry`, by the names of `OTEL_EXPORTER_OTLP_PROTOCOL`.
pub(crate) const PROTOCOLS: &[&str] = &["http/protobuf", "grpc"];

/// Values of `trustInbound` in `telemetry`.
pub(crate) const TRUST: &[&str] = &["true", "link", "ignore"];

/// Values of a server's `traceContext`.
pub(crate) const TRACE_CONTEXT: &[&str] = &["forward", "omit"];

const TOP: &[Field] = &[
    field("mcpServers", "The backends by name. Their order decides the order of merged lists.", Shape::Servers),
    field("servers", "The same as `mcpServers`, as VS Code writes it. A file has one of the two.", Shape::Servers),
    Field {
        default: Some(|config| json!(config.listen.to_string())),
        ..field("listen", "Address and port of the HTTP front.", Shape::Address)
    },
    Field { default: Some(|config| json!(config.path)), ..field("path", "Path of the MCP endpoint.", Shape::Path) },
    Field {
        default: Some(|config| json!(config.sse_path)),
        ..field(
            "ssePath",
            "Where the deprecated HTTP+SSE transport of 2024-11-05 is served, for clients that speak nothing newer; null or `off` switches it off.",
            Shape::Path,
        )
    },
    field("admin", "The admin listener.", Shape::Of(Section::Admin)),
    field(
        "allowedOrigins",
        "Values of `Origin` that are answered, such as `https://app.example.com`; `*` for any. Default: loopback origins.",
        Shape::Texts,
    ),
    field(
        "allowedHosts",
        "Values of `Host` that are answered, such as `mcp.example.com` (any port) or `mcp.example.com:8080`; `*` for any. Default: loopback names and the listen address.",
        Shape::Texts,
    ),
    field(
        "keys",
        "Secret keys that seal what clients carry, list cursors and `requestState`: 32 bytes each, as base64 or 64 hexadecimal digits. The first seals, all open: to change keys, put the new one first and take the old one away later. Set them to keep cursors valid across restarts and replicas. Default: a new key at each start.",
        Shape::Texts,
    ),
    field("telemetry", "What is recorded of requests, and where it goes.", Shape::Of(Section::Telemetry)),
    field("limits", "Bounds on size and number.", Shape::Of(Section::Limits)),
    field("timeouts", "Bounds on time.", Shape::Of(Section::Timeouts)),
    field("$schema", "Where an editor finds this schema.", Shape::Anything),
];

const ADMIN: &[Field] = &[
    Field {
        default: Some(|config| match config.admin.listen {
            Some(address) => json!(address.to_string()),
            None => json!("off"),
        }),
        ..field(
            "listen",
            "Address and port of `/ui`, `/api`, `/metrics`, `/healthz` and `/readyz`; null or `off` switches them off. `fanlight stdio` has them only if this is given, or `--admin`.",
            Shape::Address,
        )
    },
    field(
        "token",
        "Secret that whoever asks has to know, of at least 16 characters: `Authorization: Bearer <token>`; `/healthz` and `/readyz` tell whether all is well without it. Needed where `listen` is no loopback address. Default: none.",
        Shape::Text,
    ),
];

const TELEMETRY: &[Field] = &[
    field(
        "endpoint",
        "Base URL of a collector that takes OTLP, such as `http://127.0.0.1:4318`. Default: what the `OTEL_*` variables say.",
        Shape::Text,
    ),
    field(
        "protocol",
        "How to speak to the collector: `http/protobuf` (port 4318 as a rule) or `grpc` (4317). Default: what the `OTEL_*` variables say, else `http/protobuf`.",
        Shape::Choice(PROTOCOLS),
    ),
    field("serviceName", "`service.name`, unless `OTEL_SERVICE_NAME` says another. Default: `fanlight`.", Shape::Text),
    Field {
        default: Some(|_| json!("true")),
        ..field(
            "trustInbound",
            "What the trace context of clients is worth: `true` continues their traces, `link` begins new ones that link to them, `ignore` begins new ones.",
            Shape::Choice(TRUST),
        )
    },
];

const SERVER: &[Field] = &[
    field("command", "The program to start.", Shape::Text),
    field("args", "Its arguments.", Shape::Scalars),
    field("env", "Variables set for it.", Shape::Pairs),
    field("cwd", "Its folder; relative to the folder of this file.", Shape::Text),
    field("url", "Endpoint of a Streamable HTTP server; http or https.", Shape::Text),
    field("serverUrl", "The same as `url`.", Shape::Text),
    field("httpUrl", "The same as `url`.", Shape::Text),
    field("headers", "Headers sent to the server.", Shape::Pairs),
    field(
        "type",
        "The transport; found from `command` or `url` when absent. `sse` is the deprecated HTTP+SSE transport, which is found without it too.",
        Shape::Choice(TYPES),
    ),
    Field { default: Some(|_| json!(true)), ..field("enabled", "Whether the server takes part.", Shape::Flag) },
    field("disabled", "The opposite of `enabled`.", Shape::Flag),
    field(
        "prefix",
        "What its tool and prompt names start with when there are several servers; may be empty. Default: the name and two underscores.",
        Shape::Text,
    ),
    Field {
        default: Some(|_| json!("auto")),
        ..field("era", "Protocol era the server is spoken to in; `auto` asks it.", Shape::Choice(ERAS))
    },
    Field {
        default: Some(|_| json!("per-client")),
        ..field(
            "session",
            "Whether each client session has a session of its own with a legacy server (over stdio a process of its own), or all share one, over which the server can ask no client anything.",
            Shape::Choice(SESSIONS),
        )
    },
    Field {
        default: Some(|config| json!(format_duration(config.timeouts.call))),
        ..field("timeout", "Bound on a whole call. Default: `timeouts.call`.", Shape::Duration)
    },
    Field {
        default: Some(|config| json!(config.limits.concurrency)),
        ..field("concurrency", "Bound on running calls. Default: `limits.concurrency`.", Shape::Concurrency)
    },
    field("tools", "Which of its tools are offered.", Shape::Of(Section::Tools)),
    Field {
        default: Some(|_| json!("forward")),
        ..field("traceContext", "Whether trace context goes out to it.", Shape::Choice(TRACE_CONTEXT))
    },
    Field {
        default: Some(|_| json!(false)),
        ..field(
            "recordContent",
            "Whether arguments and results of its tools are recorded in traces, cut at `limits.recordedContent`.",
            Shape::Flag,
        )
    },
    field("disabledTools", "Tools added to `tools.deny`.", Shape::Texts),
    field("excludeTools", "Tools added to `tools.deny`.", Shape::Texts),
    field("includeTools", "The same as `tools.allow`.", Shape::Texts),
];

const TOOLS: &[Field] = &[
    field("allow", "Names of the tools offered, `*` for any characters. Default: all.", Shape::Texts),
    field("deny", "Names of tools not offered, `*` for any characters, even when allowed.", Shape::Texts),
];

/// Keys that clients write for themselves: accepted at the top level and without effect.
const IGNORED_AT_TOP: &[&str] = &["globalShortcut", "inputs", "isUsingBuiltInNodeForMcp", "preferences"];

/// Keys that clients write for themselves: accepted in a server and without effect.
const IGNORED_IN_SERVER: &[&str] = &[
    "alwaysAllow",
    "autoApprove",
    "description",
    "dev",
    "envFile",
    "gallery",
    "icon",
    "metadata",
    "oauth",
    "trust",
    "version",
];

impl Section {
    pub(crate) const ALL: &[Self] =
        &[Self::Top, Self::Admin, Self::Telemetry, Self::Limits, Self::Timeouts, Self::Server, Self::Tools];

    /// Where its fields stand, as a message says it.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Self::Top => "at the top level",
            Self::Admin => "in `admin`",
            Self::Telemetry => "in `telemetry`",
            Self::Limits => "in `limits`",
            Self::Timeouts => "in `timeouts`",
            Self::Server => "in a server",
            Self::Tools => "in `tools` of a server",
        }
    }

    /// Its fields; those of `limits` and `timeouts` have tables of their own.
    pub(crate) fn fields(self) -> &'static [Field] {
        match self {
            Self::Top => TOP,
            Self::Admin => ADMIN,
            Self::Telemetry => TELEMETRY,
            Self::Server => SERVER,
            Self::Tools => TOOLS,
            Self::Limits | Self::Timeouts => &[],
        }
    }

    /// The names of its fields.
    pub(crate) fn names(self) -> Vec<&'static str> {
        match self {
            Self::Limits => LIMITS.iter().map(|field| field.name).collect(),
            Self::Timeouts => TIMEOUTS.iter().map(|field| field.name).collect(),
            _ => self.fields().iter().map(|field| field.name).collect(),
        }
    }

    /// Keys accepted and without effect.
    pub(crate) fn ignored(self) -> &'static [&'static str] {
        match self {
            Self::Top => IGNORED_AT_TOP,
            Self::Server => IGNORED_IN_SERVER,
            _ => &[],
        }
    }
}

/// The candidate a mistyped word most likely stands for. Case, `_` and `-` do not count.
pub(crate) fn suggest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let word = plain(word);
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .iter()
        .map(|candidate| {
            let distance = strsim::damerau_levenshtein(&word, &plain(candidate));
            (distance, *candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

const fn field(name: &'static str, about: &'static str, shape: Shape) -> Field {
    Field { name, about, shape, default: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions() {
        let server = Section::Server.names();
        for (word, meant) in [
            ("prefx", Some("prefix")),
            ("Command", Some("command")),
            ("disabled_tools", Some("disabledTools")),
            ("comand", Some("command")),
            ("arg", Some("args")),
            ("xyzzy", None),
            ("", None),
        ] {
            assert_eq!(suggest(word, &server), meant, "{word}");
        }
    }
}
