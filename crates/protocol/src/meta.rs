//! Keys of `_meta` that the specification reserves, and those that belong to one hop.

/// The revision of a request (2026-07-28 basic, `_meta`).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The client that sends a request.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The capabilities of the client that sends a request.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The least severe log message wanted for a request.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The server that answers a request.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the `subscriptions/listen` request that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The task that a message belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The extension by which servers answer with tasks; a member of `extensions` in capabilities.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The extension by which tools have apps, whose URIs are `ui://…` (MCP Apps 2026-01-26, Extension Identifier).
pub const UI_EXTENSION: &str = "io.modelcontextprotocol/ui";
/// The extension by which servers have skills (SEP-2640).
pub const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";
/// The token of progress notifications, which a request sets to ask for them.
pub const PROGRESS_TOKEN: &str = "progressToken";

/// Request keys that belong to one hop. Fanlight reads them from the client, and writes its own for
/// the server. All other keys pass with their bytes.
pub const PER_HOP: [&str; 5] = [
    PROTOCOL_VERSION,
    CLIENT_INFO,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    PROGRESS_TOKEN,
];

crate::named! {
    /// Severity of log messages, least severe first (RFC 5424 as cited by server/utilities/logging).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum LogLevel {
        /// `debug`
        Debug = "debug",
        /// `info`
        Info = "info",
        /// `notice`
        Notice = "notice",
        /// `warning`
        Warning = "warning",
        /// `error`
        Error = "error",
        /// `critical`
        Critical = "critical",
        /// `alert`
        Alert = "alert",
        /// `emergency`
        Emergency = "emergency",
    }
}

impl LogLevel {
    /// The level called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}
