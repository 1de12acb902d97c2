//! What servers ask of the operator while a call of the operator's runs. They are refused: there is
//! nobody who would answer. Which it was is told with the answer to the call.
//!
//! Must not know: how the call was made.

use fanlight_canonical::{MessageReceiver, ServerMessage, ServerMessages};
use fanlight_protocol::capability::{ClientCapability, MissingCapability, required_capabilities};
use fanlight_protocol::{Json, Method, Response};
use fanlight_telemetry::Parent;

/// Messages of the server that wait to be looked at. They are at once, so there are never many.
const WAITING: usize = 16;

/// Listens to a call.
pub(super) struct Asked {
    messages: MessageReceiver,
    trace: Parent,
    missing: Vec<MissingCapability>,
}

impl Asked {
    /// The way for what the server sends during the call that `trace` is about, and who listens to it.
    pub(super) fn during(trace: Parent) -> (ServerMessages, Self) {
        let (way, messages) = ServerMessages::channel(WAITING);
        (way, Self { messages, trace, missing: Vec::new() })
    }

    /// Waits for the answer, and refuses what is asked meanwhile.
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
        self.wished(&response);
        response
    }

    /// The `ClientCapabilities` object that a client would have to declare to be asked what was
    /// refused; `None` if nothing was.
    pub(super) fn required(&self) -> Option<Json> {
        required_capabilities(&self.missing)
    }

    fn take(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Notification(notification) => self.trace.notified(&notification),
            ServerMessage::Refused(missing) => self.note(missing),
            // Dropped without an answer, its server is told that the client cannot be asked.
            ServerMessage::Request(request) => self.lacks(&request.method, request.params.as_ref()),
            ServerMessage::Pause { .. } => {}
        }
    }

    /// A modern server asks by its result (2026-07-28 basic/patterns/mrtr), which nobody goes on with.
    fn wished(&mut self, response: &Response) {
        let wish = response.result().filter(|result| {
            result.get("resultType").is_some_and(|kind| kind.as_str().as_deref() == Some("input_required"))
        });
        let Some(all) = wish.and_then(|wish| wish.get("inputRequests")) else { return };
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

    /// Each once: there are few kinds.
    fn note(&mut self, missing: MissingCapability) {
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }
}
