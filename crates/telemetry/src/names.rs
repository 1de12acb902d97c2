//! The names of spans, attributes and events, from the OpenTelemetry semantic conventions for MCP where they have one.
//! Names of metrics are in [`crate::metrics`]. A test compares docs/tracing.md with these tables.

/// The key of the W3C trace context, in `_meta` as in headers (SEP-414).
pub const TRACEPARENT: &str = "traceparent";
/// Its vendor-specific part.
pub const TRACESTATE: &str = "tracestate";
/// W3C baggage.
pub const BAGGAGE: &str = "baggage";

/// The name of the span for connecting a backend.
pub const CONNECT_SPAN: &str = "connect";
/// The name of the span for a copy of a request that goes to a mirror.
pub const MIRROR_SPAN: &str = "mirror";
/// The value for unknown names, so that the number of values stays bounded.
pub const OTHER: &str = "_OTHER";

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message received.
    Server,
    /// A message sent, one per attempt.
    Client,
    /// Connecting a backend, or comparing what a mirror answers.
    Internal,
}

impl Kind {
    /// The name in OpenTelemetry.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "SERVER",
            Self::Client => "CLIENT",
            Self::Internal => "INTERNAL",
        }
    }
}

/// An attribute, and the kinds of spans that can have it.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// Those kinds.
    pub kinds: &'static [Kind],
}

macro_rules! attributes {
    ($($(#[$doc:meta])+ $constant:ident = $name:literal on [$($kind:ident),+];)*) => {
        $($(#[$doc])+ pub const $constant: &str = $name;)*
        /// Every attribute of a span.
        pub const ATTRIBUTES: &[Attribute] =
            &[$(Attribute { name: $name, kinds: &[$(Kind::$kind),+] }),*];
    };
}

attributes! {
    /// The method.
    MCP_METHOD_NAME = "mcp.method.name" on [Server, Client];
    /// The revision negotiated with the peer.
    MCP_PROTOCOL_VERSION = "mcp.protocol.version" on [Server, Client];
    /// The session with the peer, if there is one.
    MCP_SESSION_ID = "mcp.session.id" on [Server, Client];
    /// The resource, without query and user info.
    MCP_RESOURCE_URI = "mcp.resource.uri" on [Server, Client];
    /// The tool: on SERVER as the client calls it, on CLIENT as the backend does.
    GEN_AI_TOOL_NAME = "gen_ai.tool.name" on [Server, Client];
    /// The prompt, likewise.
    GEN_AI_PROMPT_NAME = "gen_ai.prompt.name" on [Server, Client];
    /// `execute_tool` on tool calls.
    GEN_AI_OPERATION_NAME = "gen_ai.operation.name" on [Server, Client];
    /// The arguments of a tool call, if switched on for the backend: on SERVER as the client sent them.
    GEN_AI_TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments" on [Server, Client];
    /// The result of a tool call, if switched on for the backend: on SERVER as the client gets it.
    GEN_AI_TOOL_CALL_RESULT = "gen_ai.tool.call.result" on [Server, Client];
    /// The arguments of a prompt, likewise, each with its name behind a dot.
    GEN_AI_PROMPT_VARIABLE = "gen_ai.prompt.variable" on [Server, Client];
    /// The id of the request; notifications have none.
    JSONRPC_REQUEST_ID = "jsonrpc.request.id" on [Server, Client];
    /// The JSON-RPC error code of the response.
    RPC_RESPONSE_STATUS_CODE = "rpc.response.status_code" on [Server, Client, Internal];
    /// The class of error; not on a SERVER span whose sender made the mistake.
    ERROR_TYPE = "error.type" on [Server, Client, Internal];
    /// `tcp` for HTTP, `pipe` for stdio.
    NETWORK_TRANSPORT = "network.transport" on [Server, Client, Internal];
    /// `http`.
    NETWORK_PROTOCOL_NAME = "network.protocol.name" on [Server, Client, Internal];
    /// The version of HTTP.
    NETWORK_PROTOCOL_VERSION = "network.protocol.version" on [Server, Client, Internal];
    /// The backend's host.
    SERVER_ADDRESS = "server.address" on [Server, Client, Internal];
    /// The backend's port.
    SERVER_PORT = "server.port" on [Server, Client, Internal];
    /// The address of the endpoint, where the backend's host has several.
    NETWORK_PEER_ADDRESS = "network.peer.address" on [Client, Internal];
    /// Its port.
    NETWORK_PEER_PORT = "network.peer.port" on [Client, Internal];
    /// The client's address.
    CLIENT_ADDRESS = "client.address" on [Server];
    /// The client's port.
    CLIENT_PORT = "client.port" on [Server];
    /// The backend as the configuration calls it.
    BACKEND_NAME = "fanlight.backend.name" on [Server, Client, Internal];
    /// Which attempt this is, from 1.
    ATTEMPT = "fanlight.attempt" on [Client];
    /// The server that serves the client in place of the one that the request was for, whose canary it is.
    CANARY = "fanlight.canary" on [Server];
    /// What became of a copy of a request: `same`, `failed`, or `different` with the kinds of differences.
    MIRROR = "fanlight.mirror" on [Internal];
    /// What the policy says of the request, and the ids of the policies that do.
    POLICY = "fanlight.policy" on [Server];
    /// Whether the answer came from the catalogue without asking a backend.
    CACHE_HIT = "fanlight.cache.hit" on [Server];
    /// How many backends contributed nothing to a merged answer.
    PARTIAL_FAILURES = "fanlight.partial_failures" on [Server];
    /// The parts of the message that the configuration has changed: `name`, `title`, `description`, `annotations`, `_meta`,
    /// `arguments`, separated by `, `.
    REWRITTEN = "fanlight.rewritten" on [Server];
    /// What was said of a mistake of the sender, which leaves the status of the span unset.
    ERROR_MESSAGE = "fanlight.error.message" on [Server];
    /// The path of the endpoint that the request came to, unless that is the default one.
    ENDPOINT = "fanlight.endpoint" on [Server];
    /// The name that the client gives itself.
    CLIENT_NAME = "fanlight.client.name" on [Server];
    /// The version that the client says it has.
    CLIENT_VERSION = "fanlight.client.version" on [Server];
    /// The name of the client's principal, if it is authenticated.
    PRINCIPAL = "fanlight.principal" on [Server];
}

/// The attributes of events: progress and log notifications, named by their method.
pub mod event {
    /// `progress` of a progress notification.
    pub const PROGRESS: &str = "fanlight.progress.value";
    /// `total` of a progress notification.
    pub const PROGRESS_TOTAL: &str = "fanlight.progress.total";
    /// `level` of a log notification.
    pub const LOG_LEVEL: &str = "fanlight.log.level";
    /// Every attribute of an event.
    pub const ATTRIBUTES: &[&str] = &[PROGRESS, PROGRESS_TOTAL, LOG_LEVEL];
}
