//! Clients whose messages all go through one ordered channel: stdio, and the deprecated HTTP+SSE
//! transport of 2024-11-05.

mod connection;
pub(crate) mod stdio;
mod view;

use std::any::Any;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Era;
use tokio_util::sync::CancellationToken;

pub(crate) use self::connection::ChannelConnection;
use crate::trace::Ending;

/// The number of messages that wait for the client. A constant, since a full queue makes senders
/// wait: it bounds memory and loses nothing.
pub(crate) const QUEUE: usize = 16;

/// A message to the client, and the end of its span.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) text: Bytes,
    pub(crate) ending: Option<Box<Ending>>,
}

/// The differences between the kinds of channels.
#[derive(Default)]
pub(crate) struct ChannelOptions {
    /// The era of requests that are served; `None` for both.
    pub(crate) only: Option<Era>,
    /// How long the queue may stay full before the client is disconnected; `None` for no limit.
    pub(crate) write_timeout: Option<Duration>,
    /// Cancelling this token ends everything without answers.
    pub(crate) cut: CancellationToken,
    /// Makes a guard for each running request.
    pub(crate) running: Option<RunningHook>,
}

/// Makes a guard for a running request.
pub(crate) type RunningHook = Box<dyn Fn() -> Box<dyn Any + Send> + Send + Sync>;
