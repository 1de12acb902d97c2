//! The listener for operators and orchestrators: is it alive, is it ready.
//!
//! Must not know: what readiness consists of.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use fanlight_protocol::json::Chunks;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::FrontendError;
use crate::http::guard::Guard;
use crate::http::listener::{Serve, serve};
use crate::http::reply::{Refusal, ReplyBody, json};
use crate::settings::FrontendSettings;

/// Connections of those who look after this process at most; clients have theirs elsewhere.
const CONNECTIONS: usize = 64;

/// How the gateway is doing. Asked for each request, so it must not wait for anything.
pub trait Health: Send + Sync + 'static {
    /// Whether requests can be served.
    fn is_ready(&self) -> bool;

    /// What there is to say about it: a JSON text without secrets.
    fn report(&self) -> String;

    /// What is counted, in the Prometheus text format.
    fn metrics(&self) -> String;
}

/// Serves `GET /metrics`, `GET /healthz` (200 while the process lives) and `GET /readyz` (200 or 503, with the
/// report) on `listener` until `shutdown` is cancelled.
///
/// # Errors
///
/// If the listening socket is unusable.
pub async fn serve_admin(
    listener: TcpListener,
    health: Arc<dyn Health>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
) -> Result<(), FrontendError> {
    let max_connections = settings.max_connections.min(CONNECTIONS);
    let settings = Arc::new(FrontendSettings { max_connections, ..(*settings).clone() });
    let endpoint = Arc::new(Admin { health, guard: Guard::new(&settings) });
    serve(listener, endpoint, &settings, shutdown, CancellationToken::new()).await
}

struct Admin {
    health: Arc<dyn Health>,
    guard: Guard,
}

impl Serve for Admin {
    async fn answer(self: Arc<Self>, request: Request<Incoming>, local: Option<IpAddr>) -> Response<ReplyBody> {
        let (head, _) = request.into_parts();
        let answer = self.guard.admit(&head, local).and_then(|_| self.route(head.uri.path(), &head.method));
        answer.unwrap_or_else(|refusal| refusal.into_response())
    }
}

impl Admin {
    fn route(&self, path: &str, method: &Method) -> Result<Response<ReplyBody>, Box<Refusal>> {
        if !matches!(path, "/healthz" | "/readyz" | "/metrics") {
            let message = "nothing is served here; /healthz, /readyz and /metrics are";
            return Err(Refusal::invalid(StatusCode::NOT_FOUND, message));
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Refusal::method("GET, HEAD"));
        }
        let mut response = match path {
            "/healthz" => text(StatusCode::OK, "text/plain; charset=utf-8", Bytes::from_static(b"ok")),
            "/metrics" => {
                text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.health.metrics().into())
            }
            _ => {
                let status = if self.health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                text(status, "application/json", self.health.report().into())
            }
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }
}

fn text(status: StatusCode, kind: &'static str, text: Bytes) -> Response<ReplyBody> {
    let mut chunks = Chunks::default();
    chunks.push(text);
    let mut response = json(status, chunks);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
