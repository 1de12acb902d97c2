//! MCP servers behind Fanlight: the [`BackendClient`] trait that the core speaks to, the two
//! transports, the handshake that finds a server's era, and the supervision of connections.
//!
//! Everything that differs between eras or transports towards a server ends in this crate.
//!
//! Must not know: other backends, client-visible names, who the client is.

pub mod client;
pub mod error;

pub use client::{BackendClient, BackendState, BackendStatus, Call, CallContext, Notifications, Pending};
pub use error::{BackendError, Outcome};
