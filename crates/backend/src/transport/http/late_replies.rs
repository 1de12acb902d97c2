//! Replies to a server's requests whose call ended before they were answered.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_telemetry::recording::{Captured, Framing, To};
use tokio::time::timeout;

use super::client::Target;
use super::headers::MessageHeaders;
use super::{HttpEndpoint, HttpTransport};
use crate::request::TransportContext;
use crate::request::server_request::{CALL_HAS_ENDED, OpenServerRequests, ServerRequestReply};
use crate::settings::DELIVERY;

/// Sends replies of one session, independently of the connection's other users.
struct Replier {
    endpoint: Arc<HttpEndpoint>,
    target: Arc<Target>,
    headers: MessageHeaders,
    context: Arc<TransportContext>,
    /// The time limit of one reply.
    limit: Duration,
}

impl Replier {
    async fn send(&self, text: Bytes) {
        let headers = self.headers.of_message();
        self.context.record(&text, |message| Captured {
            exchange: self.context.recorded_exchange(),
            to: To::Server,
            kind: Framing::Body,
            transport: "http",
            method: Some("POST"),
            headers: fanlight_http::header_texts(&headers),
            ..message
        });
        let post =
            (self.endpoint).execute_at(&self.target, http::Method::POST, headers, text, false);
        if !matches!(timeout(self.limit, post).await, Ok(Ok(http)) if http.status.is_success()) {
            tracing::debug!("reply to a request of the server not accepted");
        }
    }
}

impl HttpTransport {
    /// Handles the open requests of a call that the server has ended. The client answers them if it
    /// still can. Otherwise the server gets an error, at the latest when the client's time is over
    /// or the connection ends.
    pub(super) fn reply_after_call(&self, mut requests: OpenServerRequests) {
        let (replier, end) = (self.replier(), self.context.end.clone());
        self.context.tasks.spawn(async move {
            while !requests.is_empty() {
                match end.run_until_cancelled(requests.next()).await {
                    Some(ServerRequestReply { text, pause }) => {
                        drop(pause);
                        replier.send(text).await;
                    }
                    None => {
                        for text in requests.refuse_all(CALL_HAS_ENDED) {
                            replier.send(text).await;
                        }
                    }
                }
            }
        });
    }

    /// Sends these replies, best effort.
    pub(super) fn refuse_later(&self, texts: Vec<Bytes>) {
        let replier = self.replier();
        self.endpoint
            .spawn_detached(&self.context.tasks, async move {
                for text in texts {
                    replier.send(text).await;
                }
            });
    }

    fn replier(&self) -> Replier {
        Replier {
            endpoint: Arc::clone(&self.endpoint),
            target: self.target(),
            headers: self.headers.clone(),
            context: Arc::clone(&self.context),
            limit: DELIVERY,
        }
    }
}
