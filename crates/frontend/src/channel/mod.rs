//! A client whose messages all go through one ordered channel, whatever they answer: standard input and
//! output, and the stream of the deprecated HTTP+SSE transport of 2024-11-05.

mod connection;
mod line_memory;
mod sender;
pub(crate) mod stdio;
mod view;

use std::any::Any;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

pub(crate) use self::connection::ChannelConnection;
use crate::trace::Ending;

/// The number of messages that wait to be taken by the client. No option: who sends waits, so that it bounds memory and
/// loses nothing.
pub(crate) const QUEUE: usize = 16;

/// A message to the client, and the span that ends when it has been sent.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) text: Bytes,
    pub(crate) ending: Option<Box<Ending>>,
}

/// What distinguishes one kind of channel from another.
#[derive(Default)]
pub(crate) struct ChannelOptions {
    /// Whether the channel is of a transport that no modern revision has.
    pub(crate) legacy_only: bool,
    /// How long the queue may stay full before the client is disconnected; for ever if absent.
    pub(crate) write_timeout: Option<Duration>,
    /// Ends everything that runs, without answers.
    pub(crate) cut: CancellationToken,
    /// Makes a guard that each request holds while it runs.
    pub(crate) running: Option<RunningHook>,
}

/// Makes a guard for a running request.
pub(crate) type RunningHook = Box<dyn Fn() -> Box<dyn Any + Send> + Send + Sync>;
