//! What the integration tests and the child processes they start have in common.
//!
//! Nothing here uses Fanlight's own crates: the tests see the product from outside only, and read JSON with their own
//! small [`slicer`], so that a mistake in the product's cannot hide itself.

pub mod rmcp_server;
pub mod slicer;
pub mod wire;
