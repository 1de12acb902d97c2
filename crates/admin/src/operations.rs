//! The operations that operators can trigger; the program behind this listener carries them out.

use std::sync::Arc;

use fanlight_protocol::Json;
use futures_util::future::BoxFuture;
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

/// The configuration in force, and changes of it.
pub trait Operations: Send + Sync + 'static {
    /// The configuration in force, without secrets, and how it came to be.
    fn config(&self) -> Json;

    /// The URL of the MCP endpoint, or how else clients reach it.
    fn endpoint(&self) -> Arc<str>;

    /// What to write where for each known client to connect to the MCP endpoint.
    fn connect(&self) -> Json;

    /// What tells this gateway from others, by where its configuration is. Everyone is shown it.
    fn instance(&self) -> Option<&str> {
        None
    }

    /// The definitions of servers that are not as they were approved, for `/api/pins`; null if none are pinned.
    fn pins(&self) -> Json {
        Json::null()
    }

    /// The definitions of servers that deserve a look, as far as their lists are known, for `/api/pins`.
    fn flagged(&self) -> Json {
        Json::literal("[]")
    }

    /// Approves the definition that [`Self::pins`] has under this id.
    fn approve_pin(&self, id: String) -> BoxFuture<'_, Result<String, OperationError>> {
        let _ = id;
        Box::pin(async { Err(OperationError::NoSuchDefinition) })
    }

    /// The limits on how often clients may ask, each with at most so many of those who have used most.
    fn limits(&self, nearest: usize) -> Vec<RateLimit> {
        let _ = nearest;
        Vec::new()
    }

    /// Reads the configuration again and puts it in force.
    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, OperationError>>;

    /// Switches a server on or off, until the process ends.
    fn switch(&self, server: String, enabled: bool) -> BoxFuture<'_, Result<(), OperationError>>;

    /// Replaces a server by a new start of itself.
    fn restart(&self, server: String) -> BoxFuture<'_, Result<(), OperationError>>;
}

/// A limit on how often clients may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub struct RateLimit {
    /// What it says, in short.
    pub rule: String,
    /// How many at once.
    pub most: usize,
    /// Requests that it let run at once.
    pub passed: u64,
    /// Requests that had to wait for their turn.
    pub waited: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// How many clients, tools and so on it counts apart now.
    pub keys: usize,
    /// Those who have used most, the largest first.
    pub nearest: Vec<RateUse>,
}

/// What one of those that a limit counts apart has used. What it does not tell apart is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub struct RateUse {
    /// The principal, or the address of a client that is not authenticated.
    pub client: Option<String>,
    /// The path of the endpoint.
    pub endpoint: Option<String>,
    /// The server.
    pub server: Option<String>,
    /// The server's own name of the tool; empty for those that no list has.
    pub tool: Option<String>,
    /// How many, of `most`; more where requests wait for their turn.
    pub used: usize,
}

/// The outcome of a reload.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Whether the configuration could be used.
    pub is_usable: bool,
    /// The rest, for the operator.
    pub report: Json,
}

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationError {
    /// No server of this name is configured, or, to be restarted, enabled.
    NoSuchServer,
    /// No definition waits for approval under this id.
    NoSuchDefinition,
    /// What was approved could not be written.
    NotWritten,
    /// Fanlight is ending.
    Ending,
}
