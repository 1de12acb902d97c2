//! Several gateways that share one Valkey: real processes, a real `valkey-server`, and faults
//! between them.
//!
//! `tests/replicas/run` installs the server and runs these tests; `VALKEY_SERVER` names the
//! program. No event announces some conditions, such as the end of a lease. Tests poll for these
//! within [`harness::PATIENCE`].

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is how a test fails; clippy.toml allows it only inside test functions, not in their tools"
)]

mod balancer;
mod certificates;
mod chaos;
mod cost;
mod fleet;
mod forwarding;
mod grants;
mod group;
mod limits;
mod linked;
mod listening;
mod load;
mod made_tasks;
mod membership;
mod once;
mod pins;
mod proxy;
mod results;
mod rolling;
mod scale;
mod server_sessions;
mod servers;
mod stateless;
mod switches;
mod taking_over;
mod tasks;
mod valkey;

use fanlight_testkit::{harness, ports, raw_client, scripted, signing_in, tls};
