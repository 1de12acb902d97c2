//! Sends messages to one client, in order.

use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::json::on_one_line;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Outbound;
use crate::eras::fault;
use crate::ingress::Refusal;
use crate::trace::Ending;

/// Sends messages to a client; waits while its queue is full.
pub(super) struct ClientSender {
    queue: mpsc::Sender<Outbound>,
    /// The longest wait; `None` for no limit.
    timeout: Option<Duration>,
    /// Cancelled when the client does not read its messages in time.
    cut: CancellationToken,
}

impl ClientSender {
    pub(super) fn new(
        queue: mpsc::Sender<Outbound>,
        timeout: Option<Duration>,
        cut: CancellationToken,
    ) -> Self {
        Self {
            queue,
            timeout,
            cut,
        }
    }

    pub(super) async fn refuse(&self, refusal: Refusal) {
        let text = fault::message(refusal.id.as_ref(), &refusal.error).into_bytes();
        self.send(text, refusal.ending).await;
    }

    pub(super) async fn send(&self, message: Bytes, ending: Option<Box<Ending>>) {
        let sent = self.queue.send(Outbound {
            text: on_one_line(&message),
            ending,
        });
        // An error means that the client is gone.
        match self.timeout {
            None => drop(sent.await),
            Some(limit) if timeout(limit, sent).await.is_err() => {
                tracing::debug!(?limit, "client disconnected: it does not read its messages");
                self.cut.cancel();
            }
            Some(_) => {}
        }
    }
}
