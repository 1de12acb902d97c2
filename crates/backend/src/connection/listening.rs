//! The parts of a connection that [`crate::listening`] uses.

use std::sync::Arc;

use bytes::Bytes;
use fanlight_protocol::{Json, Method};

use super::Connection;
use crate::request::trace::{SentMessage, params_with};
use crate::request::{ActiveRequest, OutgoingRequest, Reply};
use crate::settings::STABLE_CONNECTION;
use crate::transport::http::HttpTransport;
use fanlight_canonical::BackendError;
use fanlight_canonical::{CallContext, ServerMessages};

impl Connection {
    /// A subscription, which is open until the server ends it or this is dropped.
    pub(crate) async fn subscribe(
        &self,
        params: &Json,
        context: &Arc<CallContext>,
        messages: &ServerMessages,
    ) -> Result<Reply, BackendError> {
        let (id, deadline, method) = (self.context.next_id(), Arc::default(), &Method::Listen);
        let departing = SentMessage {
            method,
            params: Some(params),
            name: None,
            id,
            attempt: 1,
        };
        let (sending, propagation) = self.sending(&context.trace, departing);
        let carrying = params_with(&propagation, Some(params), self.transport.has_headers());
        let (sending, messages) = sending.until_acknowledged(messages);
        let outgoing = OutgoingRequest {
            request: ActiveRequest {
                id,
                token: id,
                method,
                context,
                messages: &messages,
                deadline: &deadline,
                cancellable: true,
                sending: &sending,
            },
            task: None,
            text: self
                .dialect
                .request_text(id, method, carrying.as_deref(), context),
            mirror: self.mirror(method, Some(params), None, &[]),
            propagation,
        };
        self.transport.exchange(outgoing).await
    }

    /// The transport, if it is Streamable HTTP.
    pub(crate) fn http(&self) -> Option<&HttpTransport> {
        self.transport.http()
    }

    /// Sends a message that is not a request.
    pub(crate) async fn tell(&self, text: Bytes) -> Result<(), BackendError> {
        self.transport.notify(text).await
    }

    /// Whether the connection is old enough for the server to have forgotten the session.
    pub(crate) fn is_seasoned(&self) -> bool {
        self.is_continued() || self.since.elapsed() >= STABLE_CONNECTION
    }
}
