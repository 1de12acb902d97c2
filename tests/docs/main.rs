//! Checks that the documentation is true: its links lead somewhere, its configurations are valid,
//! and its commands run.
//!
//! The first word after the fence of a block is its language, as usual. The words after it, which
//! no page shows, say how the block is checked (`block.rs` lists them). A block without such a word
//! fails the test. No check needs the network.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is how a test fails; clippy.toml allows it only inside test functions, not in their tools"
)]

mod api;
mod block;
mod cargo;
mod channels;
mod examples;
mod links;
mod page;
mod promises;
mod shell;
mod workflows;
