//! The core: one catalogue of many backends, names, routing, fan-out and merge.
//!
//! A request comes in canonical form ([`Call`]) and leaves as a [`fanlight_protocol::Response`];
//! [`Gateway::handle`] shows its whole way. Each policy has one module: [`naming`], [`merge`]
//! (`_meta` and hints), [`cursor`], [`fault`] (errors), `tasks` (whose each is).
//!
//! Must not know: HTTP, transports, eras, revisions, or who the client is.

mod announce;
mod background;
mod cache;
pub mod catalogue;
pub mod cursor;
mod describe;
pub mod fault;
mod gateway;
mod listen;
pub mod merge;
pub mod naming;
mod route;
mod send;
mod settings;
mod tasks;
mod uri_template;
mod watch;

pub use gateway::Gateway;
pub use settings::{BackendEntry, CacheLimits, GatewaySettings, ListLimits, ToolFilter};
