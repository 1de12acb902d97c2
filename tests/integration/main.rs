//! The integration tests: the real `fanlight` binary between peers, over loopback and pipes.
//!
//! First the tools (`harness`, `raw_client`, `scripted`, `rmcp_peers`, `generator`), each with its own tests, then the
//! tests of the gateway. None depends on Fanlight's crates. Tests wait for events, never for time; every wait fails
//! after [`harness::PATIENCE`] and prints what has happened until then.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is how a test fails; clippy.toml allows it only inside test functions, not in their tools"
)]

mod admin;
mod batches;
mod cancellation;
mod cli;
mod clients;
mod concurrency;
mod demo;
mod faults;
mod fidelity;
mod generator;
mod harness;
mod http_rules;
mod layers;
mod listening;
mod log_backpressure;
mod logging;
mod many_clients;
mod matrix;
mod missing_capability;
mod modern_requests;
mod module_cycles;
mod observe;
mod paging;
mod processes;
mod raw_client;
mod rmcp_peers;
mod schema;
mod scripted;
mod server_requests;
mod sessions;
mod sse_transport;
mod standard_streams;
mod streams;
mod tasks;
mod tracing;
