//! The stream on which a legacy server sends what belongs to no call (2025-11-25
//! basic/transports, Listening for Messages from the Server).
//!
//! Must not know: who listens.

use std::time::Duration;

use fanlight_protocol::sse::Event;
use fanlight_protocol::{Message, Notification, Request};
use tokio::time::{Instant, sleep, timeout};

use super::stream::{EventStream, Opened, Position};
use super::{HttpLink, SIDE_MESSAGE};
use crate::backoff::Backoff;
use crate::exchange::messages;
use crate::question::{AtOnce, answer_at_once, unasked_text, withdrawn};

/// A stream that lasted this long did not fail at its start.
const STABLE: Duration = Duration::from_secs(5);

/// What is told of the stream while it is kept up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// It is open.
    Open {
        /// Something may have been missed since it was open last.
        missed: bool,
    },
    /// It cannot be opened at the moment.
    Failing,
}

/// Why there will be no stream on this connection any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deaf {
    /// The server does not offer one.
    NoStream,
    /// The server knows the session no more.
    SessionGone,
}

impl HttpLink {
    /// Keeps the stream up, passing on what arrives, until there can be none. `seasoned`: the
    /// session is old enough for the server to have forgotten it.
    pub(crate) async fn hear(&self, seasoned: bool, told: impl Fn(Hearing)) -> Deaf {
        let (mut position, mut backoff) = (Position::default(), Backoff::new(self.context.timeouts.reconnect));
        let (mut opened, mut missed) = (seasoned, false);
        loop {
            let (began, mut failing) = (Instant::now(), false);
            match self.get(position.last_event.as_ref()).await {
                Ok(Opened::Stream(stream)) => {
                    told(Hearing::Open { missed });
                    opened = true;
                    self.listen(*stream, &mut position).await;
                    // Without a number to go on from, what was sent meanwhile is lost.
                    missed = position.last_event.is_none();
                }
                // 2025-11-25 basic/transports, Session Management.
                Ok(Opened::Refused { status: 404 }) if opened && self.has_session() => return Deaf::SessionGone,
                Ok(Opened::Refused { status: 400 | 404 }) if position.last_event.take().is_some() => {
                    missed = true;
                    continue;
                }
                Ok(Opened::Refused { status: 408 | 429 | 500 | 502..=504 }) | Err(_) => {
                    (failing, missed) = (true, position.last_event.is_none());
                    told(Hearing::Failing);
                }
                Ok(Opened::Refused { status }) => {
                    tracing::debug!(backend = &*self.context.name, status, "no stream outside of calls");
                    return Deaf::NoStream;
                }
            }
            if began.elapsed() >= STABLE {
                backoff.reset();
            }
            let delay = backoff.next_delay();
            sleep(position.retry.filter(|retry| !failing || *retry > delay).unwrap_or(delay)).await;
        }
    }

    /// Reads one stream to its end.
    async fn listen(&self, mut stream: EventStream, position: &mut Position) {
        loop {
            let more = stream.more().await;
            loop {
                match stream.next_event() {
                    Ok(Some(event)) => self.heard(event),
                    Ok(None) => break,
                    Err(error) => {
                        self.warn_of(&format!("a stream outside of calls is given up: {error}"), b"");
                        return;
                    }
                }
            }
            stream.advance(position);
            if !matches!(more, Ok(true)) {
                return;
            }
        }
    }

    fn heard(&self, event: Event) {
        let is_message = event.name.is_empty() || event.name == "message";
        if !is_message || event.data.is_empty() {
            return;
        }
        match messages(event.data, self.context.limits.nesting, self.revision) {
            Ok(messages) => {
                for message in messages {
                    match message {
                        Message::Notification(notification) => self.heard_notification(notification),
                        Message::Request(request) => self.heard_request(&request),
                        Message::Response(response) => {
                            self.warn_of("an answer outside of calls", response.id().bytes());
                        }
                    }
                }
            }
            Err(error) => self.warn_of(&format!("an event that is no message: {error}"), b""),
        }
    }

    fn heard_notification(&self, notification: Notification) {
        match withdrawn(&notification) {
            Some(id) => self.context.outlet.withdraw(&id),
            None => self.context.outlet.deliver(notification),
        }
    }

    fn heard_request(&self, request: &Request) {
        let text = match answer_at_once(request, &self.context.declared) {
            Some(AtOnce { text, .. }) => text,
            None if self.context.outlet.ask(request) => return,
            None => unasked_text(&request.id, "nobody listens who could be meant"),
        };
        let post = self.post(text);
        self.endpoint.aside(&self.context.tasks, async move {
            let _: Result<_, _> = timeout(SIDE_MESSAGE, post).await;
        });
    }
}
