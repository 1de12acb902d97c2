//! The way to one client: everything that is said to it, in the order in which it is said.
//!
//! Must not know: what carries the messages, or how an answer came about.

use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::json::on_one_line;
use fanlight_protocol::{Json, Response, RpcError};
use fanlight_telemetry::ServerSpan;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::OutLine;
use crate::fault;
use crate::render::Rendering;
use crate::trace::Ending;

/// Sends messages to a client. Waits for room where too many wait to be taken.
pub(crate) struct Outlet {
    lines: mpsc::Sender<OutLine>,
    /// How long to wait; for ever if absent.
    patience: Option<Duration>,
    /// Cancelled when the client does not take what it is sent.
    cut: CancellationToken,
}

impl Outlet {
    pub(crate) fn new(lines: mpsc::Sender<OutLine>, patience: Option<Duration>, cut: CancellationToken) -> Self {
        Self { lines, patience, cut }
    }

    /// Sends the answer to a request, whose span ends once it has gone.
    pub(crate) async fn answer(&self, rendering: &Rendering, response: &Response, span: ServerSpan) {
        let ending = Ending::answered(span, &rendering.method, response);
        self.send_line(rendering.message(response).into_bytes(), Some(ending)).await;
    }

    /// Refuses a request, likewise.
    pub(crate) async fn refuse_request(&self, id: &Json, error: &RpcError, span: ServerSpan) {
        let ending = Ending::refused(span, error);
        self.send_line(fault::message(Some(id), error).into_bytes(), Some(ending)).await;
    }

    /// Refuses what is no request that could be taken.
    pub(crate) async fn refuse(&self, id: Option<&Json>, error: &RpcError) {
        self.send(fault::message(id, error).into_bytes()).await;
    }

    /// Sends anything else.
    pub(crate) async fn send(&self, message: Bytes) {
        self.send_line(message, None).await;
    }

    async fn send_line(&self, message: Bytes, ending: Option<Ending>) {
        let sent = self.lines.send(OutLine { text: on_one_line(&message), ending });
        // An error means that the client is gone, and with it whoever would want to know.
        match self.patience {
            None => drop(sent.await),
            Some(patience) if timeout(patience, sent).await.is_err() => {
                tracing::debug!("a client that does not read what it is sent is cut off");
                self.cut.cancel();
            }
            Some(_) => {}
        }
    }
}
