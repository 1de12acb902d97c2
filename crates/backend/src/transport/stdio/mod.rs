//! The stdio transport: one child process, and a channel to it that all requests share.
//!
//! Four things run for a process: the caller's future, the writer of its standard input, the
//! reader of its standard output together with the minder of its life ([`process`]), and the
//! reader of its standard error.

mod child;
mod environment;
mod process;
mod reader;
mod stderr;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

pub(crate) use self::child::find_program;
use self::writer::LineQueue;
use crate::process_log::ProcessLog;
use crate::request::TransportContext;
use crate::settings::{ProcessPolicy, Secret};
use crate::transport::channel::Channel;
use fanlight_canonical::BackendError;

/// Messages that wait to be written at most; senders wait while there are so many. No option: waiting for this queue is
/// part of the time of a call, as waiting for the pipe is.
const OUTGOING: usize = 256;

/// How a process is started.
pub(crate) struct ProcessSettings {
    /// The name of the backend.
    pub(crate) name: Arc<str>,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    /// Variables set over the inherited ones.
    pub(crate) env: Vec<(String, Secret)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) policy: ProcessPolicy,
    /// How long it has to end after SIGTERM.
    pub(crate) grace: Duration,
}

/// Starts a process, which ends with the channel to it. `number` is set to that of the process in the log.
pub(crate) async fn start(
    settings: &ProcessSettings,
    context: Arc<TransportContext>,
    number: &AtomicU64,
) -> Result<Channel, BackendError> {
    let spawned = child::spawn(settings).await?;
    let log = ProcessLog::process(&context.process_log, spawned.process.id());
    number.store(log.number(), Ordering::Relaxed);
    let (outgoing, queue) = mpsc::channel(OUTGOING);
    let channel = Channel::new(LineQueue(outgoing), context);
    process::run(spawned, queue, log, channel.shared());
    Ok(channel)
}
