//! Makes the connections to a server with TLS or behind a proxy.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_http::client::{PoolSettings, announce_shortage, is_out_of_files, tcp_connector};
use futures_util::future::BoxFuture;
use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

/// The pause before another attempt to connect when the process has as many open files as it may.
const RETRY_WITHOUT_FILES: Duration = Duration::from_millis(50);

type BoxError = Box<dyn Error + Send + Sync>;

/// Makes connections to one server, whatever the URI of a request.
#[derive(Clone)]
pub(super) struct Connector {
    route: Route,
    /// The URI to connect to: the server's or, without a tunnel, the proxy's.
    nearest: Uri,
    timeout: Duration,
}

#[derive(Clone)]
enum Route {
    Direct(HttpsConnector<HttpConnector>),
    /// A proxy gets the server's URI with each request.
    Forwarded(HttpsConnector<HttpConnector>),
    /// A proxy passes on the bytes of a connection.
    Tunnelled(Box<HttpsConnector<Tunnel<HttpsConnector<HttpConnector>>>>),
}

/// A connection, perhaps with TLS to a proxy and, within that, to the server.
pub(super) struct ServerStream {
    io: MaybeHttpsStream<MaybeHttpsStream<TokioIo<TcpStream>>>,
    is_forwarded: bool,
}

impl Connector {
    /// Creates a connector to the server of `uri`. With an address, its host is not resolved.
    pub(super) fn new(
        (uri, address): (&Uri, Option<SocketAddr>),
        proxy: Option<&Intercept>,
        tls: ClientConfig,
        settings: &PoolSettings,
    ) -> Self {
        let mut tcp = tcp_connector(settings);
        tcp.enforce_http(false);
        let builder = |tls| {
            HttpsConnectorBuilder::new()
                .with_tls_config(tls)
                .https_or_http()
        };
        let (route, nearest) = match proxy {
            None => {
                let host = uri
                    .host()
                    .unwrap_or_default()
                    .trim_matches(['[', ']'])
                    .to_owned();
                let direct = builder(tls)
                    .with_server_name_resolver(move |_: &_| ServerName::try_from(host.clone()))
                    .enable_all_versions()
                    .wrap_connector(tcp);
                let at = address.and_then(|address| format!("https://{address}/").parse().ok());
                (Route::Direct(direct), at.unwrap_or_else(|| uri.clone()))
            }
            Some(proxy) => {
                let to_proxy = builder(tls.clone()).enable_http1().wrap_connector(tcp);
                if uri.scheme() == Some(&Scheme::HTTP) {
                    (Route::Forwarded(to_proxy), proxy.uri().clone())
                } else {
                    let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
                    if let Some(credentials) = proxy.basic_auth() {
                        tunnel = tunnel.with_auth(credentials.clone());
                    }
                    let through = builder(tls).enable_all_versions().wrap_connector(tunnel);
                    (Route::Tunnelled(Box::new(through)), uri.clone())
                }
            }
        };
        Self {
            route,
            nearest,
            timeout: settings.connect_timeout,
        }
    }

    async fn connect(self) -> Result<ServerStream, BoxError> {
        let (io, is_forwarded) = match self.route {
            Route::Direct(direct) => (called(direct, self.nearest).await?.into(), false),
            Route::Forwarded(to_proxy) => (called(to_proxy, self.nearest).await?.into(), true),
            Route::Tunnelled(through) => (called(*through, self.nearest).await?, false),
        };
        Ok(ServerStream { io, is_forwarded })
    }
}

async fn called<S: Service<Uri>>(mut service: S, uri: Uri) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(uri).await
}

impl Service<Uri> for Connector {
    type Response = ServerStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ServerStream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            loop {
                match timeout(connector.timeout, connector.clone().connect()).await? {
                    // The request limits its own time.
                    Err(error) if is_out_of_files(&*error) => {
                        announce_shortage();
                        sleep(RETRY_WITHOUT_FILES).await;
                    }
                    outcome => return outcome,
                }
            }
        })
    }
}

impl Connection for ServerStream {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.is_forwarded)
    }
}

impl Read for ServerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for ServerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
