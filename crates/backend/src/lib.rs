//! MCP servers behind Fanlight: the
//! transports, the handshake that finds a server's era, and the supervision of connections.
//!
//! Everything that differs between eras or transports towards a server ends in this crate.
//!
//! Must not know: other backends, client-visible names, who the client is.

mod backend;
mod backoff;
mod caller;
mod channel;
mod connection;
mod deadline;
mod declared;
mod dialect;
mod direct;
mod excerpt;
mod exchange;
mod handshake;
mod http;
mod line;
mod link;
mod listening;
mod pool;
mod question;
pub mod settings;
mod shares;
mod stdio;
mod subscriptions;
mod supervisor;
mod tasks;
mod throttle;
mod tool_table;
mod trace;

pub use backend::Backend;
pub use fanlight_http_pool::worker;
pub use settings::{
    BackendSettings, EraChoice, Identity, Limits, RetryDelays, Secret, SessionPolicy, TelemetrySettings, Timeouts,
    TransportSettings,
};
