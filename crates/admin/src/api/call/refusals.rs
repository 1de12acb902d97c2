//! Refuses servers' requests during a call that no operator attends (elicitation, sampling, roots).
//! The caller cannot answer them, so the answer to the call lists the missing capabilities.

use fanlight_canonical::{MessageReceiver, ServerMessage, ServerMessages};
use fanlight_protocol::capability::{ClientCapability, MissingCapability, required_capabilities};
use fanlight_protocol::input::InputRequired;
use fanlight_protocol::{Json, Method, Response};
use fanlight_telemetry::Parent;

/// The capacity of the message queue, which is drained at once.
const CAPACITY: usize = 16;

/// Receives a server's messages during a call, and refuses its requests.
pub(super) struct Refusals {
    messages: MessageReceiver,
    trace: Parent,
    missing: MissingCapabilities,
}

impl Refusals {
    /// The sender for the server's messages during the call of `trace`, and their receiver.
    pub(super) fn channel(trace: Parent) -> (ServerMessages, Self) {
        let (sender, messages) = ServerMessages::channel(CAPACITY);
        (
            sender,
            Self {
                messages,
                trace,
                missing: MissingCapabilities::new(Json::empty_object()),
            },
        )
    }

    /// Waits for the answer, and refuses the requests that arrive before it.
    pub(super) async fn refuse_until(
        &mut self,
        answer: impl Future<Output = Response>,
    ) -> Response {
        let mut answer = std::pin::pin!(answer);
        let response = loop {
            tokio::select! {
                biased;
                Some(message) = self.messages.recv() => self.take(message),
                response = &mut answer => break response,
            }
        };
        while let Some(message) = self.messages.try_recv() {
            self.take(message);
        }
        // A modern server sends its requests in the result (2026-07-28 basic/patterns/mrtr), which
        // ends the call.
        let requests =
            InputRequired::from_response(&response).and_then(|required| required.requests().ok());
        for request in requests.unwrap_or_default() {
            self.missing.lacks(&request.method, request.params.as_ref());
        }
        response
    }

    /// The `ClientCapabilities` that a client must declare for the refused requests; `None` if
    /// there were none.
    pub(super) fn required_capabilities(&self) -> Option<Json> {
        self.missing.required_capabilities()
    }

    fn take(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Notification(notification)
            | ServerMessage::TaskProgress(notification) => {
                self.trace.record_notification(&notification);
            }
            ServerMessage::Refused(missing) => self.missing.note(missing),
            // Dropping the request tells the server that the client lacks the capability.
            ServerMessage::Request(request) => {
                self.missing.lacks(&request.method, request.params.as_ref());
            }
            ServerMessage::Stream(_) => {}
        }
    }
}

/// Collects the missing capabilities.
#[derive(Debug)]
pub(super) struct MissingCapabilities {
    declared: Json,
    missing: Vec<MissingCapability>,
}

impl MissingCapabilities {
    /// An empty collection for a client with the `declared` capabilities.
    pub(super) fn new(declared: Json) -> Self {
        Self {
            declared,
            missing: Vec::new(),
        }
    }

    /// The `ClientCapabilities` that a client must declare for the refused requests; `None` if
    /// there were none.
    pub(super) fn required_capabilities(&self) -> Option<Json> {
        required_capabilities(&self.missing)
    }

    /// Notes missing capabilities that a request needs. Returns whether there are any.
    pub(super) fn lacks(&mut self, method: &Method, params: Option<&Json>) -> bool {
        let needed = ClientCapability::for_request(method, params);
        let missing = needed.and_then(|need| MissingCapability::check(&self.declared, need));
        if let Some(missing) = missing {
            self.note(missing);
        }
        missing.is_some()
    }

    /// Notes a missing capability once.
    pub(super) fn note(&mut self, missing: MissingCapability) {
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }
}
