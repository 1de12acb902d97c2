//! Reading the HTTP response to a request: a JSON body, an event stream, or a rejection.
//!
//! Must not know: what happens after a rejection.

use bytes::Bytes;
use fanlight_protocol::{Json, Message, Response, sse};
use fanlight_telemetry::metrics::Direction;
use http::header;

use super::HttpLink;
use super::client::HttpResponse;
use super::heads::SESSION_ID;
use super::room::Room;
use crate::error::BackendError;
use crate::excerpt::excerpt;
use crate::exchange::{Outgoing, Reply, messages, request_number};

/// What a body is said to be.
enum Form {
    Json,
    Events,
    Other(String),
}

impl HttpLink {
    pub(super) async fn read(&self, mut http: HttpResponse, request: &Outgoing<'_>) -> Result<Reply, BackendError> {
        let status = http.status;
        let form = form(&http);
        if !status.is_success() {
            return Ok(Box::pin(self.read_rejection(http, &form, request.id)).await);
        }
        let session = if Self::is_initialize(request) { http.headers.get(SESSION_ID).cloned() } else { None };
        let response = match form {
            _ if matches!(status.as_u16(), 202 | 204) => {
                return Err(malformed(format!("HTTP {} without an answer", status.as_u16())));
            }
            Form::Json => self.read_json(&mut http, request.id).await?,
            // Large: in a box it makes the future of a call that is answered at once no larger.
            Form::Events => Box::pin(self.read_events(http, request)).await?,
            Form::Other(found) => {
                return Err(malformed(format!("content type {found:?}, neither JSON nor an event stream")));
            }
        };
        Ok(Reply::Answer { response, session })
    }

    async fn read_json(&self, http: &mut HttpResponse, id: i64) -> Result<Response, BackendError> {
        let body = self.read_body(http).await?;
        let messages = messages(body, self.context.limits.nesting, self.revision);
        let messages = messages.map_err(|error| malformed(error.to_string()))?;
        let answer = messages.filter_map(|message| match message {
            Message::Response(response) => Some(response),
            _ => None,
        });
        for response in answer {
            if request_number(&response.id()) == Some(id) {
                return Ok(response);
            }
        }
        Err(malformed("the body does not answer the request"))
    }

    /// The whole body, in the one piece it came in where it did so.
    async fn read_body(&self, http: &mut HttpResponse) -> Result<Bytes, BackendError> {
        let limit = self.context.limits.message_bytes;
        let too_large = || BackendError::ResponseTooLarge { limit };
        if http.content_length().is_some_and(|length| length > limit as u64) {
            return Err(too_large());
        }
        let failure = |error| self.endpoint.failure(&error);
        let Some(first) = http.chunk().await.map_err(failure)? else { return Ok(Bytes::new()) };
        self.count_read(first.len());
        let left = http.content_length();
        let second = match left {
            Some(0) => return Ok(first),
            Some(_) => Bytes::new(),
            // It may well have been all.
            None => match http.chunk().await.map_err(failure)? {
                Some(chunk) => chunk,
                None => return Ok(first),
            },
        };
        self.count_read(second.len());
        // Room for all of it at once. A server that sends less than it says costs addresses, not memory.
        let left = left.and_then(|left| usize::try_from(left).ok()).unwrap_or_default();
        let mut whole = Room::new(first.len() + second.len() + left, self.context.limits.spare_bytes);
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        drop((first, second));
        while whole.len() <= limit {
            match http.read_directly(&mut whole).await.map_err(failure)? {
                Some(0) => return Ok(whole.freeze()),
                Some(read) => self.count_read(read),
                None => {
                    let Some(chunk) = http.chunk().await.map_err(failure)? else { return Ok(whole.freeze()) };
                    self.count_read(chunk.len());
                    whole.extend_from_slice(&chunk);
                }
            }
        }
        Err(too_large())
    }

    fn count_read(&self, bytes: usize) {
        self.context.telemetry.metrics().io(Direction::Receive, bytes as u64);
    }

    /// An error status: with a body that answers the request it is an answer like any other.
    async fn read_rejection(&self, mut http: HttpResponse, form: &Form, id: i64) -> Reply {
        let status = http.status.as_u16();
        let body = match form {
            Form::Json => self.read_body(&mut http).await.ok(),
            Form::Events | Form::Other(_) => None,
        };
        let Some(body) = body else { return Reply::Rejected { status, error: None } };
        match Message::parse(body.clone(), self.context.limits.nesting) {
            Ok(Message::Response(response)) if request_number(&response.id()) == Some(id) => {
                Reply::Answer { response, session: None }
            }
            // An error that names no request may lack the id (2026-07-28 streamable-http, Sending
            // Messages), which makes it no message but tells what happened all the same.
            _ => {
                let error = Json::parse(body, self.context.limits.nesting).ok().and_then(|body| body.get("error"));
                let error = error.filter(Json::is_object);
                if let Some(message) = error.as_ref().and_then(|error| error.get("message")) {
                    let message = excerpt(message.bytes(), 200);
                    tracing::debug!(backend = &*self.context.name, status, message, "request rejected");
                }
                Reply::Rejected { status, error }
            }
        }
    }
}

/// Whether a body is said to be an event stream.
pub(super) fn is_events(http: &HttpResponse) -> bool {
    matches!(form(http), Form::Events)
}

fn form(http: &HttpResponse) -> Form {
    let value = http.headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        Form::Json
    } else if essence.eq_ignore_ascii_case(sse::CONTENT_TYPE.as_bytes()) {
        Form::Events
    } else {
        Form::Other(excerpt(essence, 80))
    }
}

fn malformed(reason: impl Into<String>) -> BackendError {
    BackendError::Malformed { reason: reason.into() }
}
