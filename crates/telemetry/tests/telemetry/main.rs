//! Telemetry as other parts of the repository use it: its documentation, the files in deploy/, and a gateway without tracing.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lint knows test functions only, not their helpers"
)]

mod deploy;
mod docs;
mod off;
