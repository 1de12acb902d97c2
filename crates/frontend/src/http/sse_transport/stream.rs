//! The stream of one HTTP+SSE session, which ends with it.
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_protocol::json::Chunks;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::sessions::SessionEntry;
use crate::call::{Answer, ResponseItem, ResponseStream};
use crate::channel::{ChannelConnection, Outbound};

/// All messages to the client of one session.
pub(crate) struct SseSessionStream {
    messages: mpsc::Receiver<Outbound>,
    /// Owns the session and resolves at its end; `None` after that.
    end: Option<BoxFuture<'static, ()>>,
}

impl SseSessionStream {
    /// The stream of `messages` of `connection`. After `shutdown` is cancelled, it ends with the
    /// answer to the last running request.
    pub(super) fn new(
        messages: mpsc::Receiver<Outbound>,
        connection: Arc<ChannelConnection>,
        entry: SessionEntry,
        shutdown: CancellationToken,
    ) -> Self {
        let end = async move {
            let _entry = entry;
            let drained = async {
                shutdown.cancelled().await;
                connection.close();
                connection.finished().await;
            };
            tokio::select! { () = drained => {} () = connection.is_cut() => {} }
        };
        Self {
            messages,
            end: Some(Box::pin(end)),
        }
    }
}

impl ResponseStream<Answer> for SseSessionStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ResponseItem<Chunks, Answer>>> {
        let item = |Outbound { text, ending }| {
            ResponseItem::Response(Answer {
                text: text.into(),
                error: None,
                ending,
            })
        };
        if let Poll::Ready(message) = self.messages.poll_recv(cx) {
            return Poll::Ready(message.map(item));
        }
        if let Some(end) = &mut self.end {
            std::task::ready!(end.as_mut().poll(cx));
            self.end = None;
        }
        // The last messages may have been sent in the meantime.
        Poll::Ready(self.messages.try_recv().ok().map(item))
    }
}
