//! Requests of servers during an operator's call (elicitation, sampling, roots). They are refused, since an operator
//! has no client that could answer; the answer to the call lists the capabilities that were missing.

use fanlight_canonical::{MessageReceiver, ServerMessage, ServerMessages};
use fanlight_protocol::capability::{ClientCapability, MissingCapability, required_capabilities};
use fanlight_protocol::{Json, Method, Response};
use fanlight_telemetry::Parent;

/// Capacity of the queue of messages, which is drained at once.
const CAPACITY: usize = 16;

/// Receives the messages of a server during a call, and refuses its requests.
pub(super) struct Refusals {
    messages: MessageReceiver,
    trace: Parent,
    missing: Vec<MissingCapability>,
}

impl Refusals {
    /// The sender for the messages of the server during the call of `trace`, and their receiver.
    pub(super) fn during(trace: Parent) -> (ServerMessages, Self) {
        let (sender, messages) = ServerMessages::channel(CAPACITY);
        (sender, Self { messages, trace, missing: Vec::new() })
    }

    /// Waits for the answer, and refuses requests meanwhile.
    pub(super) async fn until(&mut self, answer: impl Future<Output = Response>) -> Response {
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
        self.note_input_required(&response);
        response
    }

    /// The `ClientCapabilities` that a client must declare for the refused requests; `None` if there were none.
    pub(super) fn required(&self) -> Option<Json> {
        required_capabilities(&self.missing)
    }

    fn take(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Notification(notification) | ServerMessage::TaskProgress(notification) => {
                self.trace.notified(&notification);
            }
            ServerMessage::Refused(missing) => self.note(missing),
            // Dropping it answers the server that the client lacks the capability.
            ServerMessage::Request(request) => self.lacks(&request.method, request.params.as_ref()),
            ServerMessage::Pause { .. } | ServerMessage::StreamBegun => {}
        }
    }

    /// A modern server sends its requests in the result (2026-07-28 basic/patterns/mrtr); the call ends there.
    fn note_input_required(&mut self, response: &Response) {
        let pending = response.result().filter(|result| {
            result.get("resultType").is_some_and(|kind| kind.as_str().as_deref() == Some("input_required"))
        });
        let Some(all) = pending.and_then(|result| result.get("inputRequests")) else { return };
        for request in all.members().map(|member| all.slice(member.value)) {
            if let Some(method) = request.get("method").as_ref().and_then(Json::as_str) {
                self.lacks(&Method::from_name(&method), request.get("params").as_ref());
            }
        }
    }

    fn lacks(&mut self, method: &Method, params: Option<&Json>) {
        let nothing = Json::empty_object();
        if let Some(missing) =
            ClientCapability::of(method, params).and_then(|need| MissingCapability::of(&nothing, need))
        {
            self.note(missing);
        }
    }

    /// Each kind once.
    fn note(&mut self, missing: MissingCapability) {
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }
}
