//! The names of spans, attributes and events. They come from the OpenTelemetry semantic conventions
//! for MCP where these have a name. The names of metrics are in [`crate::metrics`]. A test compares
//! docs/tracing.md with these tables.

/// The key of the W3C trace context, in `_meta` and in headers (SEP-414).
pub const TRACEPARENT: &str = "traceparent";
/// The key of the vendor-specific part of the trace context.
pub const TRACESTATE: &str = "tracestate";
/// The key of W3C baggage.
pub const BAGGAGE: &str = "baggage";

/// The name of the span for connecting a server.
pub const CONNECT_SPAN: &str = "connect";
/// The name of the span for a copied request that goes to a mirror.
pub const MIRROR_SPAN: &str = "mirror";
/// The value that stands for unknown names, so that the number of values stays bounded.
pub const OTHER: &str = "_OTHER";

fanlight_protocol::named! {
    /// The kind of a span.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// A message received.
        Server = "SERVER",
        /// A message sent, one per attempt.
        Client = "CLIENT",
        /// Connecting a server, or comparing the answer of a mirror.
        Internal = "INTERNAL",
    }
}

/// An attribute and the kinds of spans that can have it.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// The name of the attribute.
    pub name: &'static str,
    /// The kinds of spans.
    pub kinds: &'static [Kind],
}

macro_rules! attributes {
    ($($(#[$doc:meta])+ $constant:ident = $name:literal on [$($kind:ident),+];)*) => {
        $($(#[$doc])+ pub const $constant: &str = $name;)*
        /// Every attribute of spans.
        pub const ATTRIBUTES: &[Attribute] =
            &[$(Attribute { name: $name, kinds: &[$(Kind::$kind),+] }),*];
    };
}

attributes! {
    /// The method of the message.
    MCP_METHOD_NAME = "mcp.method.name" on [Server, Client];
    /// The revision negotiated with the peer.
    MCP_PROTOCOL_VERSION = "mcp.protocol.version" on [Server, Client];
    /// The session with the peer, if there is one.
    MCP_SESSION_ID = "mcp.session.id" on [Server, Client];
    /// The resource, without query and user info.
    MCP_RESOURCE_URI = "mcp.resource.uri" on [Server, Client];
    /// The tool: on SERVER by the client's name for it, on CLIENT by the server's.
    GEN_AI_TOOL_NAME = "gen_ai.tool.name" on [Server, Client];
    /// The prompt: on SERVER by the client's name for it, on CLIENT by the server's.
    GEN_AI_PROMPT_NAME = "gen_ai.prompt.name" on [Server, Client];
    /// Always `execute_tool`. Only tool calls have it.
    GEN_AI_OPERATION_NAME = "gen_ai.operation.name" on [Server, Client];
    /// The arguments of a tool call, if their recording is switched on for the server. On SERVER
    /// they are as the client sent them.
    GEN_AI_TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments" on [Server, Client];
    /// The result of a tool call, if its recording is switched on for the server. On SERVER it is
    /// as the client gets it.
    GEN_AI_TOOL_CALL_RESULT = "gen_ai.tool.call.result" on [Server, Client];
    /// An argument of a prompt, if their recording is switched on. Its name follows after a dot.
    GEN_AI_PROMPT_VARIABLE = "gen_ai.prompt.variable" on [Server, Client];
    /// The id of the request; notifications have none.
    JSONRPC_REQUEST_ID = "jsonrpc.request.id" on [Server, Client];
    /// The JSON-RPC error code of the response.
    RPC_RESPONSE_STATUS_CODE = "rpc.response.status_code" on [Server, Client, Internal];
    /// The class of error. A SERVER span lacks it if the sender made the mistake.
    ERROR_TYPE = "error.type" on [Server, Client, Internal];
    /// `tcp` for HTTP, `pipe` for stdio.
    NETWORK_TRANSPORT = "network.transport" on [Server, Client, Internal];
    /// Always `http`.
    NETWORK_PROTOCOL_NAME = "network.protocol.name" on [Server, Client, Internal];
    /// The version of HTTP.
    NETWORK_PROTOCOL_VERSION = "network.protocol.version" on [Server, Client, Internal];
    /// The host of the server.
    SERVER_ADDRESS = "server.address" on [Server, Client, Internal];
    /// The port of the server.
    SERVER_PORT = "server.port" on [Server, Client, Internal];
    /// The address of the endpoint, if the server's host has several.
    NETWORK_PEER_ADDRESS = "network.peer.address" on [Client, Internal];
    /// The port of that endpoint.
    NETWORK_PEER_PORT = "network.peer.port" on [Client, Internal];
    /// The client's address.
    CLIENT_ADDRESS = "client.address" on [Server];
    /// The client's port.
    CLIENT_PORT = "client.port" on [Server];
    /// The server, by its name in the configuration.
    BACKEND_NAME = "fanlight.backend.name" on [Server, Client, Internal];
    /// The number of the attempt, from 1.
    ATTEMPT = "fanlight.attempt" on [Client];
    /// The only sign of the client of a request without a session, whose state its server may keep:
    /// its `principal`, its `machine`, or none (`request`).
    TOLD_BY = "fanlight.client.told_by" on [Client];
    /// The canary that served the client in place of the requested server.
    CANARY = "fanlight.canary" on [Server];
    /// The result of a copied request: `same`, `failed`, or `different` with the kinds of
    /// differences.
    MIRROR = "fanlight.mirror" on [Internal];
    /// The tools that `find_tools` found, or the tool that `call_tool` calls, by the client's names.
    LEAN_TOOLS = "fanlight.lean.tools" on [Server];
    /// The bytes of a result that was shortened for the client, of the shortened one, and the parts
    /// that are kept whole.
    SHORTENED = "fanlight.shortened" on [Server];
    /// The decision of the policy about the request, and the ids of the policies that decided.
    POLICY = "fanlight.policy" on [Server];
    /// The gate that refused the request.
    GATE = "fanlight.gate" on [Server];
    /// Whether the answer came from the catalogue without a request to a server.
    CACHE_HIT = "fanlight.cache.hit" on [Server];
    /// How many servers contributed nothing to a merged answer.
    PARTIAL_FAILURES = "fanlight.partial_failures" on [Server];
    /// The parts of the message that the configuration changed: `name`, `title`, `description`,
    /// `annotations`, `_meta`, `arguments`, separated by `, `.
    REWRITTEN = "fanlight.rewritten" on [Server];
    /// The error message after a mistake of the sender. Such a mistake leaves the status of the
    /// span unset.
    ERROR_MESSAGE = "fanlight.error.message" on [Server];
    /// The path of the endpoint that received the request, unless this is the default one.
    ENDPOINT = "fanlight.endpoint" on [Server];
    /// The name that the client gives.
    CLIENT_NAME = "fanlight.client.name" on [Server];
    /// The version that the client gives.
    CLIENT_VERSION = "fanlight.client.version" on [Server];
    /// The name of the client's principal, if the client is authenticated.
    PRINCIPAL = "fanlight.principal" on [Server];
}

/// The attributes of events, which stand for progress and log notifications. Events have the name
/// of the notification's method.
pub mod event {
    /// The `progress` of a progress notification.
    pub const PROGRESS: &str = "fanlight.progress.value";
    /// The `total` of a progress notification.
    pub const PROGRESS_TOTAL: &str = "fanlight.progress.total";
    /// The `level` of a log notification.
    pub const LOG_LEVEL: &str = "fanlight.log.level";
    /// Every attribute of an event.
    pub const ATTRIBUTES: &[&str] = &[PROGRESS, PROGRESS_TOTAL, LOG_LEVEL];
}
