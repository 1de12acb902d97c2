//! How messages go out on a channel: queued for whoever writes them, or each as a POST of its own.
//!
//! Must not know: what the messages say.

use std::future::{Ready, ready};
use std::pin::Pin;

use bytes::Bytes;
use fanlight_protocol::Revision;
use fanlight_protocol::json::on_one_line;
use fanlight_telemetry::Propagation;
use futures_util::TryFutureExt as _;
use futures_util::future::Either;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::http::Posts;
use crate::question::Settled;
use fanlight_canonical::BackendError;
use fanlight_canonical::Pending;

/// See the module.
pub(crate) enum Writer {
    /// A queue that the writer of a process empties.
    Queue(mpsc::Sender<Bytes>),
    /// A server of the HTTP+SSE transport.
    Posts(Box<Posts>),
}

/// A message on its way, of which it is not known yet whether the server takes it.
pub(crate) type Sending = Pin<Box<dyn Future<Output = Result<Sent, BackendError>> + Send>>;

/// What comes of beginning to send a message.
pub(super) type Begun<'a> = Either<Ready<Result<Option<Sending>, BackendError>>, Pending<'a, Option<Sending>>>;

/// What has become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The server has it.
    Taken,
    /// The server refuses it, by this HTTP status.
    Rejected(u16),
}

impl Writer {
    /// Begins to send a message; waits for room in the queue. `None` if there is no more to know.
    /// `carrying`: the trace context that goes along in headers, where there are any.
    pub(super) fn begin(&self, text: Bytes, revision: Option<Revision>, carrying: Option<&Propagation>) -> Begun<'_> {
        let begun = match self {
            // The framing allows no line break within a message.
            Self::Queue(queue) => match queue.try_send(on_one_line(&text)) {
                Ok(()) => Ok(None),
                Err(TrySendError::Closed(_)) => Err(self.ended()),
                Err(TrySendError::Full(line)) => {
                    // Rare, and large: in a box it makes no call's future larger.
                    let queued = async move { queue.send(line).await.map_err(|_| self.ended()) };
                    return Either::Right(Box::pin(queued.map_ok(|()| None)));
                }
            },
            Self::Posts(posts) => Ok(Some(posts.post(text, revision, carrying))),
        };
        Either::Left(ready(begun))
    }

    /// Sends the answer to a question of the server's. The call's time runs again once the server
    /// has it.
    pub(super) async fn answer(&self, settled: Settled, revision: Option<Revision>) -> Result<(), BackendError> {
        match self {
            Self::Queue(queue) => {
                drop(settled.pause);
                queue.send(on_one_line(&settled.text)).await.map_err(|_| self.ended())
            }
            Self::Posts(posts) => {
                posts.answer(settled, revision);
                Ok(())
            }
        }
    }

    /// Sends what nobody waits for; says whether there was room.
    pub(super) fn aside(&self, text: Bytes, revision: Option<Revision>) -> bool {
        match self {
            Self::Queue(queue) => queue.try_send(on_one_line(&text)).is_ok(),
            Self::Posts(posts) => {
                posts.aside(text, revision);
                true
            }
        }
    }

    /// The answer is there before it is known that the server took the request.
    pub(super) fn leave(&self, sending: Option<Sending>) {
        if let (Self::Posts(posts), Some(sending)) = (self, sending) {
            posts.leave(sending);
        }
    }

    /// Why nothing can be sent any more.
    pub(super) fn ended(&self) -> BackendError {
        let reason = match self {
            Self::Queue(_) => "its process has ended",
            Self::Posts(_) => "its event stream has ended",
        };
        BackendError::Unreachable { reason: reason.into() }
    }
}
