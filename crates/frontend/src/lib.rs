//! Where clients arrive: the HTTP listener, stdio, and everything that differs between client eras.
//!
//! A message is taken off its transport, checked by the rules of its era, handed to the core in
//! canonical form, and the answer gets what the client's revision requires and nothing else. The
//! straight line of one POST is in `http/mcp.rs` and `http/request.rs`, that of one message on a
//! channel in `channel/connection.rs`.
//!
//! Must not know: how many backends there are, what they speak, or how an answer came about.

mod cancel;
mod channel;
mod conversation;
mod describe;
mod era;
mod error;
mod event;
#[cfg(test)]
mod fake_core;
mod fault;
mod hearing;
mod http;
mod input;
mod insight;
mod legacy;
mod modern;
mod notify;
mod params;
mod park;
mod questions;
mod relay;
mod render;
mod running;
mod session;
mod settings;
mod source;
mod stdio;
mod streams;
mod subscription;
mod trace;
mod unroll;

pub use error::FrontendError;
pub use http::{serve_http, serve_http_observed};
pub use insight::Insight;
pub use settings::FrontendSettings;
pub use stdio::{serve_stdio, serve_stdio_observed};
