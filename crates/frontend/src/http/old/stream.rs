//! The stream of one session of the HTTP+SSE transport, which is the session: it ends with it.
//!
//! Must not know: how an event is written.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::sessions::Place;
use crate::channel::{Connection, OutLine};
use fanlight_canonical::Core;

/// See the module.
pub(crate) struct OldStream {
    messages: mpsc::Receiver<OutLine>,
    /// Holds the session. Resolves once it is over; `None` after that.
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl OldStream {
    /// The stream that carries `messages` of `connection`. Once `shutdown` is cancelled it ends with
    /// the answer to the last request that is running.
    pub(super) fn new<C: Core>(
        messages: mpsc::Receiver<OutLine>,
        connection: Arc<Connection<C>>,
        place: Place<C>,
        shutdown: CancellationToken,
    ) -> Self {
        let end = async move {
            let _place = place;
            let drained = async {
                shutdown.cancelled().await;
                connection.close();
                connection.finished().await;
            };
            tokio::select! { () = drained => {} () = connection.is_cut() => {} }
        };
        Self { messages, end: Some(Box::pin(end)) }
    }

    /// The next message; `None` once the session is over.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<OutLine>> {
        if let Poll::Ready(text) = self.messages.poll_recv(cx) {
            return Poll::Ready(text);
        }
        if let Some(end) = &mut self.end {
            std::task::ready!(end.as_mut().poll(cx));
            self.end = None;
        }
        // What was sent last may have come since.
        Poll::Ready(self.messages.try_recv().ok())
    }
}

impl std::fmt::Debug for OldStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OldStream").field("ended", &self.end.is_none()).finish_non_exhaustive()
    }
}
