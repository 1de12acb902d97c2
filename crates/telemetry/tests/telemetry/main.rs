//! Telemetry in use by other parts of the repository: its documentation, the files in deploy/, and
//! a gateway without tracing.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lint knows test functions only, not their helpers"
)]

mod deploy;
mod docs;
mod off;
