//! The core: one catalogue of many backends, names, routing, fan-out and merge.
//!
//! Must not know: HTTP, transports, eras, revisions, or who the client is.

pub mod gateway;

pub use fanlight_backend::{BackendClient, BackendStatus, Call, CallContext, Notifications};
pub use gateway::Gateway;
