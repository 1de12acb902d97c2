//! Code that the integration tests share with the child processes that they start.
//!
//! It does not use Fanlight's crates: the tests see the product from outside only, and read JSON with their own small
//! [`slicer`], so that a mistake in Fanlight's JSON code cannot hide itself.

pub mod rmcp_server;
pub mod slicer;
pub mod wire;
