//! A stream of the scripted server that its test writes piece by piece.

use std::io;
use std::sync::Arc;

use crate::slicer;
use bytes::Bytes;

use super::channel::{Channel, Events, Output};
use super::{Received, Shared, response};
use crate::patience::within;

/// An open stream to one client: an event stream over HTTP, or the standard output of one child.
#[derive(Clone)]
pub struct Stream {
    /// The opening request, or `HTTP GET` with its headers.
    pub request: Arc<Received>,
    channel: Channel,
    shared: Arc<Shared>,
}

impl Stream {
    pub(super) fn of_events(request: Arc<Received>, events: Events, shared: Arc<Shared>) -> Self {
        Self {
            request,
            channel: Channel::Events(events),
            shared,
        }
    }

    pub(super) fn of_lines(
        request: Arc<Received>,
        output: Arc<Output>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            request,
            channel: Channel::Lines(output),
            shared,
        }
    }

    /// Sends one whole message.
    pub async fn message(&self, message: &str) {
        self.shared.record_sent(message);
        within("the client to read", self.channel.message(message)).await;
    }

    /// Sends one whole message as an event with an id to resume from (HTTP only).
    pub async fn event(&self, id: &str, message: &str) {
        self.shared.record_sent(message);
        self.raw(&format!("id: {id}\nevent: message\ndata: {message}\n\n"))
            .await;
    }

    /// Sends this text unchanged, for priming events, `retry` and comments (HTTP only).
    pub async fn raw(&self, text: &str) {
        self.part(Some(Ok(Bytes::copy_from_slice(text.as_bytes()))))
            .await;
    }

    /// Sends the response to the opening request with this raw result.
    pub async fn result(&self, result: &str) {
        self.message(&response(&self.request, "result", result))
            .await;
    }

    /// [`Self::result`] with this raw error.
    pub async fn error(&self, error: &str) {
        self.message(&response(&self.request, "error", error)).await;
    }

    /// Acknowledges this raw filter object (`subscriptions/listen`).
    pub async fn acknowledge(&self, notifications: &str) {
        self.notify(
            "notifications/subscriptions/acknowledged",
            &format!(r#""notifications":{notifications}"#),
        )
        .await;
    }

    /// Sends a notification with the subscription id (`subscriptions/listen`); `params` are raw
    /// members without braces.
    pub async fn notify(&self, method: &str, params: &str) {
        let id = self.request.member("id").expect("a request with an id");
        let comma = if params.is_empty() { "" } else { "," };
        let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
        self.message(&format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}{comma}{meta}}}}}"#
        ))
        .await;
    }

    /// Ends the stream regularly (HTTP only).
    pub async fn end(&self) {
        self.part(None).await;
    }

    /// Closes the connection in the middle of the stream (HTTP only).
    pub async fn cut(&self) {
        self.part(Some(Err(io::ErrorKind::ConnectionAborted.into())))
            .await;
    }

    /// Waits until the client has closed the stream (HTTP only).
    pub async fn closed(&self) {
        let Channel::Events(events) = &self.channel else {
            panic!("standard output cannot be closed")
        };
        within("the stream to close", events.closed()).await;
    }

    /// The event after which the client resumes, if it does.
    pub fn resumes_after(&self) -> Option<&str> {
        self.request.header("last-event-id")
    }

    /// The raw filter of a `subscriptions/listen` request.
    pub fn filter(&self) -> Option<&str> {
        slicer::member(&self.request.text, "params.notifications")
    }

    async fn part(&self, part: Option<io::Result<Bytes>>) {
        let Channel::Events(events) = &self.channel else {
            panic!("only HTTP has events")
        };
        // The client may have disconnected; the test notices that elsewhere.
        let _ = within("the client to read", events.send(part)).await;
    }
}
