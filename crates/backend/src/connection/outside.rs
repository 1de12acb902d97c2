//! What a connection offers to those who keep up what is heard outside of calls.
//!
//! Must not know: who hears it.

use std::sync::Arc;

use bytes::Bytes;
use fanlight_protocol::{Json, Method};

use super::{Connection, FRESH};
use crate::exchange::{Awaited, Outgoing, Reply};
use crate::http::HttpLink;
use crate::trace::{Departing, params_with};
use fanlight_canonical::BackendError;
use fanlight_canonical::{CallContext, ServerMessages};

impl Connection {
    /// A subscription: open until the server ends it or this is dropped.
    pub(crate) async fn subscribe(
        &self,
        params: &Json,
        context: &Arc<CallContext>,
        messages: &ServerMessages,
    ) -> Result<Reply, BackendError> {
        let (id, deadline, method) = (self.context.next_id(), Arc::default(), &Method::Listen);
        let departing = Departing { method, params: Some(params), name: None, id, attempt: 1 };
        let (sending, propagation) = self.sending(&context.trace, departing);
        let carrying = params_with(&propagation, Some(params), self.link.has_headers());
        let (sending, messages) = sending.until_acknowledged(messages);
        let outgoing = Outgoing {
            request: Awaited {
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
            text: self.dialect.request_text(id, method, carrying.as_deref(), context),
            mirror: self.mirror(method, Some(params), None, &[]),
            propagation,
        };
        self.link.exchange(outgoing).await
    }

    /// The link, if it is one over HTTP.
    pub(crate) fn http(&self) -> Option<&HttpLink> {
        self.link.http()
    }

    /// Sends a message that is no request.
    pub(crate) async fn tell(&self, text: Bytes) -> Result<(), BackendError> {
        self.link.notify(text).await
    }

    /// Whether the server has had time to forget the session.
    pub(crate) fn is_seasoned(&self) -> bool {
        self.since.elapsed() >= FRESH
    }
}
