//! The configuration: the types that the rest of Fanlight reads, each with the definitions of its
//! options.

pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod endpoint;
pub(crate) mod headers;
pub(crate) mod hooks;
pub(crate) mod life;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod operators;
pub(crate) mod pins;
pub(crate) mod policy;
pub(crate) mod rates;
pub(crate) mod replicas;
pub(crate) mod rewriting;
pub(crate) mod server;
pub(crate) mod server_auth;
pub(crate) mod tools;
pub(crate) mod values;
pub(crate) mod versions;

use std::path::PathBuf;

use ipnet::IpNet;

use crate::definition::Form;
use crate::option::{Each, Maybe, Nested, OrOff, Sections, options};
use crate::settings::ListenAddress;
use audit::AuditOptions;
use auth::values::NETWORK;
use auth::{AuthChoice, AuthKind};
use endpoint::{Endpoint, Endpoints};
use hooks::{HookOptions, NotifyOptions};
use life::FOLDER;
use limits::{Limits, Timeouts};
use listener::{ADDRESS, Tls};
use operators::{Admin, Telemetry};
use pins::PinOptions;
use policy::PolicyOptions;
use replicas::ReplicaOptions;
use rewriting::Naming;
use server::Server;
use values::{HOST, KEY, ORIGIN, PATH, PATTERN, PUBLIC_URL, SealKey, loopback};

/// The path of the default endpoint.
pub(crate) const DEFAULT_PATH: &str = "/mcp";

options! {
    /// The configuration of one Fanlight process.
    pub struct Config: "config", "at the top level";
    options {
        /// Address and port for clients over HTTP, or a Unix socket: `unix:/run/fanlight.sock`. An
        /// address that other machines can reach requires `auth`.
        "listen" [live] => listen: ListenAddress = loopback(8080).into(), ADDRESS, example "${FANLIGHT_LISTEN:-127.0.0.1:8080}";
        /// TLS of `listen`. Default: none.
        "tls" [live] => tls: Option<Tls> = None, Maybe(Nested::<Tls>::KIND), example "# {cert: server.pem, key: server.key}";
        /// The URL at which clients reach `listen`: scheme, host and, if needed, port, such as
        /// `https://mcp.example.com`, and the path that a proxy removes, if it does. Fanlight derives the URLs of its endpoints from it, never
        /// from a request. Its host is one of `allowedHosts`, and its pages have the listener's own
        /// origin. Default: the listen address if that is a loopback address, else none.
        "publicUrl" [live] => public_url: Option<String> = None, Maybe(PUBLIC_URL), example "# https://mcp.example.com";
        /// Addresses or networks (CIDR) of reverse proxies. The address of a client behind them is
        /// the last one in `Forwarded` or `X-Forwarded-For` that is not a trusted proxy. If the two
        /// headers differ or are malformed, it is `0.0.0.0`, and policies that read `address` permit
        /// nothing. Limits, traces and logs use the address, too.
        "trustedProxies" [live] => trusted_proxies: Vec<IpNet> = Vec::new(), Each(NETWORK), example "# [10.0.0.0/8]";
        /// Path of the deprecated HTTP+SSE transport of 2024-11-05, for clients that support
        /// nothing newer; null or `off` disables it. It serves the default endpoint.
        "ssePath" => sse_path: Option<String> = Some("/sse".to_owned()), OrOff(PATH);
        /// The endpoints by path. Each shows some of the servers' tools, prompts and resources;
        /// other paths do not exist. Default: one that shows everything, at `/mcp`.
        "endpoints" [live] => endpoints: Vec<(String, Endpoint)> = Vec::new(), Endpoints;
        /// The admin listener, which serves `/healthz`, `/readyz`, `/metrics`, `/api` and `/ui`.
        "admin" [live] => admin: Admin = Admin::default(), Nested::<Admin>::KIND;
        /// Values of `Origin` that are accepted, such as `https://app.example.com`;
        /// `http://localhost:*` for pages on any port of this machine, `*` for any. Default: the
        /// listener's own origin.
        "allowedOrigins" [live] => allowed_origins: Vec<String> = Vec::new(), Each(ORIGIN), example "[https://app.example.com]";
        /// Values of `Host` that are accepted, such as `mcp.example.com` (any port) or
        /// `mcp.example.com:8080`; `*` for any. Default: loopback names and the listen address.
        "allowedHosts" [live] => allowed_hosts: Vec<String> = Vec::new(), Each(HOST), example "[localhost, 127.0.0.1, mcp.example.com]";
        /// Authentication of clients over HTTP, or `none`. Without it clients are not
        /// authenticated, and only this machine may be able to reach the `listen` address.
        "auth" [live] => auth: AuthChoice = AuthChoice::Unset, AuthKind;
        /// Policies about clients' rights. Default: clients may do everything that `allow` and
        /// scopes permit.
        "policy" [live] => policy: PolicyOptions = PolicyOptions::default(), Nested::<PolicyOptions>::KIND;
        /// Your own guardrails: programs that decide about calls of tools. All of them have to
        /// agree.
        "hooks" [live] => hooks: Vec<HookOptions> = Vec::new(), Sections::<HookOptions>::KIND, example "# [{url: \"http://127.0.0.1:9090/judge\", when: [call, result], timeout: 200ms, onFailure: deny}]";
        /// Webhooks that tell what waits for somebody.
        "notify" [live] => notify: Vec<NotifyOptions> = Vec::new(), Sections::<NotifyOptions>::KIND, example "# [{url: \"https://chat.example.com/hook\", secret: \"${NOTIFY_SECRET}\", events: [approval]}]";
        /// The treatment of definitions that nobody has approved.
        "pins" [live] => pins: PinOptions = PinOptions::default(), Nested::<PinOptions>::KIND;
        /// The audit log.
        "audit" [live] => audit: AuditOptions = AuditOptions::default(), Nested::<AuditOptions>::KIND;
        /// The naming of tools and prompts.
        "naming" [live] => naming: Naming = Naming::default(), Nested::<Naming>::KIND;
        /// Secret keys that seal list cursors and `requestState`, which clients hold: 32 bytes
        /// each, as base64 or 64 hexadecimal digits. The first key seals, and all of them open. To
        /// change keys, put the new one first and remove the old one a day later; several replicas
        /// need one more step (docs/replicas.md). Set them to keep cursors valid across restarts
        /// and replicas. Default: a new key at each start. `openssl rand -base64 32` makes one.
        "keys" => keys: Vec<SealKey> = Vec::new(), Each(KEY), example "# [\"${FANLIGHT_KEY}\"]";
        /// Several processes of Fanlight that act as one for clients. They need the same `keys`.
        /// Default: only this process.
        "replicas" => replicas: Option<ReplicaOptions> = None, Maybe(Nested::<ReplicaOptions>::KIND), example "# {valkey: \"${VALKEY_URL}\"}";
        /// Further files with servers, relative to the folder of this file; `*` stands for any text
        /// in a name. They contain `mcpServers` and no other options. A server may be in one file
        /// only.
        "include" [live] => include: Vec<String> = Vec::new(), Each(PATTERN), example "# [conf.d/*.yaml]";
        /// A file with values for the variables in this file, one `NAME=value` per line, relative
        /// to the folder of this file. Variables of the environment override it. Included files do
        /// not see it.
        "envFile" => env_file: Option<String> = None, Maybe(FOLDER), example "# fanlight.env";
        /// The folder for the last lists and the description of each server with a process. After a
        /// restart, Fanlight starts these servers only on first use, unless their `start` is
        /// `eager`. Relative to the folder of this file; created with mode 0700 if it does not
        /// exist. Default: with several servers, a folder below `$XDG_STATE_HOME/fanlight` or
        /// `~/.local/state/fanlight`, whose lists are served while the servers start.
        "stateDir" => state_dir: Option<String> = None, Maybe(FOLDER), example "# /var/lib/fanlight";
        /// Recorded data about requests, and its destination.
        "telemetry" => telemetry: Telemetry = Telemetry::default(), Nested::<Telemetry>::KIND;
        /// Limits on size and number.
        "limits" => limits: Limits = Limits::default(), Nested::<Limits>::KIND;
        /// Limits on time.
        "timeouts" => timeouts: Timeouts = Timeouts::default(), Nested::<Timeouts>::KIND;
    }
    keys {
        /// The servers by name. Merged lists follow their order, and the first one wins if names
        /// collide.
        "mcpServers" => Form::Named(Server::SECTION);
        /// The location of the JSON Schema, for editors.
        "$schema" => Form::Any;
    }
    fields {
        /// The servers in the order of the file, including disabled ones.
        servers: Vec<Server> = Vec::new();
        /// The environment variables in options outside of servers.
        own_variables: Vec<String> = Vec::new();
        /// Files and folders with Fanlight's own secrets: the files of the configuration, and
        /// `stateDir`.
        own_files: Vec<PathBuf> = Vec::new();
        /// The user's folder for state without a `stateDir`.
        user_state: Option<PathBuf> = None;
    }
    aliases {
        /// Another name of `mcpServers`, which VS Code uses. A file has only one of the two.
        "servers" => Form::Named(Server::SECTION);
    }
    foreign { "globalShortcut", "inputs", "isUsingBuiltInNodeForMcp", "preferences" }
}

impl Config {
    /// The path of the default endpoint, or of the first one if there is no default.
    pub fn shown_path(&self) -> &str {
        let is_default = |(path, _): &&(String, Endpoint)| path == DEFAULT_PATH;
        let found = self
            .endpoints
            .iter()
            .find(is_default)
            .or(self.endpoints.first());
        found.map_or(DEFAULT_PATH, |(path, _)| path)
    }
}
