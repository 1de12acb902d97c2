//! A fake MCP server of either era. It is cheap, so that the benchmark does not measure it, and
//! deterministic, so that every byte of its answers can be checked.
//!
//! Over HTTP it answers `tools/call`, `tools/list` and the opening of its era, and holds streams
//! open (`GET`, `subscriptions/listen`). Over stdio it answers the same requests, one per line. The
//! benchmark also uses `GET /stats` (counters), `POST /emit` (one notification on every open
//! stream) and `POST /v1/traces` (a collector that discards traces).
//!
//! The scripted server of `testkit` would not do: it records every message and looks up its rules
//! for each, which would dominate the measurement.

mod bounce;
mod http;
pub(crate) mod payload;
pub(crate) mod rpc;
pub(crate) mod stdio;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::era::Era;
use crate::error::{BenchError, Doing, Result};

/// The options of the fake server.
#[derive(Clone, Debug, Args)]
pub(crate) struct FakeArgs {
    /// The era it speaks
    #[arg(long, value_enum, default_value = "modern")]
    pub(crate) era: Era,
    /// Number of servers, each at its own address
    #[arg(long, default_value_t = 1)]
    pub(crate) servers: usize,
    /// Tools in each server's list
    #[arg(long, default_value_t = 50)]
    pub(crate) tools: usize,
    /// Milliseconds it takes to answer the opening and a list
    #[arg(long, default_value_t = 0)]
    pub(crate) delay_ms: u64,
    /// Milliseconds between restarts, each of another server; 0 for none
    #[arg(long, default_value_t = 0)]
    pub(crate) bounce_ms: u64,
}

impl FakeArgs {
    /// This many servers with 50 tools each, which answer at once.
    pub(crate) fn plain(era: Era, servers: usize) -> Self {
        Self {
            era,
            servers,
            tools: 50,
            delay_ms: 0,
            bounce_ms: 0,
        }
    }
}

/// The answer to `GET /stats`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Stats {
    pub(crate) lists: u64,
    /// Bytes of traces received as a collector.
    pub(crate) exported: u64,
    pub(crate) streams: usize,
}

/// Listens at free ports, prints the addresses, and serves until the process ends.
pub(crate) async fn serve(args: &FakeArgs) -> Result<()> {
    let (listeners, addresses) = listen(args.servers).await?;
    let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    println!("{LISTENING}{}", words.join(" "));
    run(args, listeners).await
}

/// The text before the addresses in the one line that the server prints.
pub(crate) const LISTENING: &str = "listening at ";

pub(crate) async fn listen(count: usize) -> Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        addresses.push(listener.local_addr().doing("a listener's address")?);
        listeners.push(listener);
    }
    Ok((listeners, addresses))
}

/// A listener with a queue for thousands of clients that connect at once.
fn bind(address: SocketAddr) -> Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4().doing("opening a socket")?;
    socket.set_reuseaddr(true).doing("setting up a socket")?;
    socket.bind(address).doing("binding a socket")?;
    socket.listen(4096).doing("listening")
}

/// Serves on all listeners until the future is dropped.
pub(crate) async fn run(args: &FakeArgs, listeners: Vec<TcpListener>) -> Result<()> {
    let shared = Arc::new(http::Shared::new(args));
    let mut serving = tokio::task::JoinSet::new();
    let (count, every) = (
        u32::try_from(listeners.len()).unwrap_or(u32::MAX),
        Duration::from_millis(args.bounce_ms),
    );
    for (number, listener) in (0..).zip(listeners) {
        serving.spawn(bounce::serve(
            listener,
            (number, count),
            every,
            Arc::clone(&shared),
        ));
    }
    match serving.join_next().await {
        Some(Ok(Err(error))) => Err(error),
        _ => Err(BenchError::Other("the fake server has ended".into())),
    }
}
