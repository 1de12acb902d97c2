//! Access of clients: a token, or TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use memchr::memmem;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::{BenchError, Doing, Result};

/// The audience of the tokens.
pub(crate) const AUDIENCE: &str = "fanlight-bench";
/// The lifetime of the token.
const DAY: Duration = Duration::from_secs(24 * 3600);
const KEY_ID: &str = "bench";
/// The issuer's time-out for a request, and its limit on a head.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_HEAD: usize = 16 << 10;

/// A client's access to a system.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// The token in its requests.
    pub(crate) token: Option<String>,
    /// The TLS of its connections.
    pub(crate) tls: Option<TlsConnector>,
}

/// An issuer with one token and one key. It publishes the key at [`Issuer::jwks_uri`] until it is
/// dropped.
pub(crate) struct Issuer {
    pub(crate) token: String,
    address: SocketAddr,
    _serving: JoinSet<()>,
}

impl Issuer {
    /// The `iss` of its tokens; nothing is published there.
    pub(crate) const NAME: &str = "http://127.0.0.1/issuer";

    pub(crate) async fn start() -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .doing("listening for the issuer")?;
        let address = listener.local_addr().doing("listening for the issuer")?;
        let public = BASE64_URL_SAFE_NO_PAD.encode(key.der_bytes());
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": KEY_ID, "x": public});
        let body = json!({"keys": [jwk]}).to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, answer));
        Ok(Self {
            token: token(&key)?,
            address,
            _serving: serving,
        })
    }

    /// The URL of its published key.
    pub(crate) fn jwks_uri(&self) -> String {
        format!("http://{}/keys", self.address)
    }
}

/// Gives every request the same answer, one request after the other.
async fn serve(listener: TcpListener, answer: String) {
    while let Ok((mut connection, _)) = listener.accept().await {
        // A client that has gone, or that sends no request, gets no answer.
        if let Ok(Ok(())) = timeout(PATIENCE, request(&mut connection)).await {
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    }
}

/// Reads a whole request without a body. Clients refuse an answer that precedes their request, and
/// a connection can be reported as readable before anything has arrived.
async fn request(connection: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while memmem::find(&head, b"\r\n\r\n").is_none() {
        if head.len() > LONGEST_HEAD || connection.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

fn token(key: &KeyPair) -> Result<String> {
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(other)?;
    let claims = json!({
        "iss": Issuer::NAME, "sub": "bench", "aud": AUDIENCE, "exp": (since_1970 + DAY).as_secs(),
        "iat": since_1970.as_secs(), "scope": "mcp:read mcp:call", "client_id": "fanlight-bench",
    });
    let header = Header {
        kid: Some(KEY_ID.to_owned()),
        ..Header::new(Algorithm::EdDSA)
    };
    encode(
        &header,
        &claims,
        &EncodingKey::from_ed_der(&key.serialize_der()),
    )
    .map_err(other)
}

/// Writes a certificate for this machine and its key to `folder`, as `cert.pem` and `key.pem`;
/// returns a connector that trusts it.
pub(crate) fn certify(folder: &Path) -> Result<TlsConnector> {
    let own = rcgen::generate_simple_self_signed([IpAddr::from(Ipv4Addr::LOCALHOST).to_string()])
        .map_err(other)?;
    for (name, text) in [
        ("cert.pem", own.cert.pem()),
        ("key.pem", own.signing_key.serialize_pem()),
    ] {
        std::fs::write(folder.join(name), text).doing("writing a certificate")?;
    }
    trusting(own.cert.der()).map_err(other)
}

fn trusting(
    certificate: &CertificateDer<'static>,
) -> std::result::Result<TlsConnector, tokio_rustls::rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn other(error: impl std::fmt::Display) -> BenchError {
    BenchError::Other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn issuer_answers_only_after_a_whole_request() {
        let issuer = Issuer::start().await.unwrap();
        let mut client = TcpStream::connect(issuer.address).await.unwrap();
        let mut answer = Vec::new();
        for part in [&b"GET /keys HTTP/1.1\r\n"[..], b"host: issuer\r\n", b"\r"] {
            client.write_all(part).await.unwrap();
            let early = timeout(Duration::from_millis(50), client.read_buf(&mut answer)).await;
            assert!(early.is_err(), "answered {early:?} after {part:?}");
        }
        client.write_all(b"\n").await.unwrap();
        client.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(KEY_ID),
            "{answer}"
        );
    }
}
