//! The key with which a client signs assertions that identify it (RFC 7523).

use std::sync::Arc;
use std::time::Duration;

use fanlight_config::settings::Secret;
use fanlight_protocol::epoch;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

use crate::oauth::{OAuthError, random};

/// The lifetime of an assertion, which is sent at once.
const LIFETIME: Duration = Duration::from_secs(60);

const UNUSABLE: &str = "it is not a private key in PEM form (RSA, P-256, P-384 or Ed25519); \
                        elliptic-curve keys must be in PKCS #8 (convert them with `openssl pkcs8 \
                        -topk8 -nocrypt`)";

/// A client's private key. `Debug` shows only its algorithm.
#[derive(Clone)]
pub struct SigningKey {
    key: Arc<EncodingKey>,
    algorithm: Algorithm,
}

fanlight_protocol::opaque!(SigningKey);

/// The claims of an assertion that authenticates a client (RFC 7523, 3).
#[derive(Serialize)]
struct ClientClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    /// The issuer instead of an endpoint (RFC 7523bis), so that an assertion cannot be reused at
    /// another endpoint.
    aud: &'a str,
    jti: String,
    iat: u64,
    exp: u64,
}

impl SigningKey {
    /// Reads a private key in PEM: RSA, P-256, P-384 or Ed25519.
    ///
    /// # Errors
    ///
    /// If it is not such a key. The text reveals nothing about it.
    pub fn from_pem(pem: &Secret) -> Result<Self, OAuthError> {
        let text = pem.expose().as_bytes();
        let candidates = [
            (EncodingKey::from_ec_pem(text), Algorithm::ES256),
            (EncodingKey::from_ec_pem(text), Algorithm::ES384),
            (EncodingKey::from_ed_pem(text), Algorithm::EdDSA),
            (EncodingKey::from_rsa_pem(text), Algorithm::RS256),
        ];
        let of = |(key, algorithm): (jsonwebtoken::errors::Result<EncodingKey>, _)| {
            Some((key.ok()?, algorithm))
        };
        let usable =
            |(key, algorithm): &(EncodingKey, _)| Jwk::from_encoding_key(key, *algorithm).is_ok();
        match candidates.into_iter().filter_map(of).find(usable) {
            Some((key, algorithm)) => Ok(Self {
                key: Arc::new(key),
                algorithm,
            }),
            None => Err(OAuthError::Key(UNUSABLE.to_owned())),
        }
    }

    /// The public key in the form of a JWK set (RFC 7517).
    ///
    /// # Errors
    ///
    /// If it cannot be computed.
    pub fn public(&self) -> Result<Jwk, OAuthError> {
        Jwk::from_encoding_key(&self.key, self.algorithm)
            .map_err(|error| OAuthError::Key(format!("the key cannot be used: {error}")))
    }

    /// The name of its algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self.algorithm {
            Algorithm::ES256 => "ES256",
            Algorithm::ES384 => "ES384",
            Algorithm::EdDSA => "EdDSA",
            _ => "RS256",
        }
    }

    /// An assertion that the key's holder is `client_id`, for the authorization server `issuer`.
    pub(crate) fn client_assertion(
        &self,
        client_id: &str,
        issuer: &str,
    ) -> Result<Secret, OAuthError> {
        let now = epoch::seconds();
        let exp = now + LIFETIME.as_secs();
        let claims = ClientClaims {
            iss: client_id,
            sub: client_id,
            aud: issuer,
            jti: random::text()?,
            iat: now,
            exp,
        };
        sign(&Header::new(self.algorithm), &claims, &self.key)
    }
}

pub(crate) fn sign(
    header: &Header,
    claims: &impl Serialize,
    key: &EncodingKey,
) -> Result<Secret, OAuthError> {
    let signed = jsonwebtoken::encode(header, claims, key);
    signed
        .map(Secret::new)
        .map_err(|error| OAuthError::Key(format!("the key cannot be used: {error}")))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use jsonwebtoken::{DecodingKey, Validation, decode};
    use serde_json::Value;

    use super::*;

    #[test]
    fn assertion_is_for_the_issuer_and_of_the_client() {
        let pem = |kind| rcgen::KeyPair::generate_for(kind).unwrap().serialize_pem();
        // The form of RFC 8410, 7, that other programs write, with 32 bytes of key.
        let ed25519 = STANDARD.encode(
            [
                b"\x30\x2e\x02\x01\0\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20",
                &[7; 32][..],
            ]
            .concat(),
        );
        let keys = [
            (pem(&rcgen::PKCS_ECDSA_P256_SHA256), "ES256"),
            (pem(&rcgen::PKCS_ECDSA_P384_SHA384), "ES384"),
            (pem(&rcgen::PKCS_RSA_SHA256), "RS256"),
            (
                format!("-----BEGIN PRIVATE KEY-----\n{ed25519}\n-----END PRIVATE KEY-----\n"),
                "EdDSA",
            ),
        ];
        for (pem, algorithm) in keys {
            let key = SigningKey::from_pem(&Secret::new(pem)).unwrap();
            assert_eq!(key.algorithm(), algorithm);
            let assertion = key
                .client_assertion("client", "https://id.example.com")
                .unwrap();
            let mut validation = Validation::new(key.algorithm);
            validation.set_audience(&["https://id.example.com"]);
            let public = DecodingKey::from_jwk(&key.public().unwrap()).unwrap();
            let token = decode::<Value>(assertion.expose(), &public, &validation).unwrap();
            assert_eq!(
                (&token.claims["iss"], &token.claims["sub"]),
                (&"client".into(), &"client".into())
            );
            assert_eq!(
                token.claims["exp"].as_u64(),
                token.claims["iat"].as_u64().map(|at| at + 60)
            );
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        for text in [
            "",
            "secret",
            "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
        ] {
            let error = SigningKey::from_pem(&Secret::new(text))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("PKCS #8") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
