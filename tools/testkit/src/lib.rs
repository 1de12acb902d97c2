//! The tools of the tests: a scripted MCP server, an issuer of tokens, an authorization server, raw
//! clients, and the harness that starts the real `fanlight` binary.
//!
//! They use none of Fanlight's crates: tests see the product only from outside. They read JSON with
//! their own small [`slicer`], so that a mistake in Fanlight's JSON code cannot hide itself. The
//! crate is only a dev-dependency (`tests/integration/layers.rs` checks both).
//!
//! Tests wait for events, never for time; every wait fails after [`harness::PATIENCE`] and prints
//! the events until then.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is how a test fails; clippy.toml allows it only inside test functions, not in their tools"
)]

pub mod authorization_server;
pub mod browser;
pub mod generated;
pub mod generator;
pub mod harness;
pub mod identity_provider;
pub mod issuer;
mod patience;
pub mod ports;
pub mod programs;
pub mod raw_client;
pub mod recorder;
mod revisions;
pub mod schema;
pub mod scripted;
pub mod signing_in;
pub mod slicer;
pub mod tls;
pub mod usage;
pub mod wire;
