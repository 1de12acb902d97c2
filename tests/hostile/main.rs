//! Attacks on the real `fanlight` binary by clients and servers.
//!
//! Each attack has bounds: the gateway's memory and processor time, the duration, and the effect on
//! a second client that calls meanwhile ([`target::Target`]). An attack has variants, and fails if
//! the gateway exceeds the bounds, even if it answers correctly.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is how a test fails; clippy.toml allows it only inside test functions, not in their tools"
)]

mod arguments;
mod batches;
mod browser;
mod busy_peers;
mod bystander;
mod credentials;
mod endpoints;
mod fairness;
mod few_files;
mod filters;
mod framing;
mod handles;
mod http1;
mod http2;
mod identity_providers;
mod json;
mod lists;
mod member_names;
mod memory;
mod mirrors;
mod mix_up;
mod operators;
mod peers;
mod pins;
mod policy;
mod policy_changes;
mod private_lists;
mod process_state;
mod recordings;
mod redirects;
mod replicas;
mod request_state;
mod retries;
mod server_messages;
mod sessions;
mod signing_in;
mod slow_readers;
mod suspended_calls;
mod target;
mod tasks;
mod terminal;
mod tls;
mod tokens;
mod uris;
mod web_pages;

use fanlight_testkit::{harness, raw_client, scripted};
