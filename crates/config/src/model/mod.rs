//! The configuration: the types that the rest of Fanlight reads, each with the definitions of its options.

pub(crate) mod auth;
pub(crate) mod endpoint;
pub(crate) mod life;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod operators;
pub(crate) mod rewriting;
pub(crate) mod secret;
pub(crate) mod server;
pub(crate) mod tools;
pub(crate) mod values;

use fanlight_settings::ListenAddress;
use ipnet::IpNet;

use crate::definition::Form;
use crate::option::kind::{Each, Flag, Maybe, Nested, OrOff};
use crate::option::{Options, options};
use auth::values::NETWORK;
use auth::{AuthChoice, AuthKind};
use endpoint::{Endpoint, Endpoints};
use life::FOLDER;
use limits::{Limits, Timeouts};
use listener::{ADDRESS, Mode, Tls};
use operators::{Admin, Telemetry};
use rewriting::Naming;
use secret::SealKey;
use server::Server;
use values::{HOST, KEY, ORIGIN, PATH, PATTERN, PUBLIC_URL, loopback};

options! {
    /// The configuration of one Fanlight process.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Config: "config", "at the top level";
    options {
        /// Address and port for clients over HTTP, or a Unix socket: `unix:/run/fanlight.sock`. Beyond this machine only with
        /// `auth`.
        "listen" => listen: ListenAddress = loopback(8080).into(), ADDRESS, example "${FANLIGHT_LISTEN:-127.0.0.1:8080}";
        /// Permissions of the file where `listen` is a Unix socket. Who may write to it may connect.
        "socketMode" => socket_mode: u32 = 0o660, Mode, example "\"0660\"";
        /// TLS of `listen`. Default: none.
        "tls" => tls: Option<Tls> = None, Maybe(Nested::<Tls>::KIND), example "# {cert: server.pem, key: server.key}";
        /// The URL under which clients reach `listen`: scheme, host and, if needed, port, such as `https://mcp.example.com`.
        /// What is said of the endpoints is made from it, and never from what a request says. Its host is one of
        /// `allowedHosts`, its pages are the listener's own. Default: the listen address where that is a loopback address,
        /// else none.
        "publicUrl" => public_url: Option<String> = None, Maybe(PUBLIC_URL), example "# https://mcp.example.com";
        /// Reverse proxies by their addresses or networks (CIDR). The address of a client behind them is the
        /// last one in `Forwarded` or `X-Forwarded-For` that is no trusted proxy; that of the proxy, where the two differ or
        /// are malformed. It counts for shares of limits, traces and logs, and for nothing else.
        "trustedProxies" => trusted_proxies: Vec<IpNet> = Vec::new(), Each(NETWORK), example "# [10.0.0.0/8]";
        /// Whether other processes may listen at `listen` and `admin.listen` at the same time (`SO_REUSEPORT`), so that a
        /// new process can take over from an old one.
        "reusePort" => reuse_port: bool = false, Flag;
        /// Path of the default endpoint: the only one without `endpoints`, else one of them.
        "path" => path: String = "/mcp".to_owned(), PATH;
        /// Path of the deprecated HTTP+SSE transport of 2024-11-05, for clients that speak nothing newer; null or `off`
        /// switches it off. It serves the default endpoint.
        "ssePath" => sse_path: Option<String> = Some("/sse".to_owned()), OrOff(PATH);
        /// The endpoints by path: each shows some of the servers' tools, prompts and resources. Other paths do not exist.
        /// Default: one that shows everything, at `path`.
        "endpoints" => endpoints: Vec<(String, Endpoint)> = Vec::new(), Endpoints;
        /// The admin listener, which serves `/healthz`, `/readyz`, `/metrics`, `/api` and `/ui`.
        "admin" => admin: Admin = Admin::defaults(), Nested::<Admin>::KIND;
        /// Values of `Origin` that are answered, such as `https://app.example.com`; `http://localhost:*` for pages of any
        /// port of this machine, `*` for any. Default: the listener's own origin.
        "allowedOrigins" => allowed_origins: Vec<String> = Vec::new(), Each(ORIGIN), example "[https://app.example.com]";
        /// Values of `Host` that are answered, such as `mcp.example.com` (any port) or `mcp.example.com:8080`; `*` for any.
        /// Default: loopback names and the listen address.
        "allowedHosts" => allowed_hosts: Vec<String> = Vec::new(), Each(HOST), example "[localhost, 127.0.0.1, mcp.example.com]";
        /// Whether clients over HTTP are authenticated: `none`, or how. Without it they are not, and `listen` may be an address
        /// of this machine alone.
        "auth" => auth: AuthChoice = AuthChoice::Unset, AuthKind;
        /// How the names of tools and prompts are made.
        "naming" => naming: Naming = Naming::defaults(), Nested::<Naming>::KIND;
        /// Secret keys that seal what clients carry, list cursors and `requestState`: 32 bytes each, as base64 or 64
        /// hexadecimal digits. The first seals, all open: to change keys, put the new one first and remove the old one a
        /// day later. Set them to keep cursors valid across restarts and replicas. Default: a new key at each start.
        /// `openssl rand -base64 32` makes one.
        "keys" => keys: Vec<SealKey> = Vec::new(), Each(KEY), example "# [\"${FANLIGHT_KEY}\"]";
        /// Further files with servers, relative to the folder of this one; `*` stands for any text in a name. They have
        /// `mcpServers` and no other options; a server may be in one file only.
        "include" => include: Vec<String> = Vec::new(), Each(PATTERN), example "# [conf.d/*.yaml]";
        /// The folder in which the last lists of servers with a process are kept, with what the server says of itself, so that
        /// after a restart of Fanlight these servers are not started before they are used, unless their `start` is `eager`.
        /// Relative to the folder of this file; made with mode 0700 if there is none. Default: lists are not kept.
        "stateDir" => state_dir: Option<String> = None, Maybe(FOLDER), example "# /var/lib/fanlight";
        /// What is recorded of requests, and where it is sent.
        "telemetry" => telemetry: Telemetry = Telemetry::defaults(), Nested::<Telemetry>::KIND;
        /// Bounds on size and number.
        "limits" => limits: Limits = Limits::defaults(), Nested::<Limits>::KIND;
        /// Bounds on time.
        "timeouts" => timeouts: Timeouts = Timeouts::defaults(), Nested::<Timeouts>::KIND;
    }
    keys {
        /// The backends by name. Their order is the order of merged lists, and decides which wins when names collide.
        "mcpServers" => Form::Named(Server::SECTION);
        /// Another name of `mcpServers`, which VS Code uses. A file has one of the two.
        "servers" => Form::Named(Server::SECTION);
        /// Where an editor finds the JSON Schema.
        "$schema" => Form::Any;
    }
    fields {
        /// The backends in the order of the file, disabled ones included.
        servers: Vec<Server> = Vec::new();
    }
    foreign { "globalShortcut", "inputs", "isUsingBuiltInNodeForMcp", "preferences" }
}

impl Config {
    /// The path of the default endpoint, or of the first one if there is no default.
    pub fn shown_path(&self) -> &str {
        let is_default = |(path, _): &&(String, Endpoint)| *path == self.path;
        let found = self.endpoints.iter().find(is_default).or(self.endpoints.first());
        found.map_or(&self.path, |(path, _)| path)
    }
}

impl Default for Config {
    /// The configuration of a file that sets nothing but its servers.
    fn default() -> Self {
        Self::defaults()
    }
}
