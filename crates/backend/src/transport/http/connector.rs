//! Makes the connections to a server with TLS or behind a proxy: certificate authorities, TLS
//! errors.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_config::settings::read_bounded;
use fanlight_http::client::{PoolSettings, is_out_of_files, tcp_connector, wait_for_file};
use futures_util::future::BoxFuture;
use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, AlertDescription, ClientConfig};
use tower_service::Service;

use crate::log::excerpt;

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
pub(crate) struct ServerStream {
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
                    Err(error) if is_out_of_files(&*error) => wait_for_file().await,
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

/// The maximum size of a certificate file in bytes.
const LONGEST: usize = 1 << 20;

/// Certificates of authorities.
#[derive(Clone, Debug, Default)]
pub(super) struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// Reads the certificates in a PEM file; none without a file. The error names the file, since
    /// it is for operators.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, String> {
        let Some(file) = file else {
            return Ok(Self::default());
        };
        let shown = excerpt(file.as_os_str().as_encoded_bytes(), 200);
        let cannot = |why: String| format!("its `caFile` {shown} cannot be used: {why}");
        let pem = read_bounded(file, LONGEST).map_err(|error| cannot(error.to_string()))?;
        if pem.len() > LONGEST {
            return Err(cannot(format!("it is larger than {LONGEST} bytes")));
        }
        match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
            Ok(found) if !found.is_empty() => Ok(Self(found)),
            _ => Err(cannot("it has no certificate in PEM form".to_owned())),
        }
    }

    /// Settings for TLS that accept certificates of these authorities, too.
    pub(super) fn tls(self) -> Result<ClientConfig, rustls::Error> {
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
        let verifier = Verifier::new_with_extra_roots(self.0, Arc::clone(&provider))?;
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth())
    }
}

/// Whether the server refused the client's part of the handshake. With TLS 1.3 this error arrives
/// after the client considers the handshake complete, but before the server reads a request.
pub(super) fn is_refused_handshake(error: &(dyn Error + 'static)) -> bool {
    matches!(
        find(error),
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
        ))
    )
}

/// The TLS error inside another error, if there is one. The inner error of an [`io::Error`] is not
/// its source.
pub(super) fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match inner {
        Some(inner) => find(inner),
        None => error.source().and_then(find),
    }
}
