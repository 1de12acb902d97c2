//! The front end over real sockets and streams, in front of a scripted core.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod batches;
mod client;
mod core;
mod gateway;
mod get_stream;
mod http_legacy;
mod http_limits;
mod http_modern;
mod http_streams;
mod input_rounds;
mod missing_capability;
mod principals;
mod protection;
mod record;
mod resume;
mod server_requests;
mod sse_transport;
mod stdio;
mod streams;
mod subscriptions;
mod suspended;
mod tasks;
mod validity;
