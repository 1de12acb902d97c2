//! An issuer's key, which signs tokens with any header and claims.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaPublicKeyComponents,
};
use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};

/// An issuer's key.
pub struct SigningKey {
    id: String,
    pair: Pair,
}

enum Pair {
    Rsa(rsa::KeyPair),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// A key for RS256 and PS256.
    pub fn rs256(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            pair: Pair::Rsa(rsa::KeyPair::generate(KeySize::Rsa2048).unwrap()),
        }
    }

    /// A key for ES256.
    pub fn es256(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            pair: Pair::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()),
        }
    }

    /// A key for ES384.
    pub fn es384(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            pair: Pair::P384(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap()),
        }
    }

    /// A key for EdDSA.
    pub fn eddsa(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            pair: Pair::Ed25519(Ed25519KeyPair::generate().unwrap()),
        }
    }

    /// Its identifier.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The algorithm of its signatures, unless the header names another.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    /// Its public half.
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({ "kty": "RSA", "n": base64url(&public.n), "e": base64url(&public.e) })
            }
            Pair::P256(pair) | Pair::P384(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..]
                    .split_at((pair.public_key().as_ref().len() - 1) / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({ "kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y) })
            }
            Pair::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(pair.public_key().as_ref()) })
            }
        };
        jwk["kid"] = json!(self.id);
        jwk["use"] = json!("sig");
        jwk
    }

    /// The thumbprint of its public half (RFC 7638).
    pub fn thumbprint(&self) -> String {
        let jwk = self.jwk();
        let required = ["crv", "e", "kty", "n", "x", "y"]
            .into_iter()
            .filter(|name| jwk.get(*name).is_some());
        let members: Vec<_> = required
            .map(|name| format!("\"{name}\":{}", jwk[name]))
            .collect();
        sha256(&format!("{{{}}}", members.join(",")))
    }

    /// The header of a proof of possession of this key (RFC 9449, 4.2).
    pub fn proof_header(&self) -> Value {
        let mut jwk = self.jwk();
        let members = jwk.as_object_mut();
        members
            .into_iter()
            .for_each(|members| members.retain(|name, _| !["kid", "use"].contains(&name.as_str())));
        json!({"typ": "dpop+jwt", "alg": self.algorithm(), "jwk": jwk})
    }

    /// The claims of a proof of possession for one request with this token, made now.
    pub fn proof_claims(method: &str, url: &str, token: &str) -> Value {
        let id = format!("{:032x}", fastrand::u128(..));
        json!({"jti": id, "htm": method, "htu": url, "iat": super::seconds_from_now(0), "ath": sha256(token)})
    }

    /// A token with this header and these claims.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// A token with these texts as header and claims; only the signature is sure to be right.
    pub fn sign_text(&self, header: &str, claims: &str) -> String {
        let message = format!(
            "{}.{}",
            base64url(header.as_bytes()),
            base64url(claims.as_bytes())
        );
        let signature = self.signature(message.as_bytes(), header.contains("\"PS256\""));
        format!("{message}.{}", base64url(&signature))
    }

    /// The signature of `message`; RSA keys use PSS if `is_pss`.
    pub fn signature(&self, message: &[u8], is_pss: bool) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let encoding = if is_pss {
                    &RSA_PSS_SHA256
                } else {
                    &RSA_PKCS1_SHA256
                };
                pair.sign(encoding, &random, message, &mut signature)
                    .unwrap();
                signature
            }
            Pair::P256(pair) | Pair::P384(pair) => {
                pair.sign(&random, message).unwrap().as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

/// The SHA-256 hash of a text, in base64url.
pub fn sha256(text: &str) -> String {
    base64url(digest(&SHA256, text.as_bytes()).as_ref())
}

/// Base64url without padding.
pub fn base64url(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}
