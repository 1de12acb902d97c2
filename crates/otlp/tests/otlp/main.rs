//! The export over HTTP and gRPC to the tests' collectors.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "the lint knows test functions only, not their helpers"
)]

mod export;
#[cfg(feature = "grpc")]
mod grpc;
mod receiver;
