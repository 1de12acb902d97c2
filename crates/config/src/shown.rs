//! A configuration as it may be shown: the names of the file, complete with defaults, without secrets.

use serde_json::{Map, Value, json};

use crate::config::{
    Config, EraChoice, OtlpChoice, Secret, Server, SessionChoice, ToolFilter, Transport, TrustChoice,
    url_without_secrets,
};
use crate::limits::{LIMITS, Measure, TIMEOUTS};
use crate::units::{format_duration, format_size};

/// What stands for a secret.
const HIDDEN: &str = "***";

impl Config {
    /// The configuration in force as JSON, indented. Tokens, keys, arguments, values of variables and headers, and URLs
    /// beyond their host are `***`.
    pub fn shown(&self) -> String {
        let (mut limits, mut timeouts) = (self.limits.clone(), self.timeouts.clone());
        let limits: Map<String, Value> = LIMITS
            .iter()
            .map(|field| {
                let value = *(field.slot)(&mut limits);
                let shown = match field.measure {
                    Measure::Bytes => json!(format_size(value)),
                    Measure::Count => json!(value),
                };
                (field.name.to_owned(), shown)
            })
            .collect();
        let timeouts: Map<String, Value> = TIMEOUTS
            .iter()
            .map(|field| (field.name.to_owned(), json!(format_duration(*(field.slot)(&mut timeouts)))))
            .collect();
        let servers: Map<String, Value> = self.servers.iter().map(|one| (one.name.clone(), server(one))).collect();
        let shown = json!({
            "listen": self.listen.to_string(),
            "path": self.path,
            "ssePath": self.sse_path,
            "admin": {
                "listen": self.admin.listen.map(|address| address.to_string()),
                "token": self.admin.token.as_ref().map(|_| HIDDEN),
            },
            "allowedOrigins": self.allowed_origins,
            "allowedHosts": self.allowed_hosts,
            "keys": vec![HIDDEN; self.keys.len()],
            "telemetry": {
                "endpoint": self.telemetry.endpoint.as_deref().map(url_without_secrets),
                "protocol": self.telemetry.protocol.map(|protocol| match protocol {
                    OtlpChoice::HttpProtobuf => "http/protobuf",
                    OtlpChoice::Grpc => "grpc",
                }),
                "serviceName": self.telemetry.service_name,
                "trustInbound": match self.telemetry.trust_inbound {
                    TrustChoice::True => "true",
                    TrustChoice::Link => "link",
                    TrustChoice::Ignore => "ignore",
                },
            },
            "limits": limits,
            "timeouts": timeouts,
            "mcpServers": servers,
        });
        format!("{shown:#}")
    }
}

fn server(server: &Server) -> Value {
    let mut shown = Map::new();
    shown.insert("enabled".to_owned(), json!(server.enabled));
    match &server.transport {
        Transport::Stdio { command, args, env, cwd } => {
            shown.insert("type".to_owned(), json!("stdio"));
            shown.insert("command".to_owned(), json!(command));
            shown.insert("args".to_owned(), json!(vec![HIDDEN; args.len()]));
            shown.insert("env".to_owned(), hidden(env));
            shown.insert("cwd".to_owned(), json!(cwd.as_ref().map(|folder| folder.display().to_string())));
        }
        Transport::Http { url, headers } => remote(&mut shown, "http", url, headers),
        Transport::Sse { url, headers } => remote(&mut shown, "sse", url, headers),
    }
    let era = match server.era {
        EraChoice::Auto => "auto",
        EraChoice::Legacy => "legacy",
        EraChoice::Modern => "modern",
    };
    let session = match server.session {
        SessionChoice::PerClient => "per-client",
        SessionChoice::Shared => "shared",
    };
    let ToolFilter { allow, deny } = &server.tools;
    shown.insert("prefix".to_owned(), json!(server.prefix));
    shown.insert("era".to_owned(), json!(era));
    shown.insert("session".to_owned(), json!(session));
    shown.insert("timeout".to_owned(), json!(format_duration(server.timeout)));
    shown.insert("concurrency".to_owned(), json!(server.concurrency));
    let trace_context = if server.forwards_trace_context { "forward" } else { "omit" };
    shown.insert("traceContext".to_owned(), json!(trace_context));
    shown.insert("recordContent".to_owned(), json!(server.records_content));
    shown.insert("tools".to_owned(), json!({ "allow": allow, "deny": deny }));
    Value::Object(shown)
}

fn remote(shown: &mut Map<String, Value>, kind: &str, url: &str, headers: &[(String, Secret)]) {
    shown.insert("type".to_owned(), json!(kind));
    shown.insert("url".to_owned(), json!(url_without_secrets(url)));
    shown.insert("headers".to_owned(), hidden(headers));
}

fn hidden(pairs: &[(String, Secret)]) -> Value {
    pairs.iter().map(|(name, value)| (name.clone(), json!(value.to_string()))).collect::<Map<_, _>>().into()
}
