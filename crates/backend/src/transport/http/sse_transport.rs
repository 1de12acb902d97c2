//! The legacy SSE transport (2024-11-05 basic/transports, HTTP with SSE). The event stream of a GET
//! names the URI for POSTed messages, and carries all messages of the server.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Revision;
use fanlight_protocol::sse::Event;
use fanlight_telemetry::Propagation;
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::recording::{Captured, Framing, To};
use futures_util::future::Either;
use http::header::HeaderValue;
use reqwest::Url;
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::retry_after;
use super::client::Target;
use super::event_stream::{EventStream, Opened, is_message};
use super::headers::{PROTOCOL_VERSION, insert_trace_context};
use super::{HttpEndpoint, HttpTransport, drain};
use crate::request::deadline::PausableDeadline;
use crate::request::server_request::ServerRequestReply;
use crate::request::{ActiveRequest, TransportContext};
use crate::settings::DELIVERY;
use crate::transport::channel::{Begun, Channel, MessageWriter, Reader, SendFuture, Sent, Shared};
use fanlight_canonical::{BackendError, Pending};

/// The maximum length of the URI for messages, in bytes.
const MAX_URI: usize = 8 << 10;

impl HttpTransport {
    /// Opens a channel if the server has this transport. The server shows it by naming an endpoint
    /// in an event of the stream at its URL, within `limit` (2025-11-25 basic/transports, Backwards
    /// Compatibility). The endpoint must have the same origin, since it gets the
    /// configured headers, credentials included.
    pub(crate) async fn open_sse_transport(
        &self,
        limit: Duration,
    ) -> Result<Option<Channel>, BackendError> {
        let deadline = Instant::now() + limit;
        let mut stream = match timeout_at(deadline, self.get(None)).await {
            Ok(Ok(Opened::Stream(stream))) => stream,
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Opened::Refused { .. })) | Err(_) => return Ok(None),
        };
        let Ok(Some(named)) = timeout_at(deadline, endpoint_event(&mut stream)).await else {
            return Ok(None);
        };
        let url =
            joined_url(&self.target().url, &named.data).map_err(|why| BackendError::Malformed {
                reason: format!("its \"endpoint\" event {why}"),
            })?;
        let unnamed = || BackendError::Malformed {
            reason: "its \"endpoint\" event names no URI".into(),
        };
        let target = Arc::new(Target::new(url).ok_or_else(unnamed)?);
        let poster = MessagePoster {
            endpoint: Arc::clone(&self.endpoint),
            target,
            context: Arc::clone(&self.context),
        };
        stream.transport = "sse";
        let channel = Channel::new(poster, Arc::clone(&self.context));
        let shared = Arc::clone(&channel.shared);
        self.context.tasks.spawn(async move {
            let ended = shared.end.run_until_cancelled(read(*stream, &shared)).await;
            shared.close(&ended.unwrap_or(BackendError::ClosedEarly));
        });
        Ok(Some(channel))
    }
}

/// The event that names the endpoint. Others may precede it.
async fn endpoint_event(stream: &mut EventStream) -> Option<Event> {
    loop {
        match stream.next_event().await.ok()? {
            Some(event) if event.name == "endpoint" => return Some(event),
            Some(_) => {}
            None if stream.read_more().await.ok()? => {}
            None => return None,
        }
    }
}

/// The URL that `uri` names at a URL of the server. It must have the same origin, and no credentials;
/// the error completes a sentence.
pub(super) fn joined_url(base: &Url, uri: &[u8]) -> Result<Url, &'static str> {
    let uri = std::str::from_utf8(uri)
        .ok()
        .filter(|uri| uri.len() <= MAX_URI);
    let joined = uri.and_then(|uri| base.join(uri).ok());
    let url = joined.ok_or("names no URI")?;
    if url.origin() != base.origin() {
        return Err("names another origin than the server's own");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("names a URI with credentials");
    }
    Ok(url)
}

/// Reads until the stream ends; returns the reason.
async fn read(mut stream: EventStream, shared: &Shared) -> BackendError {
    let mut reader = Reader::new(shared);
    loop {
        loop {
            match stream.next_event().await {
                Ok(Some(event)) if is_message(&event) => reader.take_text(event.data),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(backend = &*shared.context.name, %error, "event stream closed");
                    return error;
                }
            }
        }
        if !matches!(stream.read_more().await, Ok(true)) {
            return BackendError::ClosedEarly;
        }
    }
}

/// Sends each message as a POST to the URI that the server named.
struct MessagePoster {
    endpoint: Arc<HttpEndpoint>,
    target: Arc<Target>,
    context: Arc<TransportContext>,
}

impl MessagePoster {
    /// Sends a message. The response only says whether the server accepts it; the answer arrives on
    /// the stream.
    fn post(
        &self,
        text: Bytes,
        revision: Revision,
        of: Option<(&Propagation, &ActiveRequest<'_>)>,
    ) -> SendFuture {
        let mut headers = http::HeaderMap::clone(&self.endpoint.headers.current());
        if revision.version_header {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision.name));
        }
        if let Some((propagation, request)) = of {
            insert_trace_context(&mut headers, propagation);
            let caller = &request.context.caller;
            (self.endpoint.headers).add_of_client(&mut headers, request.method, caller);
        }
        self.context
            .telemetry
            .metrics()
            .io(Direction::Transmit, text.len() as u64);
        self.context.record(&text, |message| Captured {
            exchange: self.context.recorded_exchange(),
            to: To::Server,
            kind: Framing::Body,
            transport: "sse",
            revision: Some(revision.name),
            method: Some("POST"),
            headers: fanlight_http::header_texts(&headers),
            cause: of.map_or(0, |(_, request)| request.context.trace.exchange()),
            ..message
        });
        let response =
            self.endpoint
                .execute_at(&self.target, http::Method::POST, headers, text, false);
        let (endpoint, tasks) = (Arc::clone(&self.endpoint), self.context.tasks.clone());
        Box::pin(async move {
            let response = response.await.map_err(|error| endpoint.failure(&error))?;
            let (status, pause) = (response.status, retry_after(&response));
            drain(&endpoint, &tasks, response);
            Ok(if status.is_success() {
                Sent::Accepted
            } else {
                Sent::Rejected {
                    status: status.as_u16(),
                    pause,
                }
            })
        })
    }
}

impl MessageWriter for MessagePoster {
    fn begin(
        &self,
        text: Bytes,
        revision: Revision,
        of: Option<(&Propagation, &ActiveRequest<'_>)>,
        deadline: Option<&Arc<PausableDeadline>>,
    ) -> Begun<'_> {
        if let Some(deadline) = deadline {
            deadline.set_sent(true);
        }
        Either::Left(ready(Ok(Some(self.post(text, revision, of)))))
    }

    /// Sends a reply. The pauses of a call limit the number of replies in progress.
    fn reply(&self, reply: ServerRequestReply, revision: Revision) -> Pending<'_, ()> {
        let ServerRequestReply { text, pause } = reply;
        let (post, backend) = (
            self.post(text, revision, None),
            Arc::clone(&self.context.name),
        );
        let limit = DELIVERY;
        self.context.tasks.spawn(async move {
            if !matches!(timeout(limit, post).await, Ok(Ok(Sent::Accepted))) {
                tracing::debug!(
                    backend = &*backend,
                    "reply to a request of the server not accepted"
                );
            }
            drop(pause);
        });
        Box::pin(ready(Ok(())))
    }

    fn send_detached(&self, text: Bytes, revision: Revision) -> bool {
        self.detach(self.post(text, revision, None));
        true
    }

    fn detach(&self, sending: SendFuture) {
        let limit = self.context.timeouts.own_message;
        self.endpoint
            .spawn_detached(&self.context.tasks, async move {
                let _: Result<_, _> = timeout(limit, sending).await;
            });
    }

    fn end_error(&self) -> BackendError {
        BackendError::Unreachable {
            reason: "its event stream has ended".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_url_is_of_the_origin_of_the_stream() {
        let stream = Url::parse("http://h:81/a/sse?k=v").unwrap();
        for (uri, url) in [
            (
                "/messages/?session_id=1",
                "http://h:81/messages/?session_id=1",
            ),
            ("m?x=1", "http://h:81/a/m?x=1"),
            ("?x=1", "http://h:81/a/sse?x=1"),
            ("http://H:81/m", "http://h:81/m"),
        ] {
            assert_eq!(joined_url(&stream, uri.as_bytes()).unwrap().as_str(), url);
        }
        let long = "x".repeat(MAX_URI + 1);
        for uri in [
            "//evil/m",
            "http://h/m",
            "https://h:81/m",
            "http://u:p@h:81/m",
            "file:///m",
            "http://",
            &long,
        ] {
            assert!(joined_url(&stream, uri.as_bytes()).is_err(), "{uri}");
        }
        assert!(joined_url(&stream, b"\xff").is_err());
    }
}
