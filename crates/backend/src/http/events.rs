//! Reading the event stream that answers a request: what comes before the answer, and the answer.
//!
//! Must not know: anything beyond this one stream.

use fanlight_protocol::sse::{Event, EventDecoder};
use fanlight_protocol::{Era, Message, Notification, Response};

use super::HttpLink;
use crate::client::ServerMessage;
use crate::dialect::concerns;
use crate::error::BackendError;
use crate::excerpt::excerpt;
use crate::exchange::{Outgoing, answer_to_server, messages};

impl HttpLink {
    pub(super) async fn read_events(
        &self,
        mut http: reqwest::Response,
        request: &Outgoing<'_>,
    ) -> Result<Response, BackendError> {
        let limit = self.context.limits.message_bytes;
        let mut events = EventDecoder::new(limit);
        while let Some(chunk) = http.chunk().await.map_err(|error| self.endpoint.failure(&error))? {
            events.push(&chunk);
            while let Some(event) = events.next_event().map_err(|_| BackendError::ResponseTooLarge { limit })? {
                if let Some(answer) = self.take_event(event, request).await? {
                    self.let_end(http);
                    return Ok(answer);
                }
            }
        }
        // Also within an event: half an answer is none.
        Err(BackendError::ClosedEarly)
    }

    /// Deals with one event; returns the answer if it holds that.
    async fn take_event(&self, event: Event, request: &Outgoing<'_>) -> Result<Option<Response>, BackendError> {
        // An event without data primes a resumable stream (2025-11-25 basic/transports).
        let is_message = event.name.is_empty() || event.name == "message";
        if !is_message || event.data.is_empty() {
            return Ok(None);
        }
        let messages = messages(event.data, self.context.limits.nesting, self.revision)
            .map_err(|error| BackendError::Malformed { reason: format!("an event that is no message: {error}") })?;
        let mut answer = None;
        for message in messages {
            match message {
                Message::Response(response) if response.id().as_i64() == Some(request.id) => answer = Some(response),
                Message::Response(response) => {
                    self.warn_of("an answer to another request", response.id().bytes());
                }
                Message::Notification(notification) => Self::pass_on(notification, request).await,
                // The place for server-initiated requests: for now only `ping` is understood.
                Message::Request(asked) if self.is_modern() => {
                    self.warn_of("a request, which a modern server must not send", asked.method.as_str().as_bytes());
                }
                Message::Request(asked) => self.reply_to_server(answer_to_server(&asked.id, &asked.method)).await,
            }
        }
        Ok(answer)
    }

    /// Waiting for a slow client holds up this one stream only.
    async fn pass_on(notification: Notification, request: &Outgoing<'_>) {
        if concerns(&notification, request.id, request.context) {
            request.notifications.send(ServerMessage::Notification(notification)).await;
        }
    }

    fn warn_of(&self, what: &str, named: &[u8]) {
        if let Some(suppressed) = self.endpoint.warnings.admit() {
            let (backend, named) = (&*self.context.name, excerpt(named, 80));
            tracing::warn!(backend, named, suppressed, "ignored on an event stream: {what}");
        }
    }

    fn is_modern(&self) -> bool {
        self.revision.is_none_or(|revision| revision.era() == Era::Modern)
    }
}
