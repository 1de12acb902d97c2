//! Servers of the deprecated HTTP+SSE transport: the stream of a GET says where to POST messages,
//! and brings everything that the server sends.
//!
//! Source: 2024-11-05 basic/transports, HTTP with SSE. Must not know: what messages say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Revision;
use fanlight_protocol::sse::Event;
use fanlight_telemetry::Propagation;
use fanlight_telemetry::metrics::Direction;
use http::header::HeaderValue;
use reqwest::Url;
use tokio::time::{Instant, timeout, timeout_at};

use super::client::Target;
use super::heads::{PROTOCOL_VERSION, carry};
use super::stream::{EventStream, Opened};
use super::{ANSWER, HttpEndpoint, HttpLink, SIDE_MESSAGE, let_end};
use crate::channel::{Channel, Reader, Sending, Sent, Shared, Writer};
use crate::exchange::LinkContext;
use crate::question::Settled;
use fanlight_canonical::BackendError;

/// Bytes of a URI that messages are sent to.
const LONGEST_URI: usize = 8 << 10;

impl HttpLink {
    /// Opens a channel, if the server is one of this transport: if the first event of the stream at
    /// its URL, within `patience`, names an endpoint (2025-11-25 basic/transports, Backwards
    /// Compatibility). That has to be of the same origin, since it gets what the configuration sends
    /// to the server, credentials included.
    pub(crate) async fn open_old(&self, patience: Duration) -> Result<Option<Channel>, BackendError> {
        let deadline = Instant::now() + patience;
        let mut stream = match timeout_at(deadline, self.get(None)).await {
            Ok(Ok(Opened::Stream(stream))) => stream,
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Opened::Refused { .. })) | Err(_) => return Ok(None),
        };
        let first = match timeout_at(deadline, first_event(&mut stream)).await {
            Ok(Some(event)) if event.name == "endpoint" => event,
            _ => return Ok(None),
        };
        let url = message_url(self.endpoint.target.url(), &first.data)?;
        let unnamed = || BackendError::Malformed { reason: "its \"endpoint\" event names no URI".into() };
        let target = Arc::new(Target::new(url).ok_or_else(unnamed)?);
        let posts = Posts { endpoint: Arc::clone(&self.endpoint), target, context: self.context.clone() };
        let channel = Channel::new(Writer::Posts(Box::new(posts)), self.context.clone());
        let shared = Arc::clone(channel.shared());
        self.context.tasks.spawn(async move {
            let ended = shared.end.run_until_cancelled(read(*stream, &shared)).await;
            shared.close(&ended.unwrap_or(BackendError::ClosedEarly));
        });
        Ok(Some(channel))
    }
}

async fn first_event(stream: &mut EventStream) -> Option<Event> {
    loop {
        if let Some(event) = stream.next_event().ok()? {
            return Some(event);
        }
        if !stream.more().await.ok()? {
            return None;
        }
    }
}

/// Where messages go that the server wants sent to `uri`, which is relative to where its stream is.
fn message_url(stream: &Url, uri: &[u8]) -> Result<Url, BackendError> {
    let refuse = |why: &str| BackendError::Malformed { reason: format!("its \"endpoint\" event {why}") };
    let uri = std::str::from_utf8(uri).ok().filter(|uri| uri.len() <= LONGEST_URI);
    let joined = uri.and_then(|uri| stream.join(uri).ok());
    let url = joined.ok_or_else(|| refuse("names no URI"))?;
    if url.origin() != stream.origin() {
        return Err(refuse("names another origin than the server's own"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("names a URI with credentials"));
    }
    Ok(url)
}

/// Reads until the stream ends; says why it did.
async fn read(mut stream: EventStream, shared: &Shared) -> BackendError {
    let mut reader = Reader::new(shared);
    loop {
        loop {
            match stream.next_event() {
                Ok(Some(event)) => {
                    let is_message = event.name.is_empty() || event.name == "message";
                    if is_message && !event.data.is_empty() {
                        reader.take_text(event.data);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(backend = &*shared.context.name, %error, "the event stream is given up");
                    return error;
                }
            }
        }
        if !matches!(stream.more().await, Ok(true)) {
            return BackendError::ClosedEarly;
        }
    }
}

/// Sends messages, each as a POST of its own.
pub(crate) struct Posts {
    endpoint: Arc<HttpEndpoint>,
    target: Arc<Target>,
    context: LinkContext,
}

impl Posts {
    /// Sends a message. The server says at once whether it takes it; what comes of it arrives on the
    /// stream.
    pub(crate) fn post(&self, text: Bytes, revision: Option<Revision>, carrying: Option<&Propagation>) -> Sending {
        let mut headers = self.endpoint.headers.clone();
        if let Some(revision) = revision.filter(|revision| *revision >= Revision::V2025_06_18) {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision.as_str()));
        }
        if let Some(carrying) = carrying {
            carry(&mut headers, carrying);
        }
        self.context.telemetry.metrics().io(Direction::Transmit, text.len() as u64);
        let executing = self.endpoint.execute_at(&self.target, http::Method::POST, headers, text);
        let (endpoint, tasks) = (Arc::clone(&self.endpoint), self.context.tasks.clone());
        Box::pin(async move {
            let response = executing.await.map_err(|error| endpoint.failure(&error))?;
            let status = response.status;
            let_end(&endpoint, &tasks, response);
            Ok(if status.is_success() { Sent::Taken } else { Sent::Rejected(status.as_u16()) })
        })
    }

    /// Sends the response to a request of the server. The call stays paused until the server has it, which also
    /// bounds how many are being sent.
    pub(crate) fn answer(&self, settled: Settled, revision: Option<Revision>) {
        let Settled { text, pause } = settled;
        let (post, backend) = (self.post(text, revision, None), Arc::clone(&self.context.name));
        self.context.tasks.spawn(async move {
            if !matches!(timeout(ANSWER, post).await, Ok(Ok(Sent::Taken))) {
                tracing::debug!(backend = &*backend, "answer to a question of the server not accepted");
            }
            drop(pause);
        });
    }

    /// Sends a message that nobody waits for.
    pub(crate) fn aside(&self, text: Bytes, revision: Option<Revision>) {
        self.leave(self.post(text, revision, None));
    }

    /// Lets a message arrive that nobody waits for any more.
    pub(crate) fn leave(&self, sending: Sending) {
        self.endpoint.aside(&self.context.tasks, async move {
            let _: Result<_, _> = timeout(SIDE_MESSAGE, sending).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_origin_of_the_stream_and_nowhere_else() {
        let stream = Url::parse("http://h:81/a/sse?k=v").unwrap();
        for (uri, url) in [
            ("/messages/?session_id=1", "http://h:81/messages/?session_id=1"),
            ("m?x=1", "http://h:81/a/m?x=1"),
            ("?x=1", "http://h:81/a/sse?x=1"),
            ("http://H:81/m", "http://h:81/m"),
        ] {
            assert_eq!(message_url(&stream, uri.as_bytes()).unwrap().as_str(), url);
        }
        let long = "x".repeat(LONGEST_URI + 1);
        for uri in ["//evil/m", "http://h/m", "https://h:81/m", "http://u:p@h:81/m", "file:///m", "http://", &long] {
            let refused = message_url(&stream, uri.as_bytes());
            assert!(matches!(refused, Err(BackendError::Malformed { .. })), "{uri}");
        }
        assert!(message_url(&stream, b"\xff").is_err());
    }
}
