//! Connections to MCP servers: transports, the handshake that determines a server's era, and
//! supervision.
//!
//! All differences between eras and between transports of servers end in this crate. [`Backend`] is
//! one server; the core sees it as a [`fanlight_canonical::BackendClient`]. A call passes through
//! these modules, each of which uses only those below it:
//!
//! | module | its part in a call |
//! |---|---|
//! | `instances` | implements `BackendClient`: chooses the instance by principal and endpoint |
//! | `tasks` | translates between the two dialects of tasks, if client and server differ |
//! | `sessions` | limits the call's time, and chooses a connection that its client may use |
//! | `connection` | makes it a request of the server's era, and judges the reply |
//! | `transport` | sends the request and reads the reply, over HTTP, stdio or the legacy SSE transport |
//! | `request` | the request with its permit, deadline, span, era's dialect and server requests |
//!
//! Beside them, `handshake` makes connections, and `listening` and `subscriptions` keep up and
//! distribute messages that servers send outside of calls.

mod connection;
pub mod credentials;
mod handshake;
mod health;
mod instances;
mod listening;
mod log;
mod memory;
mod outage;
mod process_log;
mod remedy;
mod repeats;
mod request;
mod sessions;
pub mod settings;
mod subscriptions;
mod tasks;
mod transport;

pub use fanlight_http::client::enter_worker;
pub use instances::{Backend, BackendLife};
pub use memory::MessageMemory;
pub use repeats::Repeats;
pub use settings::{
    BackendLimits, BackendSettings, BackendTimeouts, Endpoints, EraChoice, HealthPolicy,
    KnownServer, Landlock, LookUp, ProcessPolicy, RetryDelays, Sandbox, Secret, Serves,
    SessionPolicy, SystemNames, TransportSettings,
};
