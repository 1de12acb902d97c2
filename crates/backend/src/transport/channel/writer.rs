//! The interface with which a [`Channel`](super::Channel) sends messages.

use std::future::Ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Revision;
use fanlight_telemetry::Propagation;
use futures_util::future::BoxFuture;
use futures_util::future::Either;

use crate::request::ActiveRequest;
use crate::request::deadline::PausableDeadline;
use crate::request::server_request::ServerRequestReply;
use fanlight_canonical::{BackendError, Pending};

/// Sends messages to one server.
pub(crate) trait MessageWriter: Send + Sync {
    /// Begins to send a message; waits while the queue is full. `of` is the request and its trace
    /// context, for the message's headers, if the transport has headers. `deadline` belongs to the
    /// message's call. It is notified once part of the message may have been written.
    fn begin(
        &self,
        text: Bytes,
        revision: Revision,
        of: Option<(&Propagation, &ActiveRequest<'_>)>,
        deadline: Option<&Arc<PausableDeadline>>,
    ) -> Begun<'_>;

    /// Sends the reply to a server's request. The call stays paused until the reply has been sent,
    /// or until the server has it.
    fn reply(&self, reply: ServerRequestReply, revision: Revision) -> Pending<'_, ()>;

    /// Sends a message without waiting; returns false if it was dropped because the queue is full.
    fn send_detached(&self, text: Bytes, revision: Revision) -> bool;

    /// Finishes sending a message in the background; its outcome is not needed.
    fn detach(&self, sending: SendFuture);

    /// The error of requests after the transport's end.
    fn end_error(&self) -> BackendError;
}

/// Resolves once the server has accepted or refused a message.
pub(crate) type SendFuture = BoxFuture<'static, Result<Sent, BackendError>>;

/// The outcome of [`MessageWriter::begin`]: `None` if the server neither accepts nor refuses
/// messages. Most are ready at once, without an allocation.
pub(crate) type Begun<'a> =
    Either<Ready<Result<Option<SendFuture>, BackendError>>, Pending<'a, Option<SendFuture>>>;

/// The server's reaction to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Accepted,
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The pause that the server asks for.
        pause: Option<Duration>,
    },
}
