//! The interface that a [`Channel`](super::Channel) uses to send messages.

use std::future::Ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Revision;
use fanlight_telemetry::Propagation;
use futures_util::future::Either;

use crate::request::deadline::PausableDeadline;
use crate::request::server_request::ServerRequestReply;
use fanlight_canonical::{BackendError, Pending};

/// Sends messages to one server.
pub(crate) trait MessageWriter: Send + Sync {
    /// Begins to send a message, waiting while a queue is full. `propagation` is the trace context for its headers, if
    /// the transport has headers. `deadline` is that of the call whose request it is: once something of the message may
    /// have been written, it is told so.
    fn begin(
        &self,
        text: Bytes,
        revision: Option<Revision>,
        propagation: Option<&Propagation>,
        deadline: Option<&Arc<PausableDeadline>>,
    ) -> Begun<'_>;

    /// Sends the reply to a request of the server. The call stays paused until it is sent, or until the server has it.
    fn reply(&self, reply: ServerRequestReply, revision: Option<Revision>) -> Pending<'_, ()>;

    /// Sends a message without waiting for anything; returns false if it was dropped because too many are queued.
    fn send_detached(&self, text: Bytes, revision: Option<Revision>) -> bool;

    /// Lets a message be sent to its end whose outcome is not needed.
    fn detach(&self, sending: SendFuture);

    /// The error of requests after the transport has ended.
    fn ended(&self) -> BackendError;
}

/// Resolves once the server has accepted or refused a message.
pub(crate) type SendFuture = Pin<Box<dyn Future<Output = Result<Sent, BackendError>> + Send>>;

/// The outcome of [`MessageWriter::begin`]: `None` if the server neither accepts nor refuses messages. Most are ready at
/// once, and need no allocation.
pub(crate) type Begun<'a> =
    Either<Ready<Result<Option<SendFuture>, BackendError>>, Pending<'a, Option<SendFuture>>>;

/// What the server did with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Accepted,
    Rejected {
        /// The HTTP status.
        status: u16,
        /// How long the server asks to be left alone.
        pause: Option<Duration>,
    },
}
