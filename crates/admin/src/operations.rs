//! The operations that operators can request. The program behind this listener carries them out.

use std::sync::Arc;

use async_trait::async_trait;
use fanlight_protocol::Json;
use fanlight_telemetry::metrics::Family;

/// The configuration in force, and its changes.
///
/// A trait because its implementation depends on this crate.
#[async_trait]
pub trait Operations: Send + Sync + 'static {
    /// The configuration in force, without secrets, and its history.
    fn config(&self) -> Json;

    /// The URL of the MCP endpoint, or another way to reach it.
    fn endpoint(&self) -> Arc<str>;

    /// The entry for each known client to connect to the MCP endpoint.
    fn connect(&self) -> Json;

    /// The id of this gateway, derived from its configuration's place. Everybody can read it.
    fn instance(&self) -> Option<&str> {
        None
    }

    /// The definitions that differ from the approved ones, for `/api/pins`; null if none are
    /// pinned.
    fn pins(&self) -> Json {
        Json::null()
    }

    /// Suspicious definitions in known lists, for `/api/pins`.
    fn flagged_definitions(&self) -> Json {
        Json::literal("[]")
    }

    /// Approves the definition that [`Self::pins`] has under this id.
    async fn approve_pin(&self, id: String) -> Result<String, OperationError> {
        let _ = id;
        Err(OperationError::NoSuchDefinition)
    }

    /// The configured values that no recording contains.
    fn configured_values(&self) -> Vec<String> {
        Vec::new()
    }

    /// The rate limits, each with up to `nearest` of its heaviest users.
    fn limits(&self, nearest: usize) -> Vec<RateLimit> {
        let _ = nearest;
        Vec::new()
    }

    /// Reloads the configuration.
    async fn reload(&self) -> Result<Reloaded, OperationError>;

    /// Switches a server on or off, until the process ends.
    async fn switch(&self, server: String, enabled: bool) -> Result<(), OperationError>;

    /// Restarts a server.
    async fn restart(&self, server: String) -> Result<(), OperationError>;
}

answers! {
    /// A rate limit.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RateLimit {
        /// The limit in words.
        pub rule: String,
        /// The number of requests allowed at once.
        pub most: usize,
        /// Requests allowed at once.
        pub passed: u64,
        /// Requests that had to wait for their turn.
        pub waited: u64,
        /// Requests that it refused.
        pub refused: u64,
        /// The number of clients, tools and so on that it currently counts separately.
        pub keys: usize,
        /// The heaviest users, largest first.
        pub nearest: Vec<RateUse>,
    }

    /// The use by one key of a limit. Properties that the limit does not distinguish are null.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RateUse {
        /// The principal, or the address of an unauthenticated client.
        pub client: Option<String>,
        /// The path of the endpoint.
        pub endpoint: Option<String>,
        /// The server.
        pub server: Option<String>,
        /// The server's own name for the tool; empty for unlisted tools.
        pub tool: Option<String>,
        /// The number used, of `most`; more if requests are queued.
        pub used: usize,
    }
}

/// The outcome of a reload.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Whether the configuration could be used.
    pub is_usable: bool,
    /// The report for the operator.
    pub report: Json,
}

/// The reason why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationError {
    /// No server of this name is configured; for a restart, none is enabled.
    NoSuchServer,
    /// No definition waits for approval under this id.
    NoSuchDefinition,
    /// The approval could not be written.
    NotWritten,
    /// Fanlight is ending.
    Ending,
}

/// Users' connections to servers.
///
/// A trait because its implementation depends on this crate.
#[async_trait]
pub trait GrantedConnections: Send + Sync + 'static {
    /// Lists all connections, without secrets. The text of an error is for operators.
    async fn list(&self) -> Result<Vec<GrantedConnection>, String>;

    /// Ends a connection and revokes its tokens; the user has to sign in again. `None` if no
    /// connection has this id.
    async fn end(&self, id: String) -> Result<Option<GrantedConnection>, String>;
}

answers! {
    /// One user's connection to a server.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GrantedConnection {
        /// The id, by which the connection is ended.
        pub id: String,
        /// The user's principal, with the issuer.
        pub principal: String,
        /// The name of the server.
        pub server: String,
        /// Whether the user has deposited a key instead of signing in.
        pub key: bool,
        /// The authorization server; null for a key.
        pub issuer: Option<String>,
        /// The granted scopes; null if unknown.
        pub scopes: Option<String>,
        /// When the user connected.
        pub since_ms: f64,
        /// When the access token expires; null if unknown.
        pub expires_ms: Option<f64>,
        /// Whether the access token is renewed without the user.
        pub renewed: bool,
    }
}

/// The replicas and their common data.
///
/// A trait because its implementation depends on this crate.
pub trait Replicas: Send + Sync + 'static {
    /// The operators' view.
    fn view(&self) -> ReplicasView;

    /// The metrics of replicas.
    fn metrics(&self) -> Vec<Family>;
}

answers! {
    /// The replicas and their connection to Valkey.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ReplicasView {
        /// The id of this replica.
        pub own: String,
        /// The epoch of this replica's lease; null without a lease.
        pub epoch: Option<u64>,
        /// The connection to Valkey.
        pub valkey: ValkeyView,
        /// The live replicas, as last seen.
        pub members: Vec<ReplicaView>,
    }

    /// The connection to Valkey.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ValkeyView {
        /// The URL without user and password.
        pub url: String,
        /// The time when the connection entered its current state.
        pub since_ms: f64,
        /// The problem; null while it is connected.
        pub trouble: Option<String>,
    }

    /// A replica.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ReplicaView {
        /// The unique id.
        pub id: String,
        /// The epoch of its lease.
        pub epoch: u64,
        /// The name of its host.
        pub name: String,
        /// The address for other replicas; null if they cannot reach it.
        pub address: Option<String>,
        /// The version of its program.
        pub version: String,
        /// The time of the start.
        pub since_ms: f64,
        /// Whether the replica is shutting down. It then only finishes running work.
        pub is_ending: bool,
    }
}
