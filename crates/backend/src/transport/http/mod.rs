//! The Streamable HTTP transport. Every message is a separate POST; a legacy server's messages
//! outside of calls come on the stream of a GET. `sse_transport` is the legacy transport.

mod answer;
mod client;
mod coding;
mod connector;
mod endpoint;
mod event_stream;
mod headers;
mod notification_stream;
mod problem;
mod sse_transport;
mod streamed_answer;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fanlight_protocol::{Method, Questions, Revision};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::recording::{Captured, Framing, To};
use http::header::{HeaderMap, HeaderValue};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use endpoint::Exchange;
pub(crate) use endpoint::HttpEndpoint;
pub(crate) use notification_stream::{StreamState, StreamUnavailable};

use answer::answers_in_json;
use client::{HttpResponse, Target};
use headers::{MessageHeaders, PROTOCOL_VERSION};
use sse_transport::joined_url;

use crate::request::server_request::ServerRequestReply;
use crate::request::{ActiveRequest, OutgoingRequest, Reply, TransportContext, cancelled_text};
use crate::settings::DELIVERY;
use crate::transport::recorded::RecordedExchange;
use fanlight_canonical::BackendError;

/// The time for a server's answer to the end of a session.
const SESSION_END: Duration = Duration::from_secs(1);

/// The number of redirects of one request to follow.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// The limits for reading the rest of a stream after its answer, so that its connection can be
/// reused. A constant: the answer has already been delivered.
const REST: (usize, Duration) = (64 << 10, Duration::from_millis(250));

/// The HTTP transport to one server, with its revision and session. A clone sends messages of the
/// same session.
pub(crate) struct HttpTransport {
    endpoint: Arc<HttpEndpoint>,
    context: Arc<TransportContext>,
    headers: MessageHeaders,
    /// The agreed revision; the newest one before the agreement.
    revision: Revision,
    /// The target to which the server has redirected requests.
    redirected: ArcSwapOption<Target>,
}

impl Clone for HttpTransport {
    fn clone(&self) -> Self {
        Self {
            endpoint: Arc::clone(&self.endpoint),
            context: Arc::clone(&self.context),
            headers: self.headers.clone(),
            revision: self.revision,
            redirected: ArcSwapOption::new(self.redirected.load_full()),
        }
    }
}

impl HttpTransport {
    pub(crate) fn new(endpoint: Arc<HttpEndpoint>, context: Arc<TransportContext>) -> Self {
        let headers = MessageHeaders::new(Arc::clone(&endpoint.headers));
        Self {
            endpoint,
            context,
            headers,
            revision: Revision::NEWEST_MODERN,
            redirected: ArcSwapOption::empty(),
        }
    }

    /// Adopts the handshake's agreement.
    pub(crate) fn adopt(&mut self, revision: Revision, session: Option<HeaderValue>) {
        self.revision = revision;
        self.headers.adopt(revision, session);
    }

    pub(crate) fn has_session(&self) -> bool {
        self.headers.session().is_some()
    }

    /// Whether requests have credentials.
    pub(crate) fn has_credentials(&self) -> bool {
        self.endpoint.has_credentials()
    }

    pub(crate) fn session(&self) -> Option<&str> {
        self.headers.session().and_then(|id| id.to_str().ok())
    }

    /// Sends a request and reads its reply. The caller must poll the future at once.
    pub(crate) fn exchange<'a>(
        &'a self,
        outgoing: OutgoingRequest<'a>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        let OutgoingRequest {
            request,
            text,
            mirror,
            propagation,
            ..
        } = outgoing;
        let mut headers = self.headers.request_headers(mirror, &propagation);
        let (endpoint, caller) = (&self.endpoint, &request.context.caller);
        (endpoint.headers).add_of_client(&mut headers, request.method, caller);
        let cause = request.context.trace.exchange();
        let recorded = self.record_sent(&headers, &text, cause);
        let executing = self.post_with(headers, text, self.may_last(&request));
        async move {
            let mut unanswered = Unanswered {
                transport: self,
                request: Some(&request),
            };
            let mut executing = executing;
            let response = poll_fn(|cx| {
                let polled = Pin::new(&mut executing).poll(cx);
                if executing.may_be_sent() {
                    request.deadline.set_sent(true);
                }
                polled
            });
            let mut http = match response.await {
                Ok(http) => http,
                Err(error) => {
                    unanswered.request = None;
                    return Err(self.endpoint.failure(&error));
                }
            };
            http.recorded = recorded;
            let is_stream = !answers_in_json(&http);
            let reply = if !is_stream {
                self.read_json(&mut http, &request).await
            } else {
                self.read_other(http, &request).await
            };
            unanswered.request = None;
            reply.map(|reply| self.doubt_session(reply, is_stream))
        }
    }

    /// Whether the response may be a long event stream with little traffic. That is so for a
    /// subscription. It is also so for a call that is suspended once the server asks its client,
    /// which has no session.
    fn may_last(&self, request: &ActiveRequest<'_>) -> bool {
        *request.method == Method::Listen
            || (request.context.session().is_none()
                && self.revision.questions == Questions::Requests
                && self.context.declared.can_be_asked())
    }

    /// Whether dropping a request needs a cancellation. A legacy server needs a notification; a
    /// modern one sees the stream close (2026-07-28 basic/patterns/cancellation).
    fn cancels(&self, request: &ActiveRequest<'_>) -> bool {
        request.cancellable && !self.revision.cancels_by_closing
    }

    /// The URL for requests.
    fn target(&self) -> Arc<Target> {
        self.redirected
            .load_full()
            .unwrap_or_else(|| Arc::clone(&self.endpoint.target))
    }

    /// Sends further requests to the target of a redirect that keeps the request (RFC 9110, 15.4.8
    /// and 15.4.9); returns whether to repeat this one. The target must have the same origin, since
    /// it gets the configured headers, credentials included.
    fn follow(&self, response: &HttpResponse) -> bool {
        match response.status.as_u16() {
            307 | 308 => {}
            status => {
                // Where the server redirects to may change.
                if matches!(status, 404 | 410 | 500..) {
                    self.redirected.store(None);
                }
                return false;
            }
        }
        let location = response.headers.get(http::header::LOCATION);
        let url =
            location.and_then(|location| joined_url(&self.target().url, location.as_bytes()).ok());
        let Some(target) = url.and_then(Target::new) else {
            return false;
        };
        self.redirected.store(Some(Arc::new(target)));
        true
    }

    /// Sends a message, and sends it again wherever it is redirected to.
    async fn send_followed(
        &self,
        mut send: impl FnMut() -> Exchange + Send,
    ) -> Result<HttpResponse, BackendError> {
        let mut redirects = 0;
        loop {
            let sent = send().await;
            let http = sent.map_err(|error| self.endpoint.failure(&error))?;
            redirects += 1;
            if redirects > MAX_REDIRECTS || !self.follow(&http) {
                return Ok(http);
            }
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, text: Bytes) -> Result<(), BackendError> {
        let http = self.send_followed(|| self.post(text.clone())).await?;
        match http.status.as_u16() {
            status @ (401 | 403) => Err(BackendError::Unauthorized { status }),
            status @ 400.. => {
                tracing::debug!(
                    backend = &*self.context.name,
                    status,
                    "notification not accepted"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends the session, if there is one, unless another process continues it.
    pub(crate) async fn close(&self) {
        if !self.has_session() {
            return;
        }
        if let Some((kept, id)) = self.context.kept.as_ref().zip(self.session()) {
            let may_end = timeout(SESSION_END, kept.may_end()).await;
            kept.remove(id);
            if may_end != Ok(true) {
                return;
            }
        }
        let ending = self.endpoint.execute_at(
            &self.target(),
            http::Method::DELETE,
            self.headers.message_headers(),
            Bytes::new(),
            false,
        );
        // Servers may refuse (405), and a failure affects no call.
        let _ = timeout(SESSION_END, ending).await;
    }

    /// Sends a message that is not a request.
    fn post(&self, text: Bytes) -> Exchange {
        let headers = self.headers.message_headers();
        self.record_sent(&headers, &text, 0);
        self.post_with(headers, text, false)
    }

    /// Gives a sent message to the recording, if there is one; returns its exchange.
    fn record_sent(&self, headers: &HeaderMap, text: &Bytes, cause: u64) -> RecordedExchange {
        let number = self.context.recorded_exchange();
        if number == 0 {
            return RecordedExchange::default();
        }
        let is_agreed = self.has_session() || headers.contains_key(PROTOCOL_VERSION);
        let revision = is_agreed.then_some(self.revision.name);
        self.context.record(text, |message| Captured {
            exchange: number,
            to: To::Server,
            kind: Framing::Body,
            transport: "http",
            revision,
            method: Some("POST"),
            headers: fanlight_http::header_texts(headers),
            cause,
            ..message
        });
        RecordedExchange {
            number,
            cause,
            revision,
        }
    }

    /// Gives a received body to the recording, if its request was recorded.
    fn record_received(&self, http: &HttpResponse, text: &Bytes) {
        let RecordedExchange {
            number,
            cause,
            revision,
        } = http.recorded;
        if number == 0 {
            return;
        }
        self.context.record(text, |message| Captured {
            exchange: number,
            kind: Framing::Body,
            transport: "http",
            revision,
            status: Some(http.status.as_u16()),
            headers: fanlight_http::header_texts(&http.headers),
            cause,
            ..message
        });
    }

    fn post_with(&self, headers: HeaderMap, text: Bytes, may_last: bool) -> Exchange {
        let metrics = self.context.telemetry.metrics();
        metrics.io(Direction::Transmit, text.len() as u64);
        let (target, post) = (self.target(), http::Method::POST);
        (self.endpoint).execute_at(&target, post, headers, text, may_last)
    }

    /// Sends the answer to a server's question while the call's stream is still being read. The
    /// answer is not lost if the call ends meanwhile. The call stays paused until the server has
    /// it, which also limits the answers in progress.
    fn send_reply(&self, reply: ServerRequestReply) {
        let (transport, ServerRequestReply { text, pause }) = (self.clone(), reply);
        self.context.tasks.spawn(async move {
            transport.reply_within(DELIVERY, text).await;
            drop(pause);
        });
    }

    /// Answers a server's request, best effort.
    async fn reply_to_server(&self, text: Bytes) {
        let limit = self.context.timeouts.own_message;
        self.reply_within(limit, text).await;
    }

    async fn reply_within(&self, limit: Duration, text: Bytes) {
        let post = self.post(text);
        if !matches!(timeout(limit, post).await, Ok(Ok(http)) if http.status.is_success()) {
            tracing::debug!(
                backend = &*self.context.name,
                "reply to a request of the server not accepted"
            );
        }
    }

    /// Sends a message in the background, best effort.
    fn post_detached(&self, text: Bytes) {
        let (post, limit) = (self.post(text), self.context.timeouts.own_message);
        self.endpoint
            .spawn_detached(&self.context.tasks, async move {
                let _ = timeout(limit, post).await;
            });
    }

    fn is_initialize(request: &ActiveRequest<'_>) -> bool {
        *request.method == Method::Initialize
    }
}

/// The error if more than [`MAX_REDIRECTS`] redirects follow each other.
pub(crate) fn too_many_redirects() -> BackendError {
    BackendError::Status { status: 307 }
}

/// Reads the short rest of a response without further content, so that the connection returns to
/// the pool. Usually the end has already arrived.
fn drain(endpoint: &HttpEndpoint, tasks: &TaskTracker, mut response: HttpResponse) {
    use futures_util::FutureExt as _;
    if matches!(response.chunk().now_or_never(), Some(Ok(None) | Err(_))) {
        return;
    }
    let (limit, time) = REST;
    endpoint.spawn_detached(tasks, async move {
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

/// A request without an answer yet. Dropping it cancels the request at the server. If the server
/// took too long, its connections become suspect.
struct Unanswered<'a> {
    transport: &'a HttpTransport,
    /// `None` once it is answered.
    request: Option<&'a ActiveRequest<'a>>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some(request) = self.request else { return };
        // Fanlight's own requests have no deadline; they are dropped when they take too long.
        let is_own = request.context.caller.is_gateway() && *request.method != Method::Listen;
        if is_own || request.deadline.has_expired() {
            self.transport.endpoint.suspect_connections();
        }
        if self.transport.cancels(request) {
            let text = cancelled_text(request.id, request.context);
            self.transport.post_detached(text);
        }
    }
}
