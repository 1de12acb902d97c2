//! The stream of a legacy server's notifications and requests outside of calls (2025-11-25
//! basic/transports, Listening for Messages from the Server).

use std::time::Duration;

use fanlight_protocol::sse::Event;
use fanlight_protocol::{Message, Notification, Request};
use tokio::time::{Instant, sleep};

use super::HttpTransport;
use super::event_stream::{EventStream, Opened, Position, is_message};
use crate::request::messages;
use crate::request::server_request::{
    ImmediateReply, cancelled_id, cannot_ask_text, refuse_invalid, reply_immediately,
};
use crate::settings::{LONGEST_PAUSE, STABLE_CONNECTION, server_retry};
use fanlight_canonical::Backoff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    Open {
        /// Whether messages may have been missed since it was last open.
        missed: bool,
    },
    /// The stream cannot be opened at the moment.
    Failing,
    /// The stream has not been opened in time. Once it is open, changes that may have been missed
    /// are announced.
    Late,
    /// The stream is not needed, or about to be opened.
    Closed,
    /// The server offers none.
    Absent,
}

/// The reason why this connection has no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamUnavailable {
    /// The server does not offer one.
    NoStream,
    /// The server has forgotten the session.
    SessionGone,
    /// The server refuses the stream with this status, although it had one.
    Refused { status: u16 },
}

impl HttpTransport {
    /// Keeps the stream open and delivers its messages, until there can be no stream.
    /// `may_be_expired` says that the session is old enough for the server to have forgotten it.
    /// `report` is called with each change.
    pub(crate) async fn keep_notification_stream(
        &self,
        may_be_expired: bool,
        report: impl Fn(StreamState),
    ) -> StreamUnavailable {
        let (mut position, mut backoff) = (
            Position::default(),
            Backoff::new(self.context.timeouts.reconnect),
        );
        let (mut was_open, mut missed) = (false, false);
        loop {
            let (began, mut failing) = (Instant::now(), false);
            // Boxed, since it is large and the stream outlasts it.
            let opened = Box::pin(self.get(position.last_event.as_ref())).await;
            let asked = match &opened {
                Ok(Opened::Refused { pause, .. }) => pause.unwrap_or_default(),
                _ => Duration::ZERO,
            };
            match opened {
                Ok(Opened::Stream(stream)) => {
                    report(StreamState::Open { missed });
                    was_open = true;
                    self.listen(stream, &mut position).await;
                    // Without an event id to resume from, messages sent meanwhile are lost.
                    missed = position.last_event.is_none();
                }
                // 2025-11-25 basic/transports, Session Management.
                Ok(Opened::Refused { status: 404, .. })
                    if (was_open || may_be_expired) && self.has_session() =>
                {
                    return StreamUnavailable::SessionGone;
                }
                Ok(Opened::Refused {
                    status: 400 | 404, ..
                }) if position.last_event.take().is_some() => {
                    missed = true;
                    continue;
                }
                // 409: the server allows one stream, and still counts an earlier one of the
                // session.
                Ok(Opened::Refused {
                    status: 408 | 409 | 429 | 500 | 502..=504,
                    ..
                })
                | Err(_) => {
                    (failing, missed) = (true, position.last_event.is_none());
                    report(StreamState::Failing);
                }
                Ok(Opened::Refused {
                    status: status @ (400 | 401 | 403 | 410 | 422),
                    ..
                }) if was_open && self.has_session() => {
                    return StreamUnavailable::Refused { status };
                }
                Ok(Opened::Refused { status, .. }) => {
                    tracing::debug!(
                        backend = &*self.context.name,
                        status,
                        "server has no notification stream"
                    );
                    return StreamUnavailable::NoStream;
                }
            }
            if began.elapsed() >= STABLE_CONNECTION {
                backoff.reset();
            }
            let delay = backoff.next_delay();
            sleep(
                position
                    .retry
                    .filter(|retry| !failing || *retry > delay)
                    .unwrap_or(delay)
                    .max(asked.min(LONGEST_PAUSE)),
            )
            .await;
        }
    }

    /// Reads one stream to its end.
    async fn listen(&self, mut stream: Box<EventStream>, position: &mut Position) {
        loop {
            let more = stream.read_more().await;
            loop {
                match stream.next_event().await {
                    Ok(Some(event)) => self.take_outside_event(event),
                    Ok(None) => break,
                    Err(error) => {
                        self.warn_of(&format!("notification stream closed: {error}"), b"");
                        return;
                    }
                }
            }
            stream.advance(position, server_retry());
            if !matches!(more, Ok(true)) {
                return;
            }
        }
    }

    fn take_outside_event(&self, event: Event) {
        if !is_message(&event) {
            return;
        }
        match messages(event.data.clone(), self.revision.batches) {
            Ok(messages) => {
                for message in messages {
                    match message {
                        Message::Notification(notification) => self.take_notification(notification),
                        Message::Request(request) => self.take_outside_request(&request),
                        Message::Response(response) => {
                            self.warn_of("an answer outside of calls", response.id().bytes());
                        }
                    }
                }
            }
            Err(error) => {
                self.warn_of(&format!("an event that is no message: {error}"), b"");
                if let Some(refusal) = refuse_invalid(&event.data, &error) {
                    self.post_detached(refusal);
                }
            }
        }
    }

    fn take_notification(&self, notification: Notification) {
        match cancelled_id(&notification) {
            Some(id) => self.context.outlet.withdraw(&id),
            None => self.context.outlet.deliver(notification),
        }
    }

    fn take_outside_request(&self, request: &Request) {
        let text = match reply_immediately(request, &self.context.declared) {
            Some(ImmediateReply { text, .. }) => text,
            None if self.context.outlet.ask(request) => return,
            None => cannot_ask_text(&request.id, "no client listens"),
        };
        self.post_detached(text);
    }
}
