//! The Streamable HTTP transport: every message is a POST of its own; what a legacy server sends
//! outside of calls comes on the stream of a GET. `old` is the deprecated HTTP+SSE transport.
//!
//! Must not know: what requests mean, or how a server's era is found.

mod answer;
mod endpoint;
mod events;
mod hear;
mod old;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::{Era, Method, Revision, header};
use fanlight_telemetry::metrics::Direction;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub(crate) use endpoint::HttpEndpoint;
pub(crate) use hear::{Deaf, Hearing};
pub(crate) use old::Posts;

use crate::dialect::Mirror;
use crate::error::BackendError;
use crate::exchange::{LinkContext, Outgoing, Reply, cancelled_text};
use crate::question::Settled;

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);
const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);

/// How long a message may take that nobody waits for.
const SIDE_MESSAGE: Duration = Duration::from_secs(5);
/// How long an answer to a question of the server's may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a server may take to end a session.
const SESSION_END: Duration = Duration::from_secs(1);
/// What is read of a stream after its answer, so that its connection can be used again.
const REST: (usize, Duration) = (64 << 10, Duration::from_millis(250));

/// One agreement with an HTTP server.
pub(crate) struct HttpLink {
    endpoint: Arc<HttpEndpoint>,
    context: LinkContext,
    /// What every request of this link carries.
    headers: HeaderMap,
    /// The revision agreed on.
    revision: Option<Revision>,
}

impl HttpLink {
    pub(crate) fn new(endpoint: Arc<HttpEndpoint>, context: LinkContext) -> Self {
        let headers = endpoint.headers.clone();
        Self { endpoint, context, headers, revision: None }
    }

    /// Takes up what the handshake agreed on. `MCP-Protocol-Version` exists since 2025-06-18;
    /// modern requests bring it along, since there it belongs to the request.
    pub(crate) fn adopt(&mut self, revision: Revision, session: Option<HeaderValue>) {
        self.revision = Some(revision);
        if (Revision::V2025_06_18..Revision::V2026_07_28).contains(&revision) {
            self.headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision.as_str()));
        }
        if let Some(mut session) = session.filter(|_| revision.era() == Era::Legacy) {
            session.set_sensitive(true);
            self.headers.insert(SESSION_ID, session);
        }
    }

    pub(crate) fn has_session(&self) -> bool {
        self.headers.contains_key(SESSION_ID)
    }

    pub(crate) fn session(&self) -> Option<&str> {
        self.headers.get(SESSION_ID).and_then(|id| id.to_str().ok())
    }

    /// Sends a request and reads its reply.
    pub(crate) async fn exchange(&self, request: Outgoing<'_>) -> Result<Reply, BackendError> {
        let mut post = self.post(request.text.clone(), request.mirror.as_ref());
        for (name, value) in request.sending.propagation.headers() {
            insert(post.headers_mut(), HeaderName::from_static(name), value);
        }
        let mut abandoned = CancelOnDrop { link: self, id: request.id, armed: self.cancels(&request) };
        let reply = match self.endpoint.client.execute(post).await {
            Ok(response) => self.read(response, &request).await,
            Err(error) => Err(self.endpoint.failure(&error)),
        };
        abandoned.armed = false;
        reply
    }

    /// A legacy server has to be told; a modern one sees the stream close (2026-07-28
    /// basic/patterns/cancellation).
    fn cancels(&self, request: &Outgoing<'_>) -> bool {
        request.cancellable && self.revision.is_some_and(|revision| revision.era() == Era::Legacy)
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, text: Bytes) -> Result<(), BackendError> {
        let sent = self.endpoint.client.execute(self.post(text, None)).await;
        let status = sent.map_err(|error| self.endpoint.failure(&error))?.status();
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
        let mut request = reqwest::Request::new(reqwest::Method::DELETE, self.endpoint.url.clone());
        request.headers_mut().clone_from(&self.headers);
        // Servers may refuse (405), and there is nobody left whom a failure would concern.
        let _ = timeout(SESSION_END, self.endpoint.client.execute(request)).await;
    }

    fn post(&self, text: Bytes, mirror: Option<&Mirror>) -> reqwest::Request {
        let mut request = reqwest::Request::new(reqwest::Method::POST, self.endpoint.url.clone());
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        if let Some(mirror) = mirror {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(mirror.revision));
            insert(headers, METHOD, &mirror.method);
            if let Some(name) = &mirror.name {
                insert(headers, NAME, name);
            }
            for (name, value) in &mirror.params {
                if let Ok(name) = format!("{}{name}", header::PARAM_PREFIX).parse() {
                    insert(headers, name, value);
                }
            }
        }
        self.context.telemetry.metrics().io(Direction::Transmit, text.len() as u64);
        *request.body_mut() = Some(text.into());
        request
    }

    /// Sends the answer to a question of the server's, while the stream of the call goes on being
    /// read. The answer is not lost if the call ends meanwhile; the call's clock stands still
    /// until the server has it, which also bounds how many are on their way.
    fn send_answer(&self, settled: Settled) {
        let Settled { text, stopped } = settled;
        let execute = self.endpoint.client.execute(self.post(text, None));
        let backend = Arc::clone(&self.context.name);
        self.context.tasks.spawn(async move {
            if !matches!(timeout(ANSWER, execute).await, Ok(Ok(http)) if http.status().is_success()) {
                tracing::debug!(backend = &*backend, "answer to a question of the server not accepted");
            }
            drop(stopped);
        });
    }

    /// Answers a request of the server's, best effort.
    async fn reply_to_server(&self, text: Bytes) {
        let post = self.post(text, None);
        if !matches!(timeout(SIDE_MESSAGE, self.endpoint.client.execute(post)).await, Ok(Ok(_))) {
            tracing::debug!(backend = &*self.context.name, "reply to a request of the server not delivered");
        }
    }

    fn is_initialize(request: &Outgoing<'_>) -> bool {
        *request.method == Method::Initialize
    }
}

/// Reads what is left of a response that says nothing more, if that is little, so that the
/// connection goes back to the pool. Most servers end it in the same breath.
fn let_end(endpoint: &HttpEndpoint, tasks: &TaskTracker, mut response: reqwest::Response) {
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

/// A server decides how many parameters it wants mirrored, so the map's limit must not panic.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        let _ = headers.try_insert(name, value);
    }
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
        let post = self.link.post(cancelled_text(self.id), None);
        let client = self.link.endpoint.client.clone();
        self.link.endpoint.aside(&self.link.context.tasks, async move {
            let _ = timeout(SIDE_MESSAGE, client.execute(post)).await;
        });
    }
}
