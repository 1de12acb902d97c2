//! What clients need to be served: a token, or TLS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::{BenchError, Doing, Result};

/// What the tokens are for.
pub(crate) const AUDIENCE: &str = "fanlight-bench";
/// How long the token is valid.
const DAY: Duration = Duration::from_secs(24 * 3600);
const KEY_ID: &str = "bench";

/// How a client gets access to a system.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// The token that its requests carry.
    pub(crate) token: Option<String>,
    /// What its connections are secured by.
    pub(crate) tls: Option<TlsConnector>,
}

/// An issuer with one token and one key, which it publishes at [`Issuer::jwks_uri`] until it is dropped.
pub(crate) struct Issuer {
    pub(crate) token: String,
    address: SocketAddr,
    _serving: JoinSet<()>,
}

impl Issuer {
    /// The `iss` of its tokens, under which nothing is published.
    pub(crate) const NAME: &str = "http://127.0.0.1/issuer";

    pub(crate) async fn start() -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.doing("listening for the issuer")?;
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
        Ok(Self { token: token(&key)?, address, _serving: serving })
    }

    /// Where its key is published.
    pub(crate) fn jwks_uri(&self) -> String {
        format!("http://{}/keys", self.address)
    }
}

/// Gives every request the same answer, one after the other.
async fn serve(listener: TcpListener, answer: String) {
    while let Ok((mut connection, _)) = listener.accept().await {
        // A head this small arrives at once; a client that has gone gets nothing.
        let _ = connection.readable().await;
        let _ = connection.try_read(&mut [0; 4096]);
        let _ = connection.write_all(answer.as_bytes()).await;
    }
}

fn token(key: &KeyPair) -> Result<String> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(other)?;
    let claims = json!({
        "iss": Issuer::NAME, "sub": "bench", "aud": AUDIENCE, "exp": (since_1970 + DAY).as_secs(),
        "iat": since_1970.as_secs(), "scope": "mcp:read mcp:call", "client_id": "fanlight-bench",
    });
    let header = Header { kid: Some(KEY_ID.to_owned()), ..Header::new(Algorithm::EdDSA) };
    encode(&header, &claims, &EncodingKey::from_ed_der(&key.serialize_der())).map_err(other)
}

/// Writes a certificate for this machine and its key to `folder`, as `cert.pem` and `key.pem`; what trusts it.
pub(crate) fn certify(folder: &Path) -> Result<TlsConnector> {
    let own = rcgen::generate_simple_self_signed([IpAddr::from(Ipv4Addr::LOCALHOST).to_string()]).map_err(other)?;
    for (name, text) in [("cert.pem", own.cert.pem()), ("key.pem", own.signing_key.serialize_pem())] {
        std::fs::write(folder.join(name), text).doing("writing a certificate")?;
    }
    trusting(own.cert.der()).map_err(other)
}

fn trusting(certificate: &CertificateDer<'static>) -> std::result::Result<TlsConnector, tokio_rustls::rustls::Error> {
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
