//! The admin listener over real connections, in front of a core with scripted servers.

// A test fails by panicking, also in its helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod approvals;
mod asking;
mod attended;
mod calls;
mod events;
mod issuer;
mod operations;
mod people;
mod replicas;
mod roles;
mod scene;
mod sign_in;
mod traces;
