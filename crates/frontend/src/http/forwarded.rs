//! Requests that other replicas forward. They arrive in envelopes at a separate listener, over TLS
//! with a replica's certificate. Anything else is refused.

use std::sync::Arc;

use crate::forwarding::{ENVELOPE, Replicas};
use fanlight_credentials::ConnectionFacts;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::activity::ActiveRequest;
use super::mcp::Endpoint;
use super::reply::{self, ReplyBody};
use super::serve::Serve;

/// Answers forwarded requests as if they had arrived at `endpoint`.
pub(super) struct ForwardedRequests {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) replicas: Arc<dyn Replicas>,
}

impl Serve for ForwardedRequests {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<ConnectionFacts>,
        active: &ActiveRequest,
    ) -> impl Future<Output = Response<ReplyBody>> + Send {
        async move {
            let (head, mut body) = request.into_parts();
            // The listener already demands a certificate; this check does not rely on it.
            let envelope = connection
                .certificate
                .as_ref()
                .and_then(|_| envelope(&head));
            let reason = match envelope.map(|text| self.replicas.open(text)) {
                Some(Ok(opened)) => {
                    let answer = self.endpoint.answer_forwarded(&opened, &mut body, active);
                    return Box::pin(answer).await;
                }
                Some(Err(refused)) => refused.to_string(),
                None => "it has no envelope, or its sender no certificate".to_owned(),
            };
            // A stolen certificate alone keeps no connection.
            active.count_stranger();
            refuse(&reason)
        }
    }
}

fn envelope(head: &Parts) -> Option<&str> {
    let mut all = head.headers.get_all(ENVELOPE).iter();
    let first = all.next().filter(|_| all.next().is_none())?;
    first.to_str().ok()
}

/// Answers that the request was not processed: its sender may take this replica for its own earlier
/// run.
fn refuse(reason: &str) -> Response<ReplyBody> {
    tracing::warn!(reason, "request at the listener for replicas refused");
    reply::empty(StatusCode::MISDIRECTED_REQUEST)
}
