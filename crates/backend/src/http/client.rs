//! The HTTP client of one server. Plain `http:` without a proxy goes by hyper's connections, with one
//! pool of them for each worker; TLS and proxies go by `reqwest`, which does more than a call
//! on the hot path should pay for.
//!
//! Either way: no redirects, no cookies, no decompression, no second attempt once anything was sent.
//!
//! Must not know: what is sent.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryFutureExt as _;
use futures_util::future::{BoxFuture, Either};
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Url, redirect};

use super::plain::{self, PlainClient};
use super::room::Room;
use crate::excerpt::excerpt;

/// See the module.
pub(super) struct HttpClient(Way);

enum Way {
    Plain(PlainClient),
    Full(reqwest::Client),
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    url: Url,
    uri: Uri,
    /// What a request line says of it.
    path: Uri,
}

/// A request that is about to be sent.
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) target: Arc<Target>,
    pub(super) headers: HeaderMap,
    /// Empty if there is none.
    pub(super) body: Bytes,
}

/// A response whose body has not been read yet.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Body,
}

enum Body {
    Plain(plain::Body),
    Full(Box<reqwest::Response>),
}

/// A request on its way; resolves to the head of its response.
pub(super) enum Executing {
    Plain(plain::Executing),
    Full(BoxFuture<'static, reqwest::Result<reqwest::Response>>),
}

/// Why there is no response, or no more of it.
#[derive(Debug)]
pub(super) enum HttpError {
    Plain(plain::Error),
    Full(reqwest::Error),
}

/// What a client is made for.
#[derive(Clone, Copy)]
pub(super) struct ClientSettings {
    /// How long it may take to make a connection, looking up the address included.
    pub(super) connect_timeout: Duration,
    /// A connection that no request uses is closed between half of this and this.
    pub(super) idle_timeout: Duration,
    /// Connections kept for later requests at most.
    pub(super) most_idle: usize,
}

impl HttpClient {
    /// The client for one target and all others of the same origin.
    pub(super) fn new(target: &Target, settings: ClientSettings) -> Result<Self, HttpError> {
        let loopback = target.is_loopback();
        if target.url.scheme() == "http" && (loopback || Matcher::from_env().intercept(&target.uri).is_none()) {
            return Ok(Self(Way::Plain(PlainClient::new(target.uri.clone(), settings))));
        }
        let mut builder = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(settings.connect_timeout)
            .tcp_nodelay(true)
            .pool_idle_timeout(settings.idle_timeout)
            .pool_max_idle_per_host(settings.most_idle);
        if loopback {
            builder = builder.no_proxy();
        }
        builder.build().map(|client| Self(Way::Full(client))).map_err(HttpError::Full)
    }

    /// Sends a request. Begins with the first poll, but chooses the worker's pool now.
    pub(super) fn execute(&self, request: HttpRequest) -> Executing {
        let HttpRequest { method, target, headers, body } = request;
        match &self.0 {
            Way::Plain(client) => {
                let mut request = http::Request::new(Full::new(body));
                *request.method_mut() = method;
                *request.uri_mut() = target.path.clone();
                *request.headers_mut() = headers;
                Executing::Plain(client.execute(request))
            }
            Way::Full(client) => {
                let mut request = reqwest::Request::new(method, target.url.clone());
                *request.headers_mut() = headers;
                *request.body_mut() = (!body.is_empty()).then(|| body.into());
                Executing::Full(Box::pin(client.execute(request)))
            }
        }
    }

    /// Whether requests need a `Host` header of their own.
    pub(super) fn wants_host(&self) -> bool {
        matches!(self.0, Way::Plain(_))
    }
}

impl Target {
    /// `None` if the URL is one that HTTP cannot name.
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
        Some(self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    }

    fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl HttpResponse {
    /// The length of the body that is left, if it is known.
    pub(super) fn content_length(&self) -> Option<u64> {
        match &self.body {
            Body::Plain(body) => body.length(),
            Body::Full(response) => response.content_length(),
        }
    }

    /// The next piece of the body; `None` at its end. Can be dropped and called again.
    pub(super) fn chunk(&mut self) -> impl Future<Output = Result<Option<Bytes>, HttpError>> + Send {
        match &mut self.body {
            Body::Plain(body) => Either::Left(poll_fn(|cx| body.poll_chunk(cx).map_err(HttpError::Plain))),
            Body::Full(response) => Either::Right(response.chunk().map_err(HttpError::Full)),
        }
    }

    /// Reads more of a long body right into `whole`: see [`plain::Body::read_directly`].
    pub(super) async fn read_directly(&mut self, whole: &mut Room) -> Result<Option<usize>, HttpError> {
        match &mut self.body {
            Body::Plain(body) => body.read_directly(&self.headers, whole).await.map_err(HttpError::Plain),
            Body::Full(_) => Ok(None),
        }
    }
}

impl Future for Executing {
    type Output = Result<HttpResponse, HttpError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.get_mut() {
            Self::Plain(executing) => ready!(Pin::new(executing).poll(cx)).map_err(HttpError::Plain).map(|response| {
                let (head, body) = response.into_parts();
                HttpResponse { status: head.status, headers: head.headers, body: Body::Plain(body) }
            }),
            Self::Full(executing) => {
                ready!(executing.as_mut().poll(cx)).map_err(HttpError::Full).map(|mut response| {
                    let headers = std::mem::take(response.headers_mut());
                    HttpResponse { status: response.status(), headers, body: Body::Full(Box::new(response)) }
                })
            }
        })
    }
}

impl HttpError {
    /// Whether certainly nothing was sent: there was no connection, or no request.
    pub(super) fn nothing_was_sent(&self) -> bool {
        match self {
            Self::Plain(error) => matches!(error, plain::Error::Connect(_)),
            Self::Full(error) => error.is_connect() || error.is_builder(),
        }
    }

    /// The last of the error's causes, which says what happened; those before it can hold the URL.
    pub(super) fn reason(&self) -> String {
        let mut innermost: Option<&dyn Error> = match self {
            Self::Plain(error) => Some(error),
            Self::Full(error) => error.source(),
        };
        while let Some(next) = innermost.and_then(Error::source) {
            innermost = Some(next);
        }
        innermost.map_or_else(|| "unknown reason".into(), |cause| excerpt(cause.to_string().as_bytes(), 200))
    }
}

#[cfg(test)]
mod tests;
