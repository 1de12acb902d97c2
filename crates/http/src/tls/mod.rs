//! TLS of a listener: replaceable certificates and requirements, and the handshake.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use arc_swap::ArcSwapOption;
use fanlight_config::settings::read_bounded;
use fanlight_config::{MAX_FILE_SIZE, Tls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// The certificate that a listener presents, and the authorities for client certificates, as PEM.
#[derive(Clone, Copy)]
pub struct TlsFiles<'a> {
    /// The certificate, and intermediate ones up to the root.
    pub certificate: &'a [u8],
    /// The key of its certificate.
    pub key: &'a [u8],
    /// Authorities that may sign client certificates; `None` if clients need none.
    pub client_ca: Option<ClientCa<'a>>,
}

/// The authorities that may sign client certificates.
#[derive(Clone, Copy)]
pub struct ClientCa<'a> {
    /// Certificates, as PEM.
    pub certificates: &'a [u8],
    /// Whether clients without a certificate are served, too.
    pub is_optional: bool,
}

/// The HTTP versions that are offered to clients (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersions {
    /// HTTP/1.1.
    One,
    /// HTTP/2 and HTTP/1.1.
    OneAndTwo,
}

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// `cert` has no certificate.
    #[error("`cert` has no certificate in PEM form")]
    NoCertificate,
    /// `key` has no key.
    #[error("`key` has no private key in PEM form, or it is encrypted")]
    NoKey,
    /// `clientCa` has no certificate.
    #[error("`clientCa` has no certificate in PEM form")]
    NoClientCa,
    /// A certificate of `clientCa` is malformed.
    #[error("`clientCa` cannot be used: {0}")]
    ClientCa(rustls::Error),
    /// The key does not belong to the certificate.
    #[error("`key` is not the key of the certificate in `cert`")]
    OtherKey,
    /// The certificate or the key cannot be used.
    #[error("`cert` and `key` cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// The server side of TLS.
#[derive(Clone)]
pub struct TlsServer(Arc<ServerConfig>);

impl TlsServer {
    /// Reads these files, for TLS 1.2 and 1.3.
    ///
    /// # Errors
    ///
    /// If the files are malformed or do not fit together.
    pub fn new(files: TlsFiles<'_>, versions: HttpVersions) -> Result<Self, TlsError> {
        let certificates = certificates(files.certificate).ok_or(TlsError::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(files.key).map_err(|_| TlsError::NoKey)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(TlsError::Unusable)?;
        let builder = match files.client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(roots(ca.certificates)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = if ca.is_optional {
                    verifier.allow_unauthenticated()
                } else {
                    verifier
                };
                let unusable =
                    |error| TlsError::ClientCa(rustls::Error::General(format!("{error}")));
                builder.with_client_cert_verifier(verifier.build().map_err(unusable)?)
            }
        };
        let mut config =
            builder
                .with_single_cert(certificates, key)
                .map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => TlsError::OtherKey,
                    other => TlsError::Unusable(other),
                })?;
        // There is no table of sessions: tickets contain all data for a resumption.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if files.client_ca.is_some() {
            // A resumed session would present a certificate that may have expired since.
            config.send_tls13_tickets = 0;
        } else {
            config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Unusable)?;
        }
        config.alpn_protocols = match versions {
            HttpVersions::One => vec![b"http/1.1".to_vec()],
            HttpVersions::OneAndTwo => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .ok()?;
    (!all.is_empty()).then_some(all)
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem).ok_or(TlsError::NoClientCa)? {
        roots.add(certificate).map_err(TlsError::ClientCa)?;
    }
    Ok(roots)
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").finish_non_exhaustive()
    }
}

/// The TLS settings of a listener, if it speaks TLS. They can change while it serves; the change
/// applies to connections accepted afterwards.
#[derive(Clone, Debug, Default)]
pub struct LiveTls(Arc<ArcSwapOption<TlsServer>>);

impl LiveTls {
    /// Begins with these settings, or without TLS.
    pub fn new(server: Option<TlsServer>) -> Self {
        Self(Arc::new(ArcSwapOption::from_pointee(server)))
    }

    /// Replaces the settings for connections that are accepted from now on.
    pub fn replace(&self, server: Option<TlsServer>) {
        self.0.store(server.map(Arc::new));
    }

    /// The current settings.
    pub fn load(&self) -> Option<Arc<TlsServer>> {
        self.0.load_full()
    }
}

/// The answer to HTTP without TLS.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 47\r\n\
    Connection: close\r\n\r\nthis port speaks https: use an https:// address\n";
/// How long a client may take to read that answer and end its request, before the connection is
/// closed. A constant: a slower client learns nothing from the answer.
const LAST_READS: Duration = Duration::from_secs(1);
/// The maximum number of bytes read of such a request.
const LONGEST_REST: usize = 64 << 10;

/// The reason why a handshake has failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The client speaks HTTP without TLS, and has been told so.
    #[error("the client speaks HTTP without TLS")]
    PlainHttp,
    /// The connection broke, or the client sent something unacceptable.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Does the server's part of the handshake. `wrap` makes the stream under TLS. This may take as
/// long as the client likes, so the caller limits the time.
///
/// # Errors
///
/// If the connection breaks, or the handshake fails.
pub async fn accept_tls<S>(
    server: &TlsServer,
    stream: TcpStream,
    wrap: impl FnOnce(TcpStream) -> S,
) -> Result<TlsStream<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut first = [0];
    let is_closed = stream.peek(&mut first).await? == 0;
    // TLS begins with a record type, 22; HTTP begins with the letters of a method.
    if !is_closed && first.iter().all(u8::is_ascii_uppercase) {
        refuse_http(stream).await;
        return Err(HandshakeError::PlainHttp);
    }
    Ok(TlsAcceptor::from(Arc::clone(&server.0))
        .accept(wrap(stream))
        .await?)
}

/// Answers, and keeps reading for a moment. Closing a connection with unread bytes would lose the
/// answer.
async fn refuse_http(mut stream: TcpStream) {
    let answered = async {
        stream.write_all(NOT_TLS).await?;
        stream.shutdown().await?;
        let (mut rest, mut len) = ([0; 2 << 10], 0);
        while len < LONGEST_REST {
            match stream.read(&mut rest).await? {
                0 => break,
                read => len += read,
            }
        }
        io::Result::Ok(())
    };
    // The connection is over in any case; an error changes nothing.
    let _ = timeout(LAST_READS, answered).await;
}

/// The client's verified certificate, in DER.
pub fn client_certificate<S>(stream: &TlsStream<S>) -> Option<Arc<[u8]>> {
    let (_, session) = stream.get_ref();
    session
        .peer_certificates()?
        .first()
        .map(|certificate| Arc::from(certificate.as_ref()))
}

/// The TLS of a listener, loaded from its files.
#[derive(Clone, Debug)]
pub struct LoadedTls {
    /// The TLS itself.
    pub server: TlsServer,
    /// Digests of the files, which a reload compares.
    pub marks: TlsMarks,
}

/// Digests that change with the files of a listener's TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsMarks {
    /// The digest of its certificate and key.
    own: u64,
    /// The digest of the requirements for client certificates.
    pub clients: u64,
}

impl LoadedTls {
    /// Reads the TLS of a listener from the files of `tls`, which is the value of `option`.
    ///
    /// # Errors
    ///
    /// A message that names the option and the files that cannot be used.
    pub fn read(tls: &Tls, option: &'static str, versions: HttpVersions) -> Result<Self, String> {
        TlsOption::read(tls, option)?.listener(versions)
    }
}

/// The files of a TLS option, read.
pub struct TlsOption<'a> {
    option: &'static str,
    tls: &'a Tls,
    /// The certificate, as PEM.
    pub certificate: Vec<u8>,
    /// The key of the certificate.
    pub key: Vec<u8>,
    /// The authorities of client certificates, and whether a client may have no certificate.
    pub ca: Option<(Vec<u8>, bool)>,
}

impl<'a> TlsOption<'a> {
    /// Reads the files of `tls`, which is the value of `option`.
    ///
    /// # Errors
    ///
    /// A message that names the option and the file that cannot be read.
    pub fn read(tls: &'a Tls, option: &'static str) -> Result<Self, String> {
        let ca = tls
            .client_ca()
            .map(|(file, is_required)| Ok::<_, String>((read(file, option)?, !is_required)));
        let (certificate, key) = (read(&tls.cert, option)?, read(&tls.key, option)?);
        Ok(Self {
            option,
            tls,
            certificate,
            key,
            ca: ca.transpose()?,
        })
    }

    /// The TLS of a listener with these files.
    ///
    /// # Errors
    ///
    /// A message that names the option and its files, if they cannot be used.
    pub fn listener(&self, versions: HttpVersions) -> Result<LoadedTls, String> {
        let ca = self.ca.as_ref();
        let client_ca = ca.map(|(certificates, is_optional)| ClientCa {
            certificates,
            is_optional: *is_optional,
        });
        let files = TlsFiles {
            certificate: &self.certificate,
            key: &self.key,
            client_ca,
        };
        let server = TlsServer::new(files, versions).map_err(|error| self.unusable(&error))?;
        let marks = TlsMarks {
            own: mark(&(&self.certificate, &self.key)),
            clients: mark(&self.ca),
        };
        Ok(LoadedTls { server, marks })
    }

    /// The message of an error in these files.
    pub fn unusable(&self, error: &dyn std::error::Error) -> String {
        let files: Vec<_> = self.tls.files().collect();
        format!(
            "`{}` cannot be used: {error}; its files: {}",
            self.option,
            files.join(", ")
        )
    }
}

fn mark(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn read(path: &str, option: &str) -> Result<Vec<u8>, String> {
    match read_bounded(Path::new(path), MAX_FILE_SIZE) {
        Ok(bytes) if bytes.len() <= MAX_FILE_SIZE => Ok(bytes),
        Ok(_) => Err(format!("`{option}` cannot be used: {path} is too large")),
        Err(error) => Err(format!(
            "`{option}` cannot be used: cannot read {path}: {error}"
        )),
    }
}

#[cfg(test)]
mod tests;
