//! Certificates for a test, and a TLS client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, SanType, date_time_ymd,
};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName,
};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::patience::within;
use crate::raw_client::Connection;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

/// A certificate and its key.
pub struct Pair {
    certificate: Certificate,
    key: KeyPair,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Creates an authority.
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// The authority's certificate, as PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A certificate and key for a server on this machine.
    pub fn server(&self) -> Pair {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        self.sign(CertificateParams::new(names).unwrap())
    }

    /// A certificate and key for the client with this URI.
    pub fn client(&self, uri: &str) -> Pair {
        self.sign(of_client(uri))
    }

    /// An expired certificate and key for the client with this URI.
    pub fn expired_client(&self, uri: &str) -> Pair {
        let mut params = of_client(uri);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair {
            certificate: params.signed_by(&key, &self.issuer).unwrap(),
            key,
        }
    }
}

fn of_client(uri: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

impl Pair {
    /// The certificate, as PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The key, as PEM.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// A TLS acceptor with this certificate that chooses among these protocols (ALPN).
    pub fn acceptor(&self, protocols: &[&str]) -> TlsAcceptor {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let (chain, key) = self.identity();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        Arc::new(config).into()
    }

    /// A TLS acceptor with this certificate that requires client certificates of this authority.
    pub fn acceptor_demanding(&self, authority: &Authority) -> TlsAcceptor {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let (chain, key) = self.identity();
        let builder = builder.with_client_cert_verifier(verifier.build().unwrap());
        Arc::new(builder.with_single_cert(chain, key).unwrap()).into()
    }

    /// The certificate and key as rustls takes them.
    fn identity(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        (
            vec![CertificateDer::from(self.der().to_vec())],
            PrivateKeyDer::Pkcs8(key),
        )
    }

    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        self.certificate.der()
    }
}

/// A TLS client.
#[derive(Clone)]
pub struct TlsClient(ClientConfig);

impl TlsClient {
    /// A client that trusts servers of `authority` and has no certificate.
    pub fn new(authority: &Authority) -> Self {
        Self::with(authority, None, &[&TLS13, &TLS12])
    }

    /// A client that trusts servers of `authority` and shows this certificate.
    pub fn showing(authority: &Authority, own: &Pair) -> Self {
        Self::with(authority, Some(own), &[&TLS13, &TLS12])
    }

    /// A client with TLS 1.2 only.
    pub fn of_tls_1_2(authority: &Authority) -> Self {
        Self::with(authority, None, &[&TLS12])
    }

    fn with(
        authority: &Authority,
        own: Option<&Pair>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        Self(match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let (chain, key) = own.identity();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }

    /// The same client, offering these protocols (ALPN).
    pub fn offering(mut self, protocols: &[&str]) -> Self {
        self.0.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        self
    }

    /// Connects and completes the handshake.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let connecting = async {
            let stream = TcpStream::connect(address).await?;
            let name = ServerName::from(address.ip());
            TlsConnector::from(Arc::new(self.0.clone()))
                .connect(name, stream)
                .await
        };
        within("a TLS handshake", connecting).await
    }

    /// Opens an HTTP/1.1 connection.
    pub async fn open(&self, address: SocketAddr) -> Connection {
        Connection::on(self.connect(address).await.unwrap(), address)
    }
}
