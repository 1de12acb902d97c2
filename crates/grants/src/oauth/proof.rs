//! DPoP proofs of possession: a token bound to a key is useless to somebody who has only the token
//! (RFC 9449).

use std::sync::Arc;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fanlight_config::settings::Secret;
use fanlight_protocol::{epoch, sha256};
use http::{HeaderName, HeaderValue, Method};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::oauth::signing_key::sign;
use crate::oauth::{OAuthError, random};

/// The header field with a proof.
pub const PROOF: HeaderName = HeaderName::from_static("dpop");

/// The header field with the nonce for the next proof (RFC 9449, 8).
pub const PROOF_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// The key that a grant's tokens are bound to. Store it sealed, with the tokens.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProofKey(Arc<Pair>);

struct Pair {
    private: EncodingKey,
    public: Jwk,
}

/// The message that credentials are for.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The HTTP method.
    pub method: &'a Method,
    /// The URL.
    pub url: &'a Url,
}

/// The claims of a proof (RFC 9449, 4.2).
#[derive(Serialize)]
struct Claims<'a> {
    jti: String,
    htm: &'a str,
    htu: &'a str,
    iat: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ath: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
}

impl ProofKey {
    /// A new key.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self, OAuthError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
            .map_err(|_| OAuthError::NoRandomness)?;
        let private = pair.to_pkcs8v1().map_err(|_| OAuthError::NoRandomness)?;
        Self::from_pkcs8(private.as_ref())
    }

    fn from_pkcs8(private: &[u8]) -> Result<Self, OAuthError> {
        let private = EncodingKey::from_ec_der(private);
        let public = Jwk::from_encoding_key(&private, Algorithm::ES256);
        let mut public = public
            .map_err(|error| OAuthError::Key(format!("a proof key cannot be used: {error}")))?;
        public.common = Default::default();
        Ok(Self(Arc::new(Pair { private, public })))
    }

    /// A proof for one request. If the request contains `token`, the proof is bound to it.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn prove(
        &self,
        message: Message<'_>,
        nonce: Option<&str>,
        token: Option<&Secret>,
    ) -> Result<HeaderValue, OAuthError> {
        let mut url = message.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        let claims = Claims {
            jti: random::text()?,
            htm: message.method.as_str(),
            htu: url.as_str(),
            iat: epoch::seconds(),
            ath: token.map(|token| URL_SAFE_NO_PAD.encode(sha256([token.expose()]))),
            nonce,
        };
        let header = Header {
            typ: Some("dpop+jwt".to_owned()),
            jwk: Some(self.0.public.clone()),
            ..Header::new(Algorithm::ES256)
        };
        let proof = sign(&header, &claims, &self.0.private)?;
        HeaderValue::try_from(proof.expose()).map_err(|_| {
            OAuthError::Key("a proof has characters that a header cannot contain".to_owned())
        })
    }
}

fanlight_protocol::opaque!(ProofKey);

impl TryFrom<String> for ProofKey {
    type Error = OAuthError;

    fn try_from(text: String) -> Result<Self, OAuthError> {
        let private = STANDARD
            .decode(text)
            .map_err(|_| OAuthError::Key("a proof key is not base64".to_owned()))?;
        Self::from_pkcs8(&private)
    }
}

impl From<ProofKey> for String {
    fn from(key: ProofKey) -> Self {
        STANDARD.encode(key.0.private.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, Validation, decode};
    use serde_json::Value;

    use super::*;

    #[test]
    fn proof_is_of_one_request_and_one_token() {
        let key = ProofKey::try_from(String::from(ProofKey::generate().unwrap())).unwrap();
        let url: Url = "https://a.b/mcp?x=1".parse().unwrap();
        let message = Message {
            method: &Method::POST,
            url: &url,
        };
        let proof = key.prove(message, Some("n"), Some(&Secret::new("token")));
        let proof = proof.unwrap();
        let header = jsonwebtoken::decode_header(proof.to_str().unwrap()).unwrap();
        assert_eq!(header.typ.as_deref(), Some("dpop+jwt"));
        let jwk = header.jwk.unwrap();
        let text = serde_json::to_string(&jwk).unwrap();
        assert!(
            !text.contains("\"d\"") && !text.contains("\"alg\""),
            "{text}"
        );
        let mut validation = Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        let claims = decode::<Value>(
            proof.as_bytes(),
            &DecodingKey::from_jwk(&jwk).unwrap(),
            &validation,
        )
        .unwrap()
        .claims;
        let expected = URL_SAFE_NO_PAD.encode(sha256([b"token"]));
        assert_eq!(
            (&claims["htm"], &claims["htu"]),
            (&"POST".into(), &"https://a.b/mcp".into())
        );
        assert_eq!(
            (&claims["ath"], &claims["nonce"]),
            (&expected.into(), &"n".into())
        );
        let again = key.prove(message, Some("n"), None).unwrap();
        assert_ne!(proof, again);
        assert_eq!(format!("{key:?}"), "ProofKey(***)");
    }
}
