//! Connections to real peers: HTTP servers in this process, and scripted child processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code"
)]

mod continued_sessions;
mod credentials;
mod eras;
mod http_calls;
mod http_era;
mod http_failures;
mod http_questions;
mod listening_legacy;
mod listening_modern;
mod listening_sessions;
mod listening_stdio;
mod principals;
mod replicas;
mod resume;
mod sessions;
mod sse_transport;
mod stdio_calls;
mod stdio_failures;
mod stdio_questions;
mod support;
mod tasks;
mod tool_headers;
