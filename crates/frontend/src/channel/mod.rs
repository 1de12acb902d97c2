//! One client on one channel: every message to it goes the same way, whatever it answers, and every
//! message from it is taken one by one. Standard input and output are such a channel, and so is the
//! deprecated HTTP+SSE transport of 2024-11-05.
//!
//! Must not know: how messages are framed or carried.

mod connection;
mod hear;
mod outlet;
mod shown;

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

pub(crate) use self::connection::Connection;
use crate::trace::Ending;

/// Messages that wait to be taken by the client.
pub(crate) const QUEUE: usize = 16;

/// A message for the client, and the span that ends when it has been sent.
#[derive(Debug)]
pub(crate) struct OutLine {
    pub(crate) text: Bytes,
    pub(crate) ending: Option<Ending>,
}

/// What distinguishes one kind of channel from another.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The channel is of a transport that no modern revision has.
    pub(crate) legacy_only: bool,
    /// How long a client may leave the queue full before it is cut off; for ever if absent.
    pub(crate) patience: Option<Duration>,
    /// Ends whatever runs, without answers.
    pub(crate) cut: CancellationToken,
}
