//! The front end over real sockets and streams, before a core that does what its test says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod batches;
mod client;
mod core;
mod get_stream;
mod http_legacy;
mod http_limits;
mod http_modern;
mod http_streams;
mod missing_capability;
mod old_sse;
mod parked;
mod principals;
mod relayed;
mod resume;
mod stdio;
mod streams;
mod subscriptions;
mod tasks;
mod unrolled;
