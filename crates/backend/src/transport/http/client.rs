//! The HTTP client of one server: `fanlight_http_pool` for plain `http:` without a proxy, `reqwest` for TLS and proxies,
//! which does more than a call on the hot path should pay for.
//!
//! Neither follows redirects, keeps cookies, decompresses, or repeats a request of which anything was sent.

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
use fanlight_http_pool::{self as pooled, BodyBuffer, PoolSettings, PooledClient};
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

/// How long to wait before another attempt to connect when the process has as many files open as it may.
const RETRY_WITHOUT_FILES: Duration = Duration::from_millis(50);

/// The client of one server.
pub(super) enum HttpClient {
    Pooled(PooledClient),
    Reqwest(Box<ReplaceableClient>),
}

/// A `reqwest` client that is replaced once its connections are suspected, since its pool cannot be emptied.
pub(super) struct ReplaceableClient {
    current: ArcSwap<reqwest::Client>,
    making: Making,
    /// Whether the next request needs new connections.
    is_suspected: AtomicBool,
    /// When `current` was built. That takes milliseconds, since certificates are read.
    built: Mutex<Instant>,
}

/// How a `reqwest` client is made.
struct Making {
    settings: PoolSettings,
    is_loopback: bool,
    authorities: Authorities,
    /// The host of the server and its address, if that is not to be looked up.
    address: Option<(String, SocketAddr)>,
}

/// The least time between two replacements of a client. No option: it bounds processor time, and a call that meets it
/// fails as one on a silent connection does.
const REPLACEMENT: Duration = Duration::from_secs(1);

/// A URL that requests are sent to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    url: Url,
    uri: Uri,
    /// The path and query, as in a request line.
    path: Uri,
}

/// A request.
#[derive(Clone)]
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) target: Arc<Target>,
    pub(super) headers: HeaderMap,
    /// Empty if there is none.
    pub(super) body: Bytes,
    /// The response may be an event stream that lasts with little to read.
    pub(super) may_last: bool,
}

/// A response whose body has not been read yet.
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

/// Why there is no response, or no more of it.
#[derive(Debug)]
pub(super) enum HttpError {
    Pooled(pooled::Error),
    Reqwest(reqwest::Error),
    /// There were no credentials to send it with.
    NoCredentials(NoCredentials),
}

impl From<NoCredentials> for HttpError {
    fn from(missing: NoCredentials) -> Self {
        Self::NoCredentials(missing)
    }
}

impl HttpClient {
    /// The client for the origin of `target`, at this address if it is not to be looked up.
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

    /// Has the next requests go out on new connections.
    pub(super) fn suspect_connections(&self) {
        match self {
            Self::Pooled(client) => client.close_idle(),
            Self::Reqwest(client) => client.is_suspected.store(true, Ordering::Relaxed),
        }
    }

    /// Sends a request once the future is polled; its worker is the current one.
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

    /// Whether requests must come with a `Host` header.
    pub(super) fn needs_host(&self) -> bool {
        matches!(self, Self::Pooled(_))
    }
}

/// Sends a request; waits while the process has as many files open as it may. The caller bounds the time.
async fn execute_with_files(
    client: reqwest::Client,
    request: reqwest::Request,
) -> reqwest::Result<reqwest::Response> {
    loop {
        // Always there, since the body is in memory.
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

    /// Whether the current client is to be replaced now, by the caller.
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
    /// `None` if the URL has no place in an HTTP request.
    pub(super) fn new(url: Url) -> Option<Self> {
        let uri: Uri = url.as_str().parse().ok()?;
        let path = uri.path_and_query()?.clone().into();
        Some(Self { url, uri, path })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The host, and the port unless the scheme implies it.
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
            .is_some_and(fanlight_settings::is_loopback)
    }
}

impl HttpResponse {
    /// The number of bytes of the body that have not been read, if it is known.
    pub(super) fn content_length(&self) -> Option<u64> {
        match &self.body {
            Body::Pooled(body) => body.length(),
            Body::Reqwest(response) => response.content_length(),
        }
    }

    /// The next bytes of the body; `None` at its end. Can be dropped and called again.
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
    /// Whether something of the request may have been written.
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
    /// Whether certainly nothing was sent that the server has read: there was no connection, or no request.
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

    /// The innermost cause; the outer ones can contain the URL.
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
            probes: fanlight_http_pool::TcpProbes {
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
