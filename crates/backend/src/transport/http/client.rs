//! The HTTP client of one server. `fanlight_http::client` serves plain `http:` without a proxy.
//! `reqwest` serves TLS and proxies; it does more than a call on the hot path should pay for.
//!
//! Neither follows redirects, keeps cookies or decompresses, nor repeats a request of which
//! anything was sent.

use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use fanlight_http::client::{self as pooled, BodyBuffer, PoolSettings, PooledClient};
use futures_util::TryFutureExt as _;
use futures_util::future::Either;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Url, redirect};
use tokio::time::sleep;

use super::authorities::Authorities;
use super::connecting::{Connecting, ConnectingLayer, WatchedRequest};
use super::tls_error::is_refused_handshake;
use crate::credentials::NoCredentials;
use crate::log::excerpt;

/// The pause before another attempt to connect when the process has as many open files as it may.
const RETRY_WITHOUT_FILES: Duration = Duration::from_millis(50);

/// The client of one server.
pub(super) enum HttpClient {
    Pooled(PooledClient),
    Reqwest(Box<ReplaceableClient>),
}

/// A `reqwest` client that is replaced when its connections are suspect, since its pool cannot be
/// emptied.
pub(super) struct ReplaceableClient {
    current: ArcSwap<reqwest::Client>,
    making: Making,
    /// Whether the next request needs new connections.
    is_suspected: AtomicBool,
    /// The time when `current` was built. Building takes milliseconds, since it reads certificates.
    built: Mutex<Instant>,
}

/// The settings for building a `reqwest` client.
struct Making {
    settings: PoolSettings,
    is_loopback: bool,
    authorities: Authorities,
    /// The server's host and its fixed address, if it has one.
    address: Option<(String, SocketAddr)>,
}

/// The shortest time between two replacements of a client. A constant that limits processor time. A
/// call in between fails as on any silent connection.
const REPLACEMENT: Duration = Duration::from_secs(1);

/// A URL for requests.
#[derive(Clone, Debug)]
pub(super) struct Target {
    url: Url,
    uri: Uri,
    /// The path and query, as in a request line.
    path: Uri,
}

#[derive(Clone)]
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) target: Arc<Target>,
    pub(super) headers: HeaderMap,
    /// Empty if there is none.
    pub(super) body: Bytes,
    /// Whether the response may be a long event stream with little traffic.
    pub(super) may_last: bool,
}

/// A response with an unread body.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Body,
}

enum Body {
    Pooled(pooled::ResponseBody),
    Reqwest(Box<reqwest::Response>),
}

/// Resolves to the head of a response.
pub(super) enum ResponseFuture {
    Pooled(pooled::ResponseFuture),
    Reqwest(WatchedRequest<reqwest::Result<reqwest::Response>>),
}

/// The reason why there is no response, or no more of it.
#[derive(Debug)]
pub(super) enum HttpError {
    Pooled(pooled::Error),
    Reqwest(reqwest::Error),
    /// There were no credentials for the request.
    NoCredentials(NoCredentials),
}

impl From<NoCredentials> for HttpError {
    fn from(missing: NoCredentials) -> Self {
        Self::NoCredentials(missing)
    }
}

impl HttpClient {
    /// Creates the client for the origin of `target`. With an address, the host is not resolved.
    pub(super) fn new(
        (target, address): (&Target, Option<SocketAddr>),
        settings: PoolSettings,
        authorities: Authorities,
    ) -> Result<Self, HttpError> {
        let is_loopback = target.is_loopback();
        if target.url.scheme() == "http"
            && (is_loopback || Matcher::from_env().intercept(&target.uri).is_none())
        {
            let at_address = address.and_then(|address| format!("http://{address}/").parse().ok());
            return Ok(Self::Pooled(PooledClient::new(
                at_address.unwrap_or_else(|| target.uri.clone()),
                settings,
            )));
        }
        let address = target.url.host_str().map(str::to_owned).zip(address);
        let making = Making {
            settings,
            is_loopback,
            authorities,
            address,
        };
        ReplaceableClient::new(making).map(|client| Self::Reqwest(Box::new(client)))
    }

    /// Makes the next requests use new connections.
    pub(super) fn suspect_connections(&self) {
        match self {
            Self::Pooled(client) => client.close_idle(),
            Self::Reqwest(client) => client.is_suspected.store(true, Ordering::Relaxed),
        }
    }

    /// Sends a request when the future is polled; the current worker serves it.
    pub(super) fn execute(&self, request: HttpRequest) -> ResponseFuture {
        let HttpRequest {
            method,
            target,
            headers,
            body,
            may_last,
        } = request;
        match self {
            Self::Pooled(client) => {
                let mut request = http::Request::new(Full::new(body));
                *request.method_mut() = method;
                *request.uri_mut() = target.path.clone();
                *request.headers_mut() = headers;
                ResponseFuture::Pooled(match may_last {
                    true => client.execute_lasting(request),
                    false => client.execute(request),
                })
            }
            Self::Reqwest(client) => {
                let mut request = reqwest::Request::new(method, target.url.clone());
                *request.headers_mut() = headers;
                *request.body_mut() = (!body.is_empty()).then(|| body.into());
                let client = client.current().as_ref().clone();
                ResponseFuture::Reqwest(WatchedRequest::new(execute_with_files(client, request)))
            }
        }
    }

    /// Whether requests need a `Host` header.
    pub(super) fn needs_host(&self) -> bool {
        matches!(self, Self::Pooled(_))
    }
}

/// Sends a request; waits while the process has as many open files as it may. The caller limits the
/// time.
async fn execute_with_files(
    client: reqwest::Client,
    request: reqwest::Request,
) -> reqwest::Result<reqwest::Response> {
    loop {
        // Never `None`, since the body is in memory.
        let Some(copy) = request.try_clone() else {
            return client.execute(request).await;
        };
        match client.execute(copy).await {
            Err(error) if error.is_connect() && pooled::is_out_of_files(&error) => {
                Connecting(Box::pin(sleep(RETRY_WITHOUT_FILES))).await;
            }
            outcome => return outcome,
        }
    }
}

impl ReplaceableClient {
    fn new(making: Making) -> Result<Self, HttpError> {
        let current = ArcSwap::from_pointee(build(&making)?);
        let (is_suspected, built) = (AtomicBool::new(false), Mutex::new(Instant::now()));
        Ok(Self {
            current,
            making,
            is_suspected,
            built,
        })
    }

    fn current(&self) -> Arc<reqwest::Client> {
        if self.is_suspected.load(Ordering::Relaxed)
            && self.is_due()
            && let Ok(fresh) = build(&self.making)
        {
            // Running requests keep their connections.
            self.current.store(Arc::new(fresh));
        }
        self.current.load_full()
    }

    /// Whether the caller must replace the current client now.
    fn is_due(&self) -> bool {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due =
            built.elapsed() >= REPLACEMENT && self.is_suspected.swap(false, Ordering::Relaxed);
        if is_due {
            *built = Instant::now();
        }
        is_due
    }
}

fn build(making: &Making) -> Result<reqwest::Client, HttpError> {
    let Making {
        settings,
        is_loopback,
        authorities,
        address,
    } = making;
    let mut builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(settings.connect_timeout)
        .connector_layer(ConnectingLayer)
        .tcp_nodelay(true)
        .pool_idle_timeout(settings.idle_timeout)
        .pool_max_idle_per_host(settings.max_idle)
        .tcp_keepalive(settings.probes.interval)
        .tcp_keepalive_interval(settings.probes.interval);
    #[cfg(target_os = "linux")]
    {
        builder = builder.tcp_user_timeout(settings.probes.unacknowledged);
    }
    if *is_loopback {
        builder = builder.no_proxy();
    }
    if let Some((host, address)) = address {
        builder = builder.resolve(host, *address);
    }
    authorities
        .add_to(builder)
        .build()
        .map_err(HttpError::Reqwest)
}

impl Target {
    /// `None` if the URL cannot be used in an HTTP request.
    pub(super) fn new(url: Url) -> Option<Self> {
        let uri: Uri = url.as_str().parse().ok()?;
        let path = uri.path_and_query()?.clone().into();
        Some(Self { url, uri, path })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The host, with the port unless the scheme implies it.
    pub(super) fn host(&self) -> Option<String> {
        let host = self.uri.host()?;
        Some(
            self.url
                .port()
                .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
        )
    }

    fn is_loopback(&self) -> bool {
        self.url
            .host_str()
            .is_some_and(fanlight_config::settings::is_loopback)
    }
}

impl HttpResponse {
    /// The number of unread bytes of the body, if known.
    pub(super) fn content_length(&self) -> Option<u64> {
        match &self.body {
            Body::Pooled(body) => body.length(),
            Body::Reqwest(response) => response.content_length(),
        }
    }

    /// The next bytes of the body; `None` at its end. Cancel safe.
    pub(super) fn chunk(
        &mut self,
    ) -> impl Future<Output = Result<Option<Bytes>, HttpError>> + Send {
        match &mut self.body {
            Body::Pooled(body) => {
                Either::Left(poll_fn(|cx| body.poll_chunk(cx).map_err(HttpError::Pooled)))
            }
            Body::Reqwest(response) => Either::Right(response.chunk().map_err(HttpError::Reqwest)),
        }
    }

    /// Reads more of a long body into `buffer`: see [`pooled::ResponseBody::read_into`].
    pub(super) async fn read_into(
        &mut self,
        buffer: &mut BodyBuffer,
    ) -> Result<Option<usize>, HttpError> {
        match &mut self.body {
            Body::Pooled(body) => body
                .read_into(&self.headers, buffer)
                .await
                .map_err(HttpError::Pooled),
            Body::Reqwest(_) => Ok(None),
        }
    }
}

impl ResponseFuture {
    /// Whether part of the request may have been written.
    pub(super) fn may_be_sent(&self) -> bool {
        match self {
            Self::Pooled(future) => future.may_be_sent(),
            Self::Reqwest(future) => !future.is_connecting(),
        }
    }
}

impl Future for ResponseFuture {
    type Output = Result<HttpResponse, HttpError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.get_mut() {
            Self::Pooled(future) => ready!(Pin::new(future).poll(cx))
                .map_err(HttpError::Pooled)
                .map(|response| {
                    let (head, body) = response.into_parts();
                    HttpResponse {
                        status: head.status,
                        headers: head.headers,
                        body: Body::Pooled(body),
                    }
                }),
            Self::Reqwest(future) => ready!(Pin::new(future).poll(cx))
                .map_err(HttpError::Reqwest)
                .map(|mut response| {
                    let headers = std::mem::take(response.headers_mut());
                    HttpResponse {
                        status: response.status(),
                        headers,
                        body: Body::Reqwest(Box::new(response)),
                    }
                }),
        })
    }
}

impl HttpError {
    /// Whether the server certainly received nothing: there was no connection or no request.
    pub(super) fn nothing_was_sent(&self) -> bool {
        match self {
            Self::Pooled(error) => {
                matches!(error, pooled::Error::Connect(_) | pooled::Error::Unsent(_))
            }
            Self::Reqwest(error) => {
                error.is_connect() || error.is_builder() || is_refused_handshake(error)
            }
            Self::NoCredentials(_) => true,
        }
    }

    /// The innermost cause; the outer ones may contain the URL.
    pub(super) fn reason(&self) -> String {
        let mut innermost: Option<&dyn Error> = match self {
            Self::Pooled(error) => Some(error),
            Self::Reqwest(error) => error.source(),
            Self::NoCredentials(_) => return "no credentials".into(),
        };
        while let Some(next) = innermost.and_then(Error::source) {
            innermost = Some(next);
        }
        innermost.map_or_else(
            || "unknown reason".into(),
            |cause| excerpt(cause.to_string().as_bytes(), 200),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_has_a_port_unless_the_scheme_implies_it() {
        for (url, host) in [
            ("http://a.b:80/x", "a.b"),
            ("http://a.b:81", "a.b:81"),
            ("https://[::1]:1/", "[::1]:1"),
        ] {
            assert_eq!(
                Target::new(Url::parse(url).unwrap())
                    .unwrap()
                    .host()
                    .as_deref(),
                Some(host)
            );
        }
    }

    #[test]
    fn pool_serves_plain_http_only() {
        let time = Duration::from_secs(5);
        let settings = PoolSettings {
            connect_timeout: time,
            idle_timeout: time,
            max_idle: 4,
            probes: fanlight_http::client::TcpProbes {
                interval: time,
                unacknowledged: time,
            },
        };
        for (url, plain) in [("http://127.0.0.1:1", true), ("https://127.0.0.1:1", false)] {
            let target = Target::new(Url::parse(url).unwrap()).unwrap();
            assert_eq!(
                HttpClient::new((&target, None), settings, Authorities::default())
                    .unwrap()
                    .needs_host(),
                plain,
                "{url}"
            );
        }
    }
}
