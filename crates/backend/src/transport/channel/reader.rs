//! Reads a channel, and delivers each message to its call, subscription or listener.
//!
//! It never waits for a client, which would delay all others. No single message of a server ends
//! the channel.

use bytes::Bytes;
use fanlight_protocol::{
    Json, Message, MessageError, Method, MissingCapability, Notification, Questions, Request, meta,
    partial,
};
use fanlight_telemetry::recording::Captured;

use super::Shared;
use super::pending::{LogTarget, RequestTarget, ServerRequestEvent};
use crate::log::excerpt;
use crate::request::dialect::progress_token;
use crate::request::server_request::{
    ImmediateReply, PendingServerRequest, cancelled_id, cannot_ask_text, refuse_invalid,
    refuse_modern, reply_immediately,
};
use crate::request::{meant_for, messages, request_number, server_request_span};
use fanlight_canonical::{BackendError, ServerMessage, ServerMessages};

/// The number of characters of an invalid message in the log.
const SHOWN: usize = 120;

/// Handles a server's messages in order.
pub(crate) struct Reader<'a> {
    shared: &'a Shared,
    /// The number of valid messages.
    pub(crate) valid: u64,
    /// The number of invalid messages.
    pub(crate) garbage: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            valid: 0,
            garbage: 0,
        }
    }

    /// Gives a line to the recording, if there is one.
    pub(crate) fn record(&self, text: &Bytes) {
        let revision = self.shared.revision.get().map(|agreed| agreed.name);
        self.shared.context.record(text, |message| Captured {
            revision,
            ..message
        });
    }

    /// Handles one text: a message, or several if the revision has batches.
    pub(crate) fn take_text(&mut self, text: Bytes) {
        match messages(text.clone(), self.shared.revision().batches) {
            Ok(messages) => {
                self.valid += 1;
                self.shared.liveness.message();
                messages.for_each(|message| self.take_message(message));
            }
            Err(error) => {
                // A prompt or banner without a line break may stand before the first message.
                let is_first = self.valid + self.garbage == 0;
                let begin = text.iter().position(|byte| *byte == b'{');
                let begin = begin.filter(|begin| is_first && *begin > 0);
                self.take_garbage(&text.slice(..begin.unwrap_or(text.len())), &error);
                if let Some(begin) = begin {
                    self.take_text(text.slice(begin..));
                }
            }
        }
    }

    fn take_message(&self, message: Message) {
        match message {
            Message::Response(response) => {
                self.shared.liveness.answer();
                let id = request_number(&response.id());
                // A late answer, whose request was cancelled.
                if !id.is_some_and(|id| self.shared.pending.resolve(id, Ok(response))) {
                    tracing::debug!(
                        backend = &*self.shared.context.name,
                        ?id,
                        "answer to no pending request"
                    );
                }
            }
            Message::Notification(notification) => self.take_notification(notification),
            Message::Request(request)
                if self.shared.revision().questions == Questions::InputRequired =>
            {
                let refusal = refuse_modern(&self.shared.context.name, &request);
                self.shared.send_detached(refusal);
            }
            Message::Request(request) => {
                let text = match reply_immediately(&request, &self.shared.context.declared) {
                    Some(ImmediateReply { text, missing }) => {
                        self.tell_refused(missing);
                        Some(text)
                    }
                    None => self.ask(&request).err(),
                };
                if let Some(text) = text {
                    self.shared.send_detached(text);
                }
            }
        }
    }

    /// Sends a server request to a call's client; returns the reply to the server if that is
    /// impossible.
    fn ask(&self, request: &Request) -> Result<(), Bytes> {
        let unasked = |why: &str| cannot_ask_text(&request.id, why);
        let (messages, deadline, asks, trace) = match self
            .shared
            .pending
            .request_target(related_task(request).as_deref())
        {
            RequestTarget::Call {
                messages,
                deadline,
                asks,
                trace,
            } => (messages, deadline, asks, trace),
            RequestTarget::None if self.shared.context.outlet.ask(request) => return Ok(()),
            RequestTarget::None => {
                return Err(unasked(
                    "no call is running that the request could belong to",
                ));
            }
            RequestTarget::Ambiguous => return Err(unasked("several clients are possible")),
        };
        let span = server_request_span(&self.shared.context.telemetry, &trace, request);
        let limits = self.shared.context.server_request_limits();
        let (pending, for_client) = PendingServerRequest::new(request, &deadline, limits, span)?;
        let place = asks
            .try_reserve()
            .map_err(|_| unasked("the call is ending"))?;
        if !messages.try_send(ServerMessage::Request(for_client)) {
            return Err(unasked("its queue is full"));
        }
        place.send(ServerRequestEvent::Sent(pending));
        Ok(())
    }

    /// Reports a refused request to the client that it must have been for.
    fn tell_refused(&self, missing: Option<MissingCapability>) {
        if let Some((missing, messages)) = missing.zip(self.shared.pending.only_client()) {
            let _ = messages.try_send(ServerMessage::Refused(missing));
        }
    }

    fn take_notification(&self, notification: Notification) {
        let backend = &*self.shared.context.name;
        if let Some(id) = cancelled_id(&notification) {
            self.shared.pending.withdraw(&id);
            return self.shared.context.outlet.withdraw(&id);
        }
        if !self.shared.revision().has_sessions
            && let Some(id) = notification.subscription_id()
        {
            return self.take_subscribed(&id, notification);
        }
        match notification.method {
            Method::Progress => {
                let token = progress_token(&notification);
                match token.and_then(|id| self.shared.pending.progress_target(id)) {
                    Some(target) => self.pass_on(&target, notification),
                    None => self.shared.context.outlet.deliver(notification),
                }
            }
            Method::LogMessage => {
                match self.shared.pending.log_target(
                    notification.log_level(),
                    self.shared.revision().has_sessions,
                ) {
                    LogTarget::Call(target) => self.pass_on(&target, notification),
                    LogTarget::None => self.shared.context.outlet.deliver(notification),
                    LogTarget::Ambiguous => {
                        let why = "several clients are possible";
                        tracing::warn!(backend, why, "log message of shared connection dropped");
                    }
                }
            }
            _ => self.shared.context.outlet.deliver(notification),
        }
    }

    /// Handles a notification of a subscription (2026-07-28 basic/patterns/subscriptions, Receiving
    /// Notifications).
    fn take_subscribed(&self, id: &Json, notification: Notification) {
        match request_number(id).and_then(|id| self.shared.pending.subscription(id)) {
            Some(target) => self.pass_on(&target, notification),
            None => {
                let backend = &*self.shared.context.name;
                tracing::debug!(backend, "notification of a subscription that has ended");
            }
        }
    }

    fn pass_on(&self, target: &ServerMessages, notification: Notification) {
        if !target.try_send(ServerMessage::Notification(notification)) {
            let backend = &*self.shared.context.name;
            tracing::warn!(backend, "notification dropped: queue of the client is full");
        }
    }

    fn take_garbage(&mut self, text: &Bytes, error: &MessageError) {
        if let Some(refusal) = refuse_invalid(text, error) {
            self.shared.send_detached(refusal);
        } else if let Some(id) = meant_for(text, error)
            // An invalid answer fails its request.
            && self.shared.pending.resolve(
                id,
                Err(BackendError::Malformed {
                    reason: error.to_string(),
                }),
            )
        {
            return;
        }
        self.garbage += 1;
        if self.garbage == 1 {
            let (backend, line) = (&*self.shared.context.name, excerpt(text, SHOWN));
            tracing::warn!(
                backend,
                line,
                "invalid message from server; further ones are only counted"
            );
        }
    }

    /// Handles a message of which only both ends are known, because it was too long or there was no
    /// memory.
    pub(crate) fn take_dropped(&self, head: &[u8], tail: &[u8], len: usize) {
        let limit = self.shared.context.limits.message_bytes;
        let error = if len > limit {
            BackendError::ResponseTooLarge { limit }
        } else {
            self.shared.context.memory.no_memory_error()
        };
        let pending = &self.shared.pending;
        let found = partial::id(head, tail)
            .as_ref()
            .and_then(request_number)
            .or_else(|| pending.only_call());
        let resolved = found.is_some_and(|id| pending.resolve(id, Err(error.clone())));
        if !resolved {
            let backend = &*self.shared.context.name;
            tracing::warn!(backend, len, %error, "message of no known request dropped");
        }
    }
}

/// The task that a request belongs to (2025-11-25 basic/utilities/tasks, Associating Task-Related
/// Messages).
fn related_task(request: &Request) -> Option<String> {
    let related = request
        .params
        .as_ref()?
        .get("_meta")?
        .get(meta::RELATED_TASK)?;
    related.text_at("taskId")
}
