//! The edge towards MCP servers: transports, the handshake that finds a server's era, and supervised connections.
//!
//! All differences between eras and between transports of servers end in this crate. [`Backend`] is one server; the core
//! sees it as a [`fanlight_canonical::BackendClient`]. A call passes through these modules, each of which uses only those
//! below it:
//!
//! | module | what it does for a call |
//! |---|---|
//! | `per_principal` | chooses the server of its principal, where each has credentials or a process of its own |
//! | `replicas` | chooses the endpoint, where the server has several |
//! | `backend` | implements `BackendClient` by the others |
//! | `tasks` | translates between the two dialects of tasks, where client and server differ |
//! | `concurrency` | lets it wait for a permit, shared fairly among clients |
//! | `sessions` | bounds its time, and chooses the connection that its client may use |
//! | `connection` | makes it a request of the server's era, and judges the reply |
//! | `transport` | sends the request and reads the reply, over HTTP, stdio or the legacy SSE transport |
//! | `request` | the request and what belongs to it: deadline, span, era's dialect, requests of the server |
//!
//! Beside them, `handshake` makes connections, and `listening` and `subscriptions` keep up and distribute what servers send
//! outside of calls.

mod backend;
mod backoff;
mod concurrency;
mod connect_tool;
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
pub use fanlight_http_pool::worker;
pub use memory::MessageMemory;
pub use names::{LookUp, SystemNames};
pub use per_principal::{BackendApart, BackendPerPrincipal};
pub use repeats::Repeats;
pub use replicas::Replicas;
pub use server::Server;
pub use settings::{
    BackendLimits, BackendSettings, BackendTimeouts, EndpointUrl, Endpoints, EraChoice,
    HealthPolicy, Identity, KnownServer, Landlock, PollIntervals, ProcessPolicy, RetryDelays,
    Sandbox, Secret, Serves, SessionPolicy, TelemetrySettings, TransportSettings,
};
