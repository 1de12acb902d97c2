//! The routes of the listener, and the state that their handlers share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::State;
use axum::handler::Handler;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{MethodRouter, get};
use fanlight_http_edge::{Guard, Origins};
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::{require_host, require_token};
use crate::api::overview::Latest;
use crate::reply::{Refusal, json, with_default_headers};
use crate::settings::AdminSettings;
use crate::token::Token;
use crate::{Subject, api, ready, ui};

/// The state of the listener.
pub(crate) struct Admin {
    pub(crate) subject: Arc<Subject>,
    pub(crate) settings: AdminSettings,
    pub(crate) guard: Guard,
    token: Option<Token>,
    pub(crate) latest: Arc<Latest>,
    /// A permit for each stream of events that may be open.
    pub(crate) followers: Arc<Semaphore>,
    pub(crate) shutdown: CancellationToken,
}

impl Admin {
    /// Of a listener at `address`. A listener that other machines can reach has a token, which a page of another site
    /// does not have, so it serves any host.
    pub(crate) fn new(
        subject: Subject,
        settings: AdminSettings,
        address: SocketAddr,
        started: SystemTime,
        shutdown: CancellationToken,
    ) -> Self {
        let subject = Arc::new(subject);
        let is_local = address.ip().to_canonical().is_loopback();
        let hosts = if is_local { settings.allowed_hosts.clone() } else { vec!["*".to_owned()] };
        Self {
            guard: Guard::new(&hosts, Origins::Own),
            token: settings.token.as_deref().map(Token::new),
            latest: Arc::new(Latest::new(Arc::clone(&subject), &settings, started)),
            followers: Arc::new(Semaphore::new(settings.max_followers.clamp(1, Semaphore::MAX_PERMITS))),
            subject,
            settings,
            shutdown,
        }
    }

    /// Whether a request with these headers has the token, or none is needed.
    pub(crate) fn is_authorized(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_in(headers))
    }
}

/// All routes.
pub(crate) fn router(admin: &Arc<Admin>) -> Router {
    let token = from_fn_with_state(Arc::clone(admin), require_token);
    Router::new()
        .route("/", read(async || Redirect::permanent("/ui")))
        .route("/healthz", read(async || "ok"))
        .route("/readyz", read(readiness))
        .route("/metrics", read(metrics).layer(token.clone()))
        // The page holds no data of its own and asks for the token.
        .route("/ui", read(ui::index))
        .route("/ui/", read(ui::index))
        .route("/ui/{file}", read(ui::file))
        .nest("/api", api::router(admin).layer(token))
        .fallback(async || {
            let message = "nothing is served here; /ui, /api/…, /metrics, /healthz and /readyz are";
            Refusal::new(StatusCode::NOT_FOUND, message)
        })
        .layer(from_fn_with_state(Arc::clone(admin), require_host))
        .layer(map_response(with_default_headers))
        .with_state(Arc::clone(admin))
}

/// The routes that are served when all connections are taken.
pub(crate) fn health_router(admin: &Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", read(async || "ok"))
        .route("/readyz", read(readiness))
        .fallback(async || {
            let message = "all connections to the admin listener are in use (limits.adminConnections); try later";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })
        .layer(from_fn_with_state(Arc::clone(admin), require_host))
        .layer(map_response(with_default_headers))
        .layer(map_response(closing))
        .with_state(Arc::clone(admin))
}

/// The response, after which the connection is closed: others need it.
async fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A route for `GET` and `HEAD` alone.
pub(crate) fn read<H: Handler<T, Arc<Admin>>, T: 'static>(handler: H) -> MethodRouter<Arc<Admin>> {
    get(handler).fallback(async || Refusal::method("GET, HEAD"))
}

/// Whether requests of clients can be served; the details need the token.
async fn readiness(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let subject = &admin.subject;
    let is_ready = ready::is_ready(&subject.gateway, &subject.draining);
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, json(ready::report(&subject.gateway, is_ready, admin.is_authorized(&headers)))).into_response()
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], admin.subject.telemetry.prometheus()).into_response()
}
