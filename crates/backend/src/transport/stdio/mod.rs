//! The stdio transport: one child process, and a channel to it that all requests share.
//!
//! Four parts run for a process: the caller's future, the writer of standard input, the reader of
//! standard output and the reader of standard error. The reader of standard output also minds the
//! process's life ([`process`]).

mod child;
mod process;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::process_log::ProcessLog;
use crate::request::TransportContext;
use crate::settings::{ProcessPolicy, Secret};
use crate::transport::channel::Channel;
pub(crate) use child::find_program;
use fanlight_canonical::BackendError;
use writer::LineQueue;

/// The maximum number of messages that wait to be written; senders wait while the queue is full. A
/// constant: this wait is part of the call's time, like a wait for the pipe.
const OUTGOING: usize = 256;

/// The settings for starting a process.
pub(crate) struct ProcessSettings {
    /// The server's name.
    pub(crate) name: Arc<str>,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    /// Variables that override the inherited ones.
    pub(crate) env: Vec<(String, Secret)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) policy: ProcessPolicy,
    /// The time to end after SIGTERM.
    pub(crate) grace: Duration,
}

/// Starts a process that ends with its channel. Sets `number` to the process's number in the log.
pub(crate) async fn start(
    settings: &ProcessSettings,
    context: Arc<TransportContext>,
    number: &AtomicU64,
) -> Result<Channel, BackendError> {
    let spawned = child::spawn(settings).await?;
    let log = ProcessLog::process(&context.process_log, spawned.process.id());
    let owner = settings.policy.owner.clone();
    log.set_owner(owner.unwrap_or_else(|| context.outlet.owner()));
    number.store(log.number, Ordering::Relaxed);
    let (outgoing, queue) = mpsc::channel(OUTGOING);
    let channel = Channel::new(LineQueue(outgoing), context);
    process::run(spawned, queue, log, &channel.shared);
    Ok(channel)
}
