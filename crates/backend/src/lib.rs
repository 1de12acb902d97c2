//! Connections to MCP servers: transports, the handshake that determines a server's era, and
//! supervision.
//!
//! All differences between eras and between transports of servers end in this crate. [`Backend`] is
//! one server; the core sees it as a [`fanlight_canonical::BackendClient`]. A call passes through
//! these modules, each of which uses only those below it:
//!
//! | module | its part in a call |
//! |---|---|
//! | `per_principal` | chooses the principal's server, if each principal has own credentials or an own process |
//! | `replicas` | chooses the endpoint, if the server has several |
//! | `backend` | implements `BackendClient` with the modules below |
//! | `tasks` | translates between the two dialects of tasks, if client and server differ |
//! | `concurrency` | lets the call wait for a permit; clients share permits fairly |
//! | `sessions` | limits the call's time, and chooses a connection that its client may use |
//! | `connection` | makes it a request of the server's era, and judges the reply |
//! | `transport` | sends the request and reads the reply, over HTTP, stdio or the legacy SSE transport |
//! | `request` | the request with its deadline, span, era's dialect and server requests |
//!
//! Beside them, `handshake` makes connections, and `listening` and `subscriptions` keep up and
//! distribute messages that servers send outside of calls.

mod backend;
mod concurrency;
mod connection;
pub mod credentials;
mod handshake;
mod health;
mod listening;
mod log;
mod memory;
mod names;
mod open_wishes;
mod outage;
mod per_principal;
mod process_log;
mod remedy;
mod repeats;
mod replicas;
mod request;
mod server;
mod sessions;
pub mod settings;
mod subscriptions;
mod tasks;
mod transport;

pub use backend::{Backend, BackendLife};
pub use fanlight_http::client::worker;
pub use memory::MessageMemory;
pub use names::{LookUp, SystemNames};
pub use per_principal::{BackendApart, BackendPerPrincipal};
pub use repeats::Repeats;
pub use replicas::Replicas;
pub use server::Server;
pub use settings::{
    BackendLimits, BackendSettings, BackendTimeouts, Endpoints, EraChoice, HealthPolicy,
    KnownServer, Landlock, ProcessPolicy, RetryDelays, Sandbox, Secret, Serves, SessionPolicy,
    TelemetrySettings, TransportSettings,
};
