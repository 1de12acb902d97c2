//! Reads the event stream that answers a request: messages before the answer, including the
//! server's requests, and the answer.

use std::sync::Arc;
use std::time::Duration;

use fanlight_fair::limit;
use fanlight_protocol::sse::Event;
use fanlight_protocol::{Message, Method, Notification, Questions, Request, Response};
use futures_util::future::OptionFuture;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::answer::session;
use super::client::HttpResponse;
use super::event_stream::{EventStream, Opened, Position, is_message};
use super::{HttpTransport, drain};
use crate::log::excerpt;
use crate::request::dialect::concerns;
use crate::request::server_request::{
    CALL_HAS_ENDED, ImmediateReply, OpenServerRequests, PendingServerRequest, ServerRequestReply,
    cancelled_id, cannot_ask_text, refuse_invalid, refuse_modern, reply_immediately,
};
use crate::request::{
    ActiveRequest, Reply, meant_for, messages, request_number, server_request_span,
};
use crate::settings::{DELIVERY, RetryDelays, server_retry};
use fanlight_canonical::{BackendError, ServerMessage, StreamSignal};

/// The time for the next message of a modern server that has sent a request, which modern servers must not do; then the call
/// fails.
fn refused_request() -> Duration {
    limit("refusedRequest", Duration::from_secs(2))
}

/// The state while reading the events of one call, across all its streams.
struct Reading<'a> {
    transport: &'a HttpTransport,
    requests: OpenServerRequests,
    /// The reason why an event was skipped. Without an answer, that event may have been it.
    skipped: Option<String>,
    /// Set once a modern server has sent a request, which it must not. Some wait for the reply for
    /// ever, so the call fails unless something else arrives in time.
    refused: Option<Instant>,
}

impl Drop for Reading<'_> {
    /// The call was cancelled or has failed, so the server gets errors for its open requests.
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            let (transport, mut requests) =
                (self.transport.clone(), std::mem::take(&mut self.requests));
            let tasks = &self.transport.context.tasks;
            self.transport.endpoint.spawn_detached(tasks, async move {
                transport.refuse_all(&mut requests).await;
            });
        }
    }
}

impl<'a> Reading<'a> {
    fn new(transport: &'a HttpTransport) -> Self {
        Self {
            transport,
            requests: OpenServerRequests::default(),
            skipped: None,
            refused: None,
        }
    }

    /// The error if there will be no answer.
    fn end_error(&mut self) -> BackendError {
        self.skipped
            .take()
            .map_or(BackendError::ClosedEarly, |reason| {
                BackendError::Malformed { reason }
            })
    }
}

impl HttpTransport {
    /// Reads the answer to a request, and the messages before it.
    pub(super) fn read_events<'a>(
        &'a self,
        http: HttpResponse,
        request: &'a ActiveRequest<'_>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        let session = session(&http, request);
        let mut stream = EventStream::new(http, &self.context);
        async move {
            let (mut reading, mut position) = (Reading::new(self), Position::default());
            let mut futile = 0;
            loop {
                let read = self.read_stream(&mut stream, request, &mut reading).await?;
                if let Some(response) = read {
                    drain(&self.endpoint, &self.context.tasks, stream.http);
                    if !reading.requests.is_empty() {
                        self.reply_after_call(std::mem::take(&mut reading.requests));
                    }
                    return Ok(Reply::Answer { response, session });
                }
                stream.advance(&mut position, server_retry());
                futile = if stream.received { 0 } else { futile + 1 };
                // Boxed, since it is large and most streams do not break off.
                stream =
                    Box::pin(self.resume(&position, request, &mut reading, &mut futile)).await?;
            }
        }
    }

    /// Reads up to the answer; `None` if the stream broke off earlier, even within an event.
    async fn read_stream(
        &self,
        stream: &mut EventStream,
        request: &ActiveRequest<'_>,
        reading: &mut Reading<'_>,
    ) -> Result<Option<Response>, BackendError> {
        loop {
            let more = tokio::select! {
                biased;
                reply = reading.requests.next() => {
                    self.send_reply(reply);
                    continue;
                }
                more = stream.read_more() => more,
                Some(()) = OptionFuture::from(reading.refused.map(sleep_until)) => {
                    return Err(BackendError::Malformed { reason: "it waits for the answer to a request of its own".into() });
                }
            };
            match more {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => {
                    if let BackendError::Malformed { reason } = self.endpoint.failure(&error) {
                        reading.skipped = Some(reason);
                    }
                    return Ok(None);
                }
            }
            while let Some(event) = stream.next_event().await? {
                reading.refused = None;
                // Boxed, since it is large and the wait for the next event may last.
                if let Some(answer) = Box::pin(self.take_event(event, request, reading)).await? {
                    return Ok(Some(answer));
                }
            }
        }
    }

    /// Resumes a call's broken stream. A legacy server that assigns event ids may close it to save
    /// a connection (2025-11-25 basic/transports, Sending Messages to the Server). The call itself
    /// is not sent again.
    async fn resume(
        &self,
        position: &Position,
        request: &ActiveRequest<'_>,
        reading: &mut Reading<'_>,
        futile: &mut usize,
    ) -> Result<EventStream, BackendError> {
        let Some(last_event) = position
            .last_event
            .as_ref()
            .filter(|_| self.revision.has_sessions)
        else {
            return Err(reading.end_error());
        };
        let RetryDelays { shortest, longest } = RetryDelays {
            shortest: limit("backendResume", Duration::from_secs(1)),
            longest: limit("backendResumeMax", Duration::from_secs(30)),
        };
        let mut retry = position.retry;
        loop {
            if *futile >= limit("streamAttempts", 5) {
                return Err(reading.end_error());
            }
            let resumed = Arc::new(Notify::new());
            let paused = StreamSignal::Paused {
                retry,
                resumed: Arc::clone(&resumed),
            };
            let _ = request.messages.try_send(ServerMessage::Stream(paused));
            let pause = self.pause(retry.unwrap_or(shortest), &mut reading.requests);
            // A client that polls may come earlier than the server has asked for.
            tokio::select! {
                () = pause => {}
                () = resumed.notified(), if *futile == 0 => {}
            }
            match self.get(Some(last_event)).await {
                Ok(Opened::Stream(stream)) => return Ok(*stream),
                Ok(Opened::Refused {
                    status: 408 | 429 | 500 | 502..=504,
                    ..
                })
                | Err(_) => *futile += 1,
                Ok(Opened::Refused { .. }) => return Err(reading.end_error()),
            }
            retry = Some(
                retry
                    .unwrap_or(shortest)
                    .saturating_mul(2)
                    .min(longest)
                    .max(retry.unwrap_or_default()),
            );
        }
    }

    /// Waits for this time, and forwards the client's answers that arrive.
    async fn pause(&self, time: Duration, requests: &mut OpenServerRequests) {
        let end = Instant::now() + time;
        while let Ok(reply) = timeout_at(end, requests.next()).await {
            self.send_reply(reply);
        }
    }

    /// Handles one event; returns the answer if the event contains it.
    async fn take_event(
        &self,
        event: Event,
        request: &ActiveRequest<'_>,
        reading: &mut Reading<'_>,
    ) -> Result<Option<Response>, BackendError> {
        // An event without data primes a resumable stream (2025-11-25 basic/transports).
        if !is_message(&event) {
            // Only clients with a session have resumable streams.
            if event.data.is_empty() && event.id.is_some() && request.context.session().is_some() {
                let _ = request
                    .messages
                    .try_send(ServerMessage::Stream(StreamSignal::Begun));
            }
            return Ok(None);
        }
        let messages = match messages(event.data.clone(), self.revision.batches) {
            Ok(messages) => messages,
            Err(error) => {
                let reason = format!("an event that is no message: {error}");
                // A malformed answer ends the wait; other malformed messages are skipped.
                if let Some(refusal) = refuse_invalid(&event.data, &error) {
                    self.post_detached(refusal);
                } else if meant_for(&event.data, &error) == Some(request.id) {
                    return Err(BackendError::Malformed { reason });
                }
                self.warn_of(&reason, &event.data);
                reading.skipped = Some(reason);
                return Ok(None);
            }
        };
        let mut answer = None;
        for message in messages {
            match message {
                // An error for no request in particular is about the only one that was sent.
                Message::Response(response)
                    if request_number(&response.id()) == Some(request.id)
                        || (response.is_error() && response.id().is_null()) =>
                {
                    answer = Some(response);
                }
                Message::Response(response) => {
                    self.warn_of("an answer to another request", response.id().bytes());
                }
                Message::Notification(notification) => match cancelled_id(&notification) {
                    Some(id) => reading.requests.cancel(&id),
                    None => self.pass_on(notification, request).await,
                },
                Message::Request(asked) if self.revision.questions == Questions::InputRequired => {
                    let waits = self.refuse_request(&asked);
                    reading.refused = waits.then(|| Instant::now() + refused_request());
                }
                Message::Request(asked) => {
                    Box::pin(self.take_request(&asked, request, &mut reading.requests)).await;
                }
            }
        }
        Ok(answer)
    }

    /// Refuses a request of a modern server at once. Modern servers must not send any (2026-07-28
    /// streamable-http, Receiving Messages), but some do, and wait. Returns whether the server may
    /// be unable to continue.
    fn refuse_request(&self, asked: &Request) -> bool {
        self.post_detached(refuse_modern(&self.context.name, asked));
        asked.method != Method::Ping
    }

    /// Handles a request on a call's stream, which is for the call's client (2025-11-25
    /// basic/transports, Sending Messages to the Server).
    async fn take_request(
        &self,
        asked: &Request,
        request: &ActiveRequest<'_>,
        requests: &mut OpenServerRequests,
    ) {
        if let Some(ImmediateReply { text, missing }) =
            reply_immediately(asked, &self.context.declared)
        {
            if let Some(missing) = missing {
                // Dropped if the client does not keep up: it only explains an answer.
                let _ = request.messages.try_send(ServerMessage::Refused(missing));
            }
            return self.reply_to_server(text).await;
        }
        let span = server_request_span(&self.context.telemetry, &request.sending.parent(), asked);
        match PendingServerRequest::new(
            asked,
            request.deadline,
            self.context.server_request_limits(),
            span,
        ) {
            Ok((pending, for_client)) => {
                let sent = request.messages.send(ServerMessage::Request(for_client));
                match timeout_at(pending.deadline, sent).await {
                    Ok(()) => requests.add(pending),
                    Err(_) => {
                        self.reply_to_server(cannot_ask_text(&asked.id, "it does not keep up"))
                            .await;
                    }
                }
            }
            Err(text) => self.reply_to_server(text).await,
        }
    }

    /// Sends a notification to the call's client. A slow client delays only this stream. Changes of
    /// lists and tasks also concern other clients, whichever stream a legacy server announces them
    /// on.
    async fn pass_on(&self, notification: Notification, request: &ActiveRequest<'_>) {
        let changed = matches!(
            notification.method,
            Method::ToolsChanged
                | Method::PromptsChanged
                | Method::ResourcesChanged
                | Method::ResourceUpdated
                | Method::TaskStatus
        );
        if changed && self.revision.has_sessions {
            self.context
                .outlet
                .deliver_beside(notification.clone(), &request.context.caller);
        }
        if concerns(&notification, request.token, request.context) {
            request
                .messages
                .send(ServerMessage::Notification(notification))
                .await;
        } else if notification.method == Method::Progress && self.revision.has_sessions {
            self.context.outlet.deliver_progress(
                notification,
                &request.context.caller,
                request.messages,
            );
        }
    }

    /// Handles the open requests of a call that the server has ended. The client answers them if it
    /// still can. Otherwise the server gets an error, at the latest when the client's time is over
    /// or the connection ends.
    fn reply_after_call(&self, mut requests: OpenServerRequests) {
        let (transport, end) = (self.clone(), self.context.end.clone());
        self.context.tasks.spawn(async move {
            while !requests.is_empty() {
                match end.run_until_cancelled(requests.next()).await {
                    Some(ServerRequestReply { text, pause }) => {
                        drop(pause);
                        transport.reply_within(DELIVERY, text).await;
                    }
                    None => transport.refuse_all(&mut requests).await,
                }
            }
        });
    }

    /// Refuses the open requests of a call that has ended.
    async fn refuse_all(&self, requests: &mut OpenServerRequests) {
        for text in requests.refuse_all(CALL_HAS_ENDED) {
            self.reply_within(DELIVERY, text).await;
        }
    }

    pub(super) fn warn_of(&self, what: &str, named: &[u8]) {
        let (backend, named) = (&*self.context.name, excerpt(named, 80));
        tracing::warn!(backend, named, "ignored on an event stream: {what}");
    }
}
