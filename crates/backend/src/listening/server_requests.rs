//! Requests of a legacy server that do not say which call they belong to.
//!
//! They go to the client's listener, or else to the stream of its oldest running call: a server may
//! send a call's requests outside of the call's stream. The same rules apply as during calls. The
//! client must have declared the capability. The number of open requests and the time for an answer
//! are limited.

use std::sync::Arc;

use bytes::Bytes;
use fanlight_canonical::{Caller, ServerMessage};
use fanlight_protocol::Request;
use fanlight_telemetry::ServerSpan;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::connection::Connection;
use crate::request::deadline::{PausableDeadline, Pause};
use crate::request::server_request::{
    OpenServerRequests, PendingServerRequest, ServerRequestLimits, cannot_ask_text,
};
use crate::settings::DELIVERY;
use crate::subscriptions::{SubscriptionRegistry, UnsolicitedRequest, UnsolicitedRequests};

/// Forwards the server's requests on a connection that serves a single client.
pub(super) struct ServerRequests<'a> {
    pub(super) registry: &'a SubscriptionRegistry,
    pub(super) connection: &'a Arc<Connection>,
    /// The client's session, if it has one.
    pub(super) session: Option<&'a Caller>,
    pub(super) limits: ServerRequestLimits,
    pub(super) tasks: &'a TaskTracker,
}

impl ServerRequests<'_> {
    /// Forwards requests and answers; never returns.
    pub(super) async fn forward(self, requests: &mut UnsolicitedRequests) {
        let (mut open, deadline) = (
            OpenServerRequests::default(),
            Arc::<PausableDeadline>::default(),
        );
        loop {
            tokio::select! {
                biased;
                reply = open.next() => self.send(reply.text, reply.pause),
                request = requests.next() => match request {
                    UnsolicitedRequest::Request(request) => match self.ask(&request, &deadline) {
                        Ok(pending) => open.add(pending),
                        Err(text) => self.send(text, None),
                    },
                    UnsolicitedRequest::Cancelled(id) => open.cancel(&id),
                }
            }
        }
    }

    /// Asks the client. Returns the message for the server if that is impossible.
    fn ask(
        &self,
        request: &Request,
        outside: &Arc<PausableDeadline>,
    ) -> Result<PendingServerRequest, Bytes> {
        let listener = self
            .session
            .and_then(|session| self.registry.listener_of(session));
        let (messages, deadline, number) = match listener {
            // These requests keep no call alive, so their number does not matter.
            Some(messages) => (messages, Arc::clone(outside), usize::MAX),
            None => {
                let why = "no call is running that the request could belong to, and the client does not listen";
                let call = self
                    .connection
                    .oldest_call()
                    .ok_or_else(|| cannot_ask_text(&request.id, why))?;
                (call.0, call.1, self.limits.number)
            }
        };
        let limits = ServerRequestLimits {
            number,
            ..self.limits
        };
        let (pending, for_client) =
            PendingServerRequest::new(request, &deadline, limits, ServerSpan::off())?;
        if !messages.try_send(ServerMessage::Request(for_client)) {
            self.registry.warn_of_slow(1);
            return Err(cannot_ask_text(&request.id, "it does not keep up"));
        }
        Ok(pending)
    }

    /// Sends a message to the server in a separate task. The request counts as open meanwhile.
    fn send(&self, text: Bytes, pause: Option<Pause>) {
        let connection = Arc::clone(self.connection);
        self.tasks.spawn(async move {
            let _: Result<_, _> = timeout(DELIVERY, connection.tell(text)).await;
            drop(pause);
        });
    }
}
