//! The shared state of all transports to one HTTP server: the client with its pool, the URL and the
//! configured headers.
//!
//! Credentials may have to be obtained before a request, which is repeated once if the server
//! refuses them.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use fanlight_canonical::{BackendError, Caller, Remedy};
use fanlight_http::client::PoolSettings;
use fanlight_protocol::{USER_AGENT, sse};
use fanlight_telemetry::BackendTelemetry;
use fanlight_telemetry::recording::Tap;
use futures_util::future::BoxFuture;
use http::header::{self, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request};
use http_body_util::Full;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::client::{HttpClient, HttpError, HttpResponse, ResponseFuture, Target};
use super::connector::Authorities;
use super::headers::ConfiguredHeaders;
use super::problem::{self, Problem};
use crate::credentials::{CredentialSource, MessageTarget, Refusal};
use crate::log::excerpt;
use crate::settings::{Secret, origin_of, split_credentials};

/// The number of characters kept of a `WWW-Authenticate` header.
const CHALLENGE: usize = 1000;

/// The maximum number of detached tasks. A constant: they are cancellations and replies that
/// nothing waits for.
const MAX_DETACHED: usize = 64;

pub(crate) struct HttpEndpoint {
    client: Arc<HttpClient>,
    /// The URL without user information.
    pub(super) target: Arc<Target>,
    /// The headers of every request.
    pub(super) headers: Arc<ConfiguredHeaders>,
    /// The source of further credentials for each message.
    source: Option<Arc<dyn CredentialSource>>,
    /// Scheme, host and port: the part of the URL that errors show.
    origin: String,
    aside: Arc<Semaphore>,
    runtime: Handle,
    /// Tells recordings which credentials to mask.
    telemetry: Option<BackendTelemetry>,
    /// The challenge of the last refusal of credentials.
    challenge: Mutex<Option<String>>,
}

impl HttpEndpoint {
    /// Creates the endpoint of a URL. With an address, the host is not resolved.
    pub(crate) fn new(
        (url, address): (&str, Option<SocketAddr>),
        configured: &[(String, Secret)],
        forwarded: &[(String, String)],
        bounds: PoolSettings,
        ca_file: Option<&Path>,
        source: Option<Arc<dyn CredentialSource>>,
    ) -> Result<Self, BackendError> {
        let unusable = |reason: String| BackendError::Unreachable { reason };
        let origin = match address {
            Some(address) => format!("{} at {address}", origin_of(url)),
            None => origin_of(url),
        };
        let url =
            Url::parse(url).map_err(|error| unusable(format!("its URL is not valid: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unusable(format!(
                "its URL begins with {}:, not http: or https:",
                url.scheme()
            )));
        }
        let (url, credentials) = split_credentials(url);
        let target = Target::new(url)
            .ok_or_else(|| unusable("its URL is not one that HTTP can name".into()))?;
        let authorities = Authorities::read(ca_file).map_err(unusable)?;
        let client = HttpClient::new((&target, address), bounds, authorities)
            .map_err(|error| unusable(format!("no HTTP client: {}", error.reason())))?;
        let mut headers = HeaderMap::new();
        let host = target
            .host()
            .filter(|_| client.needs_host())
            .and_then(|host| HeaderValue::try_from(host).ok());
        headers.extend(host.map(|host| (header::HOST, host)));
        headers.extend(credentials.map(|credentials| (header::AUTHORIZATION, credentials)));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
        debug_assert_eq!(sse::CONTENT_TYPE, "text/event-stream");
        let headers = ConfiguredHeaders::new(headers, configured, forwarded).map_err(unusable)?;
        Ok(Self {
            client: Arc::new(client),
            target: Arc::new(target),
            headers: Arc::new(headers),
            source,
            origin,
            aside: Arc::new(Semaphore::new(MAX_DETACHED)),
            runtime: Handle::current(),
            telemetry: None,
            challenge: Mutex::default(),
        })
    }

    /// Makes an endpoint whose credentials are never in recordings.
    pub(crate) fn recorded_by(self, telemetry: &BackendTelemetry) -> Self {
        let telemetry = Some(telemetry.clone());
        Self { telemetry, ..self }
    }

    /// Sends a request to a URL of the endpoint's origin. `may_last` says that the response may be a
    /// long event stream with little traffic.
    pub(super) fn execute_at(
        &self,
        target: &Arc<Target>,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        may_last: bool,
    ) -> Exchange {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        let Some(source) = &self.source else {
            return Exchange::Plain(self.client.execute(target, request, may_last));
        };
        let may_be_sent = Arc::<AtomicBool>::default();
        let sending = Sending {
            client: Arc::clone(&self.client),
            target: Arc::clone(target),
            may_last,
            may_be_sent: Arc::clone(&may_be_sent),
            tap: self
                .telemetry
                .as_ref()
                .and_then(BackendTelemetry::tap)
                .cloned(),
        };
        Exchange::Authorized {
            request: Box::pin(sending.run(Arc::clone(source), request)),
            may_be_sent,
        }
    }

    /// Runs a task whose outcome is not needed, unless too many such tasks are running.
    pub(super) fn spawn_detached(
        &self,
        tasks: &TaskTracker,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let Ok(permit) = Arc::clone(&self.aside).try_acquire_owned() else {
            return;
        };
        let task = async move {
            task.await;
            drop(permit);
        };
        // A future may be dropped outside of any runtime.
        match Handle::try_current() {
            Ok(current) => tasks.spawn_on(task, &current),
            Err(_) => tasks.spawn_on(task, &self.runtime),
        };
    }

    /// The reason why there is no response. It shows only the origin of the URL.
    pub(super) fn failure(&self, error: &HttpError) -> BackendError {
        if let HttpError::NoCredentials(missing) = error {
            return missing.clone().into();
        }
        if let HttpError::Coding(reason) = error {
            return BackendError::Malformed {
                reason: reason.clone(),
            };
        }
        if error.nothing_was_sent() {
            let Problem { what, details } = problem::diagnose(error);
            let reason = format!("cannot connect to {}: {what}", self.origin);
            return BackendError::Unreachable { reason }.with_details(details);
        }
        tracing::debug!(
            origin = self.origin,
            reason = error.reason(),
            "exchange failed"
        );
        self.suspect_connections();
        BackendError::ClosedEarly
    }

    /// Records the challenge of a refusal of credentials.
    pub(super) fn note_challenge(&self, response: &HttpResponse) {
        if matches!(response.status.as_u16(), 401 | 403) {
            let text = response
                .headers
                .get(WWW_AUTHENTICATE)
                .map(|value| excerpt(value.as_bytes(), CHALLENGE));
            *self.challenge.lock() = text;
        }
    }

    /// The challenge of the last refusal of credentials, if it had one.
    pub(crate) fn challenge(&self) -> Option<String> {
        self.challenge.lock().clone()
    }

    /// Uses these configured headers from the next message on.
    pub(crate) fn replace_headers(&self, configured: &[(String, Secret)]) -> Result<(), String> {
        self.headers.replace(configured)
    }

    /// The headers of a client's request that the server gets, as one text.
    pub(crate) fn forwarded_headers(&self, client: &Caller) -> String {
        let lines = self.headers.client_headers(client);
        lines.fold(String::new(), |all, (name, value)| {
            all + name.as_str() + ":" + value + "\n"
        })
    }

    /// Whether requests have credentials.
    pub(crate) fn has_credentials(&self) -> bool {
        self.source.is_some() || self.headers.current().contains_key(header::AUTHORIZATION)
    }

    /// Whether the connection is not encrypted.
    pub(crate) fn is_plain(&self) -> bool {
        self.target.url.scheme() == "http"
    }

    /// Whether a server that was tried without TLS speaks TLS. Only a handshake can tell.
    pub(crate) async fn speaks_tls(&self) -> bool {
        self.try_tls()
            .await
            .is_some_and(|tried| tried.map_or_else(|error| !error.is_connect(), |_| true))
    }

    /// The remedy if a server that closed a TLS connection had refused the handshake. With HTTP/2,
    /// the client library loses that reason.
    pub(crate) async fn refused_handshake(&self) -> Option<Remedy> {
        let error = self.try_tls().await?.err()?;
        let Problem { what, details } = problem::refused_handshake(&error)?;
        let Remedy { kind, text } = details.remedy?;
        Some(Remedy {
            kind,
            text: format!("{what}: {text}").into(),
        })
    }

    /// Requests the server's root over TLS without checking the certificate. Nothing secret is
    /// sent, and only the handshake matters.
    async fn try_tls(&self) -> Option<reqwest::Result<reqwest::Response>> {
        let mut url = self.target.url.clone();
        let builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .http1_only();
        let client = builder.tls_danger_accept_invalid_certs(true).build().ok()?;
        url.set_scheme("https").ok()?;
        url.set_path("/");
        url.set_query(None);
        Some(client.head(url).send().await)
    }

    /// The metadata about the server's protection (RFC 9728, 3.1), at most `limit` bytes. It is
    /// read only from the server's own origin, without credentials.
    pub(crate) async fn protected_resource(&self, limit: usize) -> Option<Bytes> {
        let mut url = self.target.url.clone();
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("/.well-known/oauth-protected-resource{path}"));
        url.set_query(None);
        let mut headers = HeaderMap::new();
        headers.extend(
            self.headers
                .current()
                .get(header::HOST)
                .map(|host| (header::HOST, host.clone())),
        );
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let target = Target::new(url)?;
        let mut request = Request::<Full<Bytes>>::default();
        *request.headers_mut() = headers;
        let mut response = self.client.execute(&target, request, false).await.ok()?;
        let mut body = BytesMut::new();
        while response.status.is_success()
            && let Some(chunk) = response.chunk().await.ok()?
        {
            if body.len() + chunk.len() > limit {
                return None;
            }
            body.extend_from_slice(&chunk);
        }
        Some(body.freeze())
    }

    /// Makes the next requests use new connections. The server's host may have vanished silently,
    /// with all connections. Each of them would fail one more call.
    pub(super) fn suspect_connections(&self) {
        self.client.suspect_connections();
    }
}

const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// A request in progress.
pub(super) enum Exchange {
    /// A request with the configured headers only.
    Plain(ResponseFuture),
    /// A request with additional credentials.
    Authorized {
        request: BoxFuture<'static, Result<HttpResponse, HttpError>>,
        may_be_sent: Arc<AtomicBool>,
    },
}

impl Exchange {
    /// Whether part of the request may have been written.
    pub(super) fn may_be_sent(&self) -> bool {
        match self {
            Self::Plain(request) => request.may_be_sent(),
            Self::Authorized { may_be_sent, .. } => may_be_sent.load(Ordering::Relaxed),
        }
    }
}

impl Future for Exchange {
    type Output = Result<HttpResponse, HttpError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Plain(request) => Pin::new(request).poll(cx),
            Self::Authorized { request, .. } => request.as_mut().poll(cx),
        }
    }
}

/// The sending of a request with additional credentials.
struct Sending {
    client: Arc<HttpClient>,
    target: Arc<Target>,
    may_last: bool,
    may_be_sent: Arc<AtomicBool>,
    /// The tap of the running recording.
    tap: Option<Arc<Tap>>,
}

impl Sending {
    async fn run(
        self,
        source: Arc<dyn CredentialSource>,
        request: Request<Full<Bytes>>,
    ) -> Result<HttpResponse, HttpError> {
        let target = MessageTarget {
            method: request.method(),
            url: &self.target.url,
        };
        let shown = source.credentials(&target).headers().await?;
        let response = self.send(request.clone(), &shown).await?;
        let Some(refused) = refusal(&response, &target, shown) else {
            return Ok(response);
        };
        // The request certainly did not run. It is sent once more with other credentials, but not a
        // third time.
        match source.replace(refused) {
            None => Ok(response),
            Some(pending) => {
                let other = pending.await?;
                let response = self.send(request.clone(), &other).await?;
                let again = refusal(&response, &target, other);
                match again.and_then(|refusal| source.give_up(&refusal)) {
                    Some(missing) => Err(missing.into()),
                    None => Ok(response),
                }
            }
        }
    }

    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        shown: &HeaderMap,
    ) -> Result<HttpResponse, HttpError> {
        for (name, value) in shown {
            self.tap.iter().for_each(|tap| tap.hide(value.as_bytes()));
            request.headers_mut().insert(name, value.clone());
        }
        let mut sent = pin!(self.client.execute(&self.target, request, self.may_last));
        std::future::poll_fn(|cx| {
            let polled = sent.as_mut().poll(cx);
            if sent.may_be_sent() {
                self.may_be_sent.store(true, Ordering::Relaxed);
            }
            polled
        })
        .await
    }
}

/// The refusal of credentials, if the response is one: 401, or 403 with a challenge (2026-07-28
/// basic/authorization, Scope Challenge Handling). Any other 403 concerns the request itself.
fn refusal(
    response: &HttpResponse,
    target: &MessageTarget<'_>,
    shown: HeaderMap,
) -> Option<Refusal> {
    let challenges: Vec<_> = response
        .headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .cloned()
        .collect();
    let is_refusal = match response.status.as_u16() {
        401 => true,
        403 => !challenges.is_empty(),
        _ => false,
    };
    is_refusal.then(|| Refusal {
        status: response.status,
        challenges,
        nonce: response.headers.get(DPOP_NONCE).cloned(),
        shown,
        method: target.method.clone(),
        url: target.url.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, headers: &[(&str, &str)]) -> Result<HttpEndpoint, BackendError> {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Secret::new(*value)))
            .collect();
        let time = std::time::Duration::from_secs(1);
        let probes = fanlight_http::client::TcpProbes {
            interval: time,
            unacknowledged: time,
        };
        let bounds = PoolSettings {
            connect_timeout: time,
            idle_timeout: time,
            max_idle: 8,
            probes,
        };
        HttpEndpoint::new((url, None), &headers, &[], bounds, None, None)
    }

    #[tokio::test]
    async fn configuration_sets_headers_but_not_those_of_the_protocol() {
        let configured = [
            ("Authorization", "Bearer t"),
            ("Mcp-Session-Id", "x"),
            ("accept", "*/*"),
            ("X-A", "1"),
        ];
        let endpoint = endpoint("http://me:pw@127.0.0.1:1/mcp", &configured).unwrap();
        assert_eq!(endpoint.target.url.as_str(), "http://127.0.0.1:1/mcp");
        assert_eq!(endpoint.headers.current()["authorization"], "Bearer t");
        assert_eq!(
            endpoint.headers.current()["accept"],
            "application/json, text/event-stream"
        );
        assert_eq!(endpoint.headers.current()["x-a"], "1");
        assert_eq!(endpoint.headers.current()["user-agent"], USER_AGENT);
        assert!(!endpoint.headers.current().contains_key("mcp-session-id"));
    }

    #[tokio::test]
    async fn user_information_of_the_url_becomes_a_header() {
        let endpoint = endpoint("http://me:pw@127.0.0.1:1/mcp", &[]).unwrap();
        assert_eq!(
            endpoint.headers.current()["authorization"],
            "Basic bWU6cHc="
        );
        let endpoint = self::endpoint("http://m%C3%A9@127.0.0.1:1/mcp", &[]).unwrap();
        assert_eq!(
            endpoint.headers.current()["authorization"],
            "Basic bcOpOg=="
        );
        assert!(endpoint.headers.current()["authorization"].is_sensitive());
    }

    #[tokio::test]
    async fn unusable_settings_are_named_without_secrets() {
        for (url, header) in [
            ("ftp://a/s3cret", None),
            ("s3cret", None),
            ("http://a", Some(("x", "s3cret\n"))),
        ] {
            let error = endpoint(url, header.as_slice()).err().unwrap().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
