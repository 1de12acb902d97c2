//! The destination of a scripted server's messages.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Mutex, mpsc};

use crate::wire::{self, Command};

/// Parts of an event stream; `None` ends it regularly.
pub(super) type Events = mpsc::Sender<Option<io::Result<Bytes>>>;

/// The destination of messages.
#[derive(Clone)]
pub(super) enum Channel {
    Events(Events),
    Lines(Arc<Output>),
}

impl Channel {
    pub(super) async fn message(&self, message: &str) {
        match self {
            // The client may have disconnected; a test that waits for it notices.
            Self::Events(events) => {
                let _ = events.send(Some(Ok(event(message).into()))).await;
            }
            Self::Lines(output) => output.line(message).await,
        }
    }
}

pub(super) fn event(message: &str) -> String {
    format!("event: message\ndata: {message}\n\n")
}

/// Sends to the standard output of one child.
pub(super) struct Output(Mutex<OwnedWriteHalf>);

impl Output {
    pub(super) fn new(to_child: OwnedWriteHalf) -> Self {
        Self(Mutex::new(to_child))
    }

    pub(super) async fn line(&self, message: &str) {
        self.send(Command::Stdout, format!("{message}\n").as_bytes())
            .await;
    }

    pub(super) async fn send(&self, command: Command, payload: &[u8]) {
        let mut frame = wire::frame_head(command, payload.len().try_into().unwrap()).to_vec();
        frame.extend_from_slice(payload);
        // The child may have exited, by a fault of the test or by the gateway; the test notices
        // that elsewhere.
        let _ = self.0.lock().await.write_all(&frame).await;
    }
}
