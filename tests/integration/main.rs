//! The integration tests: the real `fanlight` binary between real peers, over loopback and pipes.
//!
//! Tools first (`harness`, `raw_client`, `scripted`, `rmcp_peers`, `generator`), each with tests of its own, then the
//! tests of the gateway. Nothing here depends on Fanlight's crates. Waits are for events, never for time; every wait
//! ends after [`harness::PATIENCE`] with what had happened until then.

mod faults;
mod fidelity;
mod generator;
mod harness;
mod http_rules;
mod layers;
mod matrix;
mod raw_client;
mod rmcp_peers;
mod scripted;
