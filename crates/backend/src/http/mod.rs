//! The Streamable HTTP transport: every message is a POST of its own; what a legacy server sends
//! outside of calls comes on the stream of a GET. `old` is the deprecated HTTP+SSE transport.
//!
//! Must not know: what requests mean, or how a server's era is found.

mod answer;
mod client;
mod endpoint;
mod events;
mod heads;
mod hear;
mod old;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::{Era, Method, Revision};
use fanlight_telemetry::metrics::Direction;
use http::header::{HeaderMap, HeaderValue};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub(crate) use endpoint::HttpEndpoint;
pub(crate) use hear::{Deaf, Hearing};
pub(crate) use old::Posts;

use answer::answers_in_json;
use client::{HttpResponse, ResponseFuture};
use heads::Heads;

use crate::exchange::{Awaited, LinkContext, Outgoing, Reply, cancelled_text};
use crate::question::Settled;
use fanlight_canonical::BackendError;

/// How long a message may take that nobody waits for.
const SIDE_MESSAGE: Duration = Duration::from_secs(5);
/// How long an answer to a question of the server's may take.
const ANSWER: Duration = Duration::from_secs(30);
/// What is read of a stream after its answer, so that its connection can be used again.
const REST: (usize, Duration) = (64 << 10, Duration::from_millis(250));

/// One agreement with an HTTP server.
pub(crate) struct HttpLink {
    endpoint: Arc<HttpEndpoint>,
    context: LinkContext,
    heads: Heads,
    /// The revision agreed on.
    revision: Option<Revision>,
}

impl HttpLink {
    pub(crate) fn new(endpoint: Arc<HttpEndpoint>, context: LinkContext) -> Self {
        let heads = Heads::new(&endpoint.headers);
        Self { endpoint, context, heads, revision: None }
    }

    /// Takes up what the handshake agreed on.
    pub(crate) fn adopt(&mut self, revision: Revision, session: Option<HeaderValue>) {
        self.revision = Some(revision);
        self.heads.adopt(revision, session);
    }

    pub(crate) fn has_session(&self) -> bool {
        self.heads.session().is_some()
    }

    pub(crate) fn session(&self) -> Option<&str> {
        self.heads.session().and_then(|id| id.to_str().ok())
    }

    /// Sends a request and reads its reply. The future is to be polled at once.
    pub(crate) fn exchange<'a>(
        &'a self,
        outgoing: Outgoing<'a>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        let Outgoing { request, text, mirror, propagation, .. } = outgoing;
        let headers = self.heads.of_request(text.len(), mirror, &propagation);
        let executing = self.post_with(headers, text);
        async move {
            let mut abandoned = CancelOnDrop { link: self, id: request.id, armed: self.cancels(&request) };
            let mut http = match executing.await {
                Ok(http) => http,
                Err(error) => {
                    abandoned.armed = false;
                    return Err(self.endpoint.failure(&error));
                }
            };
            let reply = match answers_in_json(&http) {
                true => self.read_json(&mut http, &request).await,
                false => self.read_other(http, &request).await,
            };
            abandoned.armed = false;
            reply
        }
    }

    /// A legacy server has to be told; a modern one sees the stream close (2026-07-28
    /// basic/patterns/cancellation).
    fn cancels(&self, request: &Awaited<'_>) -> bool {
        request.cancellable && self.revision.is_some_and(|revision| revision.era() == Era::Legacy)
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, text: Bytes) -> Result<(), BackendError> {
        let sent = self.post(text).await;
        let status = sent.map_err(|error| self.endpoint.failure(&error))?.status;
        match status.as_u16() {
            status @ (401 | 403) => Err(BackendError::Unauthorized { status }),
            status @ 400.. => {
                tracing::debug!(backend = &*self.context.name, status, "notification not accepted");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends the session, if there is one.
    pub(crate) async fn close(&self) {
        if !self.has_session() {
            return;
        }
        let ending = self.endpoint.execute(http::Method::DELETE, self.heads.of_message(), Bytes::new());
        // Servers may refuse (405), and there is nobody left whom a failure would concern.
        let _ = timeout(self.context.timeouts.session_end, ending).await;
    }

    /// Sends a message that is no request.
    fn post(&self, text: Bytes) -> ResponseFuture {
        self.post_with(self.heads.of_message(), text)
    }

    fn post_with(&self, headers: HeaderMap, text: Bytes) -> ResponseFuture {
        self.context.telemetry.metrics().io(Direction::Transmit, text.len() as u64);
        self.endpoint.execute(http::Method::POST, headers, text)
    }

    /// Sends the answer to a question of the server's, while the stream of the call goes on being
    /// read. The answer is not lost if the call ends meanwhile; the call stays paused
    /// until the server has it, which also bounds how many are on their way.
    fn send_answer(&self, settled: Settled) {
        let Settled { text, pause } = settled;
        let post = self.post(text);
        let backend = Arc::clone(&self.context.name);
        self.context.tasks.spawn(async move {
            if !matches!(timeout(ANSWER, post).await, Ok(Ok(http)) if http.status.is_success()) {
                tracing::debug!(backend = &*backend, "answer to a question of the server not accepted");
            }
            drop(pause);
        });
    }

    /// Answers a request of the server's, best effort.
    async fn reply_to_server(&self, text: Bytes) {
        if !matches!(timeout(SIDE_MESSAGE, self.post(text)).await, Ok(Ok(_))) {
            tracing::debug!(backend = &*self.context.name, "reply to a request of the server not delivered");
        }
    }

    fn is_initialize(request: &Awaited<'_>) -> bool {
        *request.method == Method::Initialize
    }
}

/// Reads what is left of a response that says nothing more, if that is little, so that the
/// connection goes back to the pool. Most servers end it in the same breath.
fn let_end(endpoint: &HttpEndpoint, tasks: &TaskTracker, mut response: HttpResponse) {
    use futures_util::FutureExt as _;
    if matches!(response.chunk().now_or_never(), Some(Ok(None) | Err(_))) {
        return;
    }
    let (limit, time) = REST;
    endpoint.aside(tasks, async move {
        let rest = async {
            let mut read = 0;
            while let Ok(Some(chunk)) = response.chunk().await {
                read += chunk.len();
                if read > limit {
                    break;
                }
            }
        };
        let _ = timeout(time, rest).await;
    });
}

/// Tells the server when nobody waits for the answer any more.
struct CancelOnDrop<'a> {
    link: &'a HttpLink,
    id: i64,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let post = self.link.post(cancelled_text(self.id));
        self.link.endpoint.aside(&self.link.context.tasks, async move {
            let _ = timeout(SIDE_MESSAGE, post).await;
        });
    }
}
