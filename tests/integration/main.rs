//! The integration tests: the real `fanlight` binary between peers, over loopback and pipes.
//!
//! Their tools are in `fanlight_testkit`, except `rmcp_peers`. None depends on Fanlight's other
//! crates. Tests wait for events, never for time; every wait fails after [`harness::PATIENCE`] and
//! prints the events until then.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is how a test fails; clippy.toml allows it only inside test functions, not in their tools"
)]

#[macro_use]
mod combinations;

mod admin;
mod aggregate;
mod approvals;
mod audit;
mod authorization;
mod batches;
mod cancellation;
mod cli;
mod client_files;
mod client_notifications;
mod clients;
mod commands;
mod concurrency;
mod connect_tool;
mod demo;
mod endpoints;
mod exchanged;
mod extension_entries;
mod failed_starts;
mod faults;
mod fidelity;
mod forwarded_headers;
mod grants_on_record;
mod health;
mod hooks;
mod http_recorder;
mod http_rules;
mod identities;
mod identity_providers;
mod kept_lists;
mod keys;
mod layers;
mod lean;
mod listener_rules;
mod listening;
mod log_backpressure;
mod logging;
mod many_clients;
mod matrix;
mod missing_capability;
mod mock;
mod modern_requests;
mod module_cycles;
mod not_run;
mod not_run_over_tls;
mod notify;
mod observe;
mod operators;
mod options;
mod overriding;
mod paging;
mod patterns;
mod policy;
mod policy_cost;
mod principal_processes;
mod processes;
mod rates;
mod recordings;
mod reload;
mod replicas;
mod results;
mod retries;
mod rmcp_peers;
mod running_calls;
mod sandbox;
mod secrets;
mod server_credentials;
mod server_faults;
mod server_lives;
mod server_requests;
mod sessions;
mod shutdown;
mod signing_in;
mod signing_in_by_url;
mod silent_connections;
mod single_starts;
mod sse_transport;
mod standard_streams;
mod starting;
mod streams;
mod tasks;
mod terminal;
mod tls;
mod tokens;
mod tracing;
mod trusted_proxies;
mod type_names;
mod unix_sockets;
mod user_processes;
mod versions;
mod witness;

use fanlight_testkit::{generator, harness, raw_client, schema, scripted};
