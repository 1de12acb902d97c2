//! MCP servers behind Fanlight: the [`BackendClient`] trait that the core speaks to, the
//! transports, the handshake that finds a server's era, and the supervision of connections.
//!
//! Everything that differs between eras or transports towards a server ends in this crate.
//!
//! Must not know: other backends, client-visible names, who the client is.

mod backend;
mod backoff;
mod caller;
mod channel;
pub mod client;
mod clock;
mod connection;
mod declared;
mod dialect;
pub mod error;
mod excerpt;
mod exchange;
mod handshake;
mod http;
mod hub;
mod line;
mod link;
pub mod listen;
mod listening;
mod messages;
mod pool;
mod question;
pub mod settings;
mod shares;
mod stdio;
mod supervisor;
mod tasks;
mod throttle;
mod tool_table;
mod trace;
pub mod worker;

pub use backend::Backend;
pub use client::{
    BackendClient, BackendState, BackendStatus, Call, CallContext, Inbox, Pending, ServerMessage, ServerMessages,
    ServerRequest, SessionKey, TaskDialect,
};
pub use error::{BackendError, Outcome};
/// What [`CallContext::trace`] is.
pub use fanlight_telemetry::Parent;
pub use listen::{Interest, Listen, Listening, ListeningGuard};
pub use settings::{
    BackendSettings, EraChoice, Identity, Limits, Secret, SessionPolicy, TelemetrySettings, Timeouts, TransportSettings,
};
