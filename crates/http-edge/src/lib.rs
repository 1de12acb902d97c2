//! The parts that every HTTP listener needs: an [accept loop](accept) with a connection limit and graceful shutdown,
//! [HTTP/1.1 on one connection](serve_http1) with timeouts, and a [`Guard`] for `Host` and `Origin`.

mod accept;
mod connection;
mod guard;
mod limit;

pub use accept::{AcceptLimits, accept, accept_and_spawn};
pub use connection::{Http1Limits, serve_http1};
pub use guard::{Guard, Origins, Rejection};
pub use limit::{ConcurrencyLimit, Permit};
