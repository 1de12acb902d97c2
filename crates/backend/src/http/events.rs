//! Reading the event stream that answers a request: what comes before the answer, the server's
//! questions among it, and the answer.
//!
//! Must not know: anything beyond this one stream.

use fanlight_protocol::sse::{Event, EventDecoder};
use fanlight_protocol::{Era, Message, Notification, Request, Response};
use tokio::time::timeout_at;

use super::HttpLink;
use crate::client::ServerMessage;
use crate::dialect::concerns;
use crate::error::BackendError;
use crate::excerpt::excerpt;
use crate::exchange::{Outgoing, messages};
use crate::question::{AtOnce, OpenQuestions, Question, answer_at_once, unasked_text, withdrawn};

impl HttpLink {
    pub(super) async fn read_events(
        &self,
        mut http: reqwest::Response,
        request: &Outgoing<'_>,
    ) -> Result<Response, BackendError> {
        let limit = self.context.limits.message_bytes;
        let mut events = EventDecoder::new(limit);
        let mut questions = OpenQuestions::default();
        loop {
            let chunk = tokio::select! {
                biased;
                settled = questions.next() => {
                    self.send_answer(settled);
                    continue;
                }
                chunk = http.chunk() => chunk.map_err(|error| self.endpoint.failure(&error))?,
            };
            // Also within an event: half an answer is none.
            let Some(chunk) = chunk else { return Err(BackendError::ClosedEarly) };
            events.push(&chunk);
            while let Some(event) = events.next_event().map_err(|_| BackendError::ResponseTooLarge { limit })? {
                if let Some(answer) = self.take_event(event, request, &mut questions).await? {
                    self.let_end(http);
                    return Ok(answer);
                }
            }
        }
    }

    /// Deals with one event; returns the answer if it holds that.
    async fn take_event(
        &self,
        event: Event,
        request: &Outgoing<'_>,
        questions: &mut OpenQuestions,
    ) -> Result<Option<Response>, BackendError> {
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
                Message::Notification(notification) => match withdrawn(&notification) {
                    Some(id) => questions.withdraw(&id),
                    None => Self::pass_on(notification, request).await,
                },
                Message::Request(asked) if self.is_modern() => {
                    self.warn_of("a request, which a modern server must not send", asked.method.as_str().as_bytes());
                }
                Message::Request(asked) => self.take_question(&asked, request, questions).await,
            }
        }
        Ok(answer)
    }

    /// A request on the stream of a call is for the client of that call (2025-11-25
    /// basic/transports, Sending Messages to the Server).
    async fn take_question(&self, asked: &Request, request: &Outgoing<'_>, questions: &mut OpenQuestions) {
        if let Some(AtOnce { text, missing }) = answer_at_once(asked, &self.context.declared) {
            if let Some(missing) = missing {
                // A client that does not keep up goes without: it explains an answer, no more.
                request.messages.try_send(ServerMessage::Refused(missing));
            }
            return self.reply_to_server(text).await;
        }
        match Question::new(asked, request.clock, self.context.question) {
            Ok((question, for_client)) => {
                let sent = request.messages.send(ServerMessage::Request(for_client));
                match timeout_at(question.deadline(), sent).await {
                    Ok(()) => questions.add(question),
                    Err(_) => self.reply_to_server(unasked_text(&asked.id, "it does not keep up")).await,
                }
            }
            Err(text) => self.reply_to_server(text).await,
        }
    }

    /// Waiting for a slow client holds up this one stream only.
    async fn pass_on(notification: Notification, request: &Outgoing<'_>) {
        if concerns(&notification, request.token, request.context) {
            request.messages.send(ServerMessage::Notification(notification)).await;
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
