//! The HTTP client of one server. `fanlight_http::client` serves plain `http:` without a proxy;
//! `hyper-util` serves TLS, with HTTP/2, and proxies.
//!
//! Neither follows redirects or keeps cookies, nor repeats a request of which anything was sent.

use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwap;
use bytes::Bytes;
use fanlight_http::client::{self as pooled, BodyBuffer, PoolSettings, PooledClient};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body::{Body as _, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::Url;
use tokio::task::yield_now;
use tokio_rustls::rustls;

use super::coding::Coding;
use super::connector::{Authorities, Connector, is_refused_handshake};
use crate::credentials::NoCredentials;
use crate::log::excerpt;
use crate::transport::recorded::RecordedExchange;

/// The client of one server.
pub(super) enum HttpClient {
    Pooled(PooledClient),
    Library(Box<LibraryClient>),
}

type Library = legacy::Client<Connector, Full<Bytes>>;

/// The client for TLS and proxies.
pub(super) struct LibraryClient {
    current: ArcSwap<Library>,
    connector: Connector,
    settings: PoolSettings,
    /// The proxy's credentials, for a proxy to which the requests themselves are sent.
    proxy_authorization: Option<HeaderValue>,
}

/// A URL for requests.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(crate) url: Url,
    uri: Uri,
    /// The path and query, as in a request line.
    path: Uri,
}

/// A response with an unread body.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The exchange in the recording.
    pub(super) recorded: RecordedExchange,
    body: Body,
    /// Set if the body is coded.
    coding: Option<Box<Coding>>,
}

enum Body {
    Pooled(pooled::ResponseBody),
    Library(Incoming),
}

/// Resolves to the head of a response.
pub(super) enum ResponseFuture {
    Pooled(pooled::ResponseFuture),
    /// A request of hyper-util, with the future that resolves once the request has a connection.
    Library(legacy::ResponseFuture, CaptureConnection),
}

/// The error of a request without a complete response.
#[derive(Debug)]
pub(super) enum HttpError {
    Pooled(pooled::Error),
    Library(legacy::Error),
    /// A body that broke off.
    Body(hyper::Error),
    /// A body that cannot be decoded.
    Coding(String),
    /// There are no settings for TLS.
    Tls(rustls::Error),
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
        // This machine is reached directly.
        let proxies = (!target.is_loopback()).then(Matcher::from_env);
        let proxy = proxies.and_then(|proxies| proxies.intercept(&target.uri));
        if target.url.scheme() == "http" && proxy.is_none() {
            let at_address = address.and_then(|address| format!("http://{address}/").parse().ok());
            return Ok(Self::Pooled(PooledClient::new(
                at_address.unwrap_or_else(|| target.uri.clone()),
                settings,
            )));
        }
        LibraryClient::new((target, address), proxy.as_ref(), settings, authorities)
            .map(|client| Self::Library(Box::new(client)))
    }

    /// Makes the next requests use new connections.
    pub(super) fn suspect_connections(&self) {
        match self {
            Self::Pooled(client) => client.close_idle(),
            Self::Library(client) => client.suspect_connections(),
        }
    }

    /// Sends a request to `target` when the future is polled; the current worker serves it.
    /// `may_last` says that the response may be a long event stream with little traffic.
    pub(super) fn execute(
        &self,
        target: &Target,
        mut request: Request<Full<Bytes>>,
        may_last: bool,
    ) -> ResponseFuture {
        match self {
            Self::Pooled(client) => {
                *request.uri_mut() = target.path.clone();
                ResponseFuture::Pooled(if may_last {
                    client.execute_lasting(request)
                } else {
                    client.execute(request)
                })
            }
            Self::Library(client) => {
                *request.uri_mut() = target.uri.clone();
                client.execute(request)
            }
        }
    }

    /// Whether requests need a `Host` header.
    pub(super) fn needs_host(&self) -> bool {
        matches!(self, Self::Pooled(_))
    }
}

impl LibraryClient {
    fn new(
        (target, address): (&Target, Option<SocketAddr>),
        proxy: Option<&Intercept>,
        settings: PoolSettings,
        authorities: Authorities,
    ) -> Result<Self, HttpError> {
        let tls = authorities.tls().map_err(HttpError::Tls)?;
        let connector = Connector::new((&target.uri, address), proxy, tls, &settings);
        let is_plain = target.uri.scheme() == Some(&Scheme::HTTP);
        Ok(Self {
            current: ArcSwap::from_pointee(with_new_connections(connector.clone(), &settings)),
            connector,
            settings,
            // A tunnel gets it when it is made.
            proxy_authorization: proxy
                .and_then(Intercept::basic_auth)
                .filter(|_| is_plain)
                .cloned(),
        })
    }

    fn execute(&self, mut request: Request<Full<Bytes>>) -> ResponseFuture {
        if let Some(value) = &self.proxy_authorization {
            let headers = request.headers_mut();
            headers
                .entry(header::PROXY_AUTHORIZATION)
                .or_insert_with(|| value.clone());
        }
        let connection = capture_connection(&mut request);
        ResponseFuture::Library(self.current.load().request(request), connection)
    }

    /// Leaves the connections to running requests; the library's pool cannot be emptied.
    fn suspect_connections(&self) {
        let fresh = with_new_connections(self.connector.clone(), &self.settings);
        self.current.store(Arc::new(fresh));
    }
}

fn with_new_connections(connector: Connector, settings: &PoolSettings) -> Library {
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.idle_timeout)
        .pool_max_idle_per_host(settings.max_idle)
        .build(connector)
}

impl Target {
    /// `None` if the URL cannot be used in an HTTP request.
    pub(super) fn new(url: Url) -> Option<Self> {
        let uri: Uri = url.as_str().parse().ok()?;
        let path = uri.path_and_query()?.clone().into();
        Some(Self { url, uri, path })
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
    fn new(response: http::Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            coding: Coding::declared_in(&head.headers),
            headers: head.headers,
            recorded: RecordedExchange::default(),
            body,
        }
    }

    /// The number of unread bytes of the body, if known.
    pub(super) fn content_length(&self) -> Option<u64> {
        match &self.body {
            _ if self.coding.is_some() => None,
            Body::Pooled(body) => body.length(),
            Body::Library(body) => body.size_hint().exact(),
        }
    }

    /// The next bytes of the body; `None` at its end. Cancel safe.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        // A few coded bytes can have very many pieces, which arrive all at once.
        if self.coding.is_some() {
            yield_now().await;
        }
        poll_fn(|cx| {
            loop {
                if let Some(coding) = &mut self.coding
                    && let Some(decoded) = coding.decode().map_err(HttpError::Coding)?
                {
                    return Poll::Ready(Ok(Some(decoded)));
                }
                let chunk = ready!(match &mut self.body {
                    Body::Pooled(body) => body.poll_chunk(cx).map_err(HttpError::Pooled),
                    Body::Library(body) => poll_data(body, cx).map_err(HttpError::Body),
                })?;
                let Some(coding) = &mut self.coding else {
                    return Poll::Ready(Ok(chunk));
                };
                match chunk {
                    Some(chunk) => coding.push(chunk).map_err(HttpError::Coding)?,
                    None => return Poll::Ready(coding.finish().map_err(HttpError::Coding)),
                }
            }
        })
        .await
    }

    /// Reads more of a long body into `buffer`: see [`pooled::ResponseBody::read_into`].
    pub(super) async fn read_into(
        &mut self,
        buffer: &mut BodyBuffer,
    ) -> Result<Option<usize>, HttpError> {
        match &mut self.body {
            Body::Pooled(body) if self.coding.is_none() => body
                .read_into(&self.headers, buffer)
                .await
                .map_err(HttpError::Pooled),
            Body::Library(_) | Body::Pooled(_) => Ok(None),
        }
    }
}

/// The next bytes of a body, without its trailers.
fn poll_data(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<hyper::Result<Option<Bytes>>> {
    loop {
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx)).transpose()?;
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => return Poll::Ready(Ok(Some(data))),
            Some(Err(_trailers)) => {}
            None => return Poll::Ready(Ok(None)),
        }
    }
}

impl ResponseFuture {
    /// Whether part of the request may have been written.
    pub(super) fn may_be_sent(&self) -> bool {
        match self {
            Self::Pooled(future) => future.may_be_sent(),
            Self::Library(_, connection) => connection.connection_metadata().is_some(),
        }
    }
}

impl Future for ResponseFuture {
    type Output = Result<HttpResponse, HttpError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.get_mut() {
            Self::Pooled(future) => ready!(Pin::new(future).poll(cx))
                .map_err(HttpError::Pooled)
                .map(|response| HttpResponse::new(response.map(Body::Pooled))),
            Self::Library(future, _) => ready!(Pin::new(future).poll(cx))
                .map_err(HttpError::Library)
                .map(|response| HttpResponse::new(response.map(Body::Library))),
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
            Self::Library(error) => error.is_connect() || is_refused_handshake(error),
            Self::Body(_) | Self::Coding(_) => false,
            Self::Tls(_) | Self::NoCredentials(_) => true,
        }
    }

    /// The innermost cause.
    pub(super) fn reason(&self) -> String {
        let mut innermost: Option<&dyn Error> = match self {
            Self::Pooled(error) => Some(error),
            Self::Library(error) => Some(error),
            Self::Body(error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::Coding(reason) => return reason.clone(),
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
    use std::io::Write as _;
    use std::time::Duration;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use futures_util::FutureExt as _;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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

    #[tokio::test]
    async fn compressed_body_leaves_turns_to_others() {
        let mut body = GzEncoder::new(Vec::new(), Compression::best());
        body.write_all(&[b'\n'; 1 << 20]).unwrap();
        let body = body.finish().unwrap();
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near))
            .await
            .unwrap();
        tokio::spawn(connection);
        tokio::spawn(async move {
            far.read_u8().await.unwrap();
            far.write_all(&[head.as_bytes(), &body].concat())
                .await
                .unwrap();
        });
        let request = Request::new(Full::<Bytes>::default());
        let response = sender.send_request(request).await.unwrap();
        let mut response = HttpResponse::new(response.map(Body::Library));
        assert!(response.chunk().await.unwrap().is_some());
        assert!(
            response.chunk().now_or_never().is_none(),
            "the rest has arrived, too"
        );
        assert!(response.chunk().await.unwrap().is_some());
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
