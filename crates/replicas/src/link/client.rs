//! A worker's HTTP client for one replica.

use std::error::Error;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use fanlight_frontend::forwarding::LARGEST_WINDOW;
use futures_util::future::BoxFuture;
use h2::Reason;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{
    FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream,
};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

use super::{ANSWER_WINDOW, CONNECT, IDLE, PING, PONG};

pub(crate) type Client = legacy::Client<ConnectorInTime, Full<Bytes>>;

type ConnectError = Box<dyn Error + Send + Sync>;

/// Makes connections, each within [`CONNECT`].
#[derive(Clone)]
pub(crate) struct ConnectorInTime(HttpsConnector<HttpConnector>);

/// A client that accepts certificates for `name`.
pub(crate) fn client(tls: ClientConfig, name: ServerName<'static>) -> Client {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only();
    let builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http2_only(true)
        .http2_initial_stream_window_size(ANSWER_WINDOW)
        // As large as all answers together may be, so that a client that does not read cannot block
        // others.
        .http2_initial_connection_window_size(LARGEST_WINDOW)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        // Late parts of answers to clients that have gone are no error of the other replica.
        .http2_max_local_error_reset_streams(None)
        .build(ConnectorInTime(builder.enable_http2().wrap_connector(tcp)))
}

/// The URL of a replica.
pub(crate) fn url(address: SocketAddr) -> Option<Uri> {
    Uri::try_from(format!("https://{address}/")).ok()
}

/// Whether a connection has not answered a check.
pub(crate) fn is_timeout(error: &legacy::Error) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<hyper::Error>())
        .any(hyper::Error::is_timeout)
}

/// Whether the other end reports that it has not begun the request (RFC 9113, 8.7).
pub(crate) fn was_not_begun(error: &legacy::Error) -> bool {
    let mut of_http2 = causes(error)
        .filter_map(|cause| cause.downcast_ref::<h2::Error>())
        .filter(|cause| cause.is_remote());
    of_http2.any(|cause| match cause.reason() {
        Some(Reason::NO_ERROR) => cause.is_go_away(),
        Some(Reason::REFUSED_STREAM) => cause.is_reset(),
        _ => false,
    })
}

fn causes(error: &legacy::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

impl Service<Uri> for ConnectorInTime {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connecting = self.0.call(url);
        Box::pin(async move { timeout(CONNECT, connecting).await? })
    }
}
