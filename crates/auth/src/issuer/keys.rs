//! An issuer's public keys: the usable ones of a JSON Web Key Set (RFC 7517).

use bytes::Bytes;
use fanlight_config::settings::Algorithm;
use fanlight_protocol::{Json, Sha256, sha256};
use jsonwebtoken::DecodingKey;
use tokio_util::sync::CancellationToken;

use crate::algorithm::KeyType;
use crate::json;

/// The accepted sizes of an RSA modulus in bits. Smaller ones are unsafe (RFC 7518, 3.3), larger
/// ones slow.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A public key that signatures can be verified with.
pub(crate) struct Key {
    id: Option<String>,
    key_type: KeyType,
    /// The only algorithm that the key is for, if stated.
    algorithm: Option<Algorithm>,
    verifying: DecodingKey,
    /// The hash of the key's numbers.
    hash: Sha256,
    /// Cancelled when the issuer no longer publishes it.
    pub(crate) revoked: CancellationToken,
}

impl Key {
    /// The key in the library's form.
    pub(crate) fn verifying(&self) -> &DecodingKey {
        &self.verifying
    }

    /// Whether both are the same key.
    fn is_same(&self, other: &Self) -> bool {
        let of = |key: &Self| (key.key_type, key.algorithm, key.hash);
        self.id == other.id && of(self) == of(other)
    }

    /// Whether the key can verify signatures of `algorithm`.
    pub(crate) fn is_for(&self, algorithm: Algorithm) -> bool {
        self.key_type == KeyType::for_algorithm(algorithm)
            && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Reads a key; `None` if it cannot verify tokens. Such keys are ignored (RFC 7517, 5).
    pub(crate) fn read(jwk: &Json) -> Option<Self> {
        let says = |name: &str| jwk.peek(name).is_some();
        // A published private key proves nothing.
        if says("d") || (says("use") && !jwk.says("use", "sig")) {
            return None;
        }
        if let Some(operations) = jwk.get("key_ops")
            && !json::texts(&operations)?
                .iter()
                .any(|operation| operation == "verify")
        {
            return None;
        }
        let algorithm = if says("alg") {
            Some(Algorithm::from_name(&jwk.text_at("alg")?)?)
        } else {
            None
        };
        let number = |name: &str| json::base64url(&jwk.text_at(name)?);
        let curve = jwk.text_at("crv");
        let kind = jwk.text_at("kty")?;
        let (one, other) = match kind.as_str() {
            "RSA" => (number("n")?, number("e")?),
            "EC" => (number("x")?, number("y")?),
            "OKP" => (number("x")?, Vec::new()),
            _ => return None,
        };
        let (key_type, verifying) = match (kind.as_str(), curve.as_deref()) {
            ("RSA", _) => (KeyType::Rsa, rsa(&one, &other)?),
            ("EC", Some("P-256")) => (KeyType::P256, point(&one, &other, 32)?),
            ("EC", Some("P-384")) => (KeyType::P384, point(&one, &other, 48)?),
            ("OKP", Some("Ed25519")) if one.len() == 32 => {
                (KeyType::Ed25519, DecodingKey::from_ed_der(&one))
            }
            _ => return None,
        };
        let id = if says("kid") {
            Some(jwk.text_at("kid")?)
        } else {
            None
        };
        let (hash, revoked) = (hash(&one, &other), CancellationToken::new());
        let key = Self {
            id,
            key_type,
            algorithm,
            verifying,
            hash,
            revoked,
        };
        key.algorithm
            .is_none_or(|only| KeyType::for_algorithm(only) == key_type)
            .then_some(key)
    }
}

fn hash(one: &[u8], other: &[u8]) -> Sha256 {
    sha256([&(one.len() as u64).to_be_bytes(), one, other])
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<DecodingKey> {
    let significant = modulus
        .iter()
        .position(|byte| *byte != 0)
        .map_or(&[][..], |start| &modulus[start..]);
    let leading = significant.first().map_or(0, |byte| byte.leading_zeros());
    let bits = significant.len() * 8 - usize::try_from(leading).unwrap_or_default();
    // Longer exponents make verification slow, and no issuer uses them.
    let is_usual = RSA_BITS.contains(&bits) && !exponent.is_empty() && exponent.len() <= 4;
    is_usual.then(|| DecodingKey::from_rsa_raw_components(significant, exponent))
}

/// An uncompressed point (SEC 1, 2.3.3). Each verification checks whether it is on the curve.
fn point(x: &[u8], y: &[u8], length: usize) -> Option<DecodingKey> {
    (x.len() == length && y.len() == length)
        .then(|| DecodingKey::from_ec_der(&[&[4], x, y].concat()))
}

fanlight_protocol::opaque!(Key);

/// The reason why a document is no usable key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoKeySet {
    #[error("it is no key set")]
    Malformed,
    #[error("it has more than {0} keys")]
    TooManyKeys(usize),
    #[error("it has no usable key")]
    NoKeys,
}

/// The usable keys of an issuer; at least one.
#[derive(Debug)]
pub(crate) struct KeySet(Vec<Key>);

impl KeySet {
    /// Reads a key set.
    ///
    /// # Errors
    ///
    /// If it is not one, has more than `max` keys, or no usable one.
    pub(crate) fn read(text: Bytes, max: usize) -> Result<Self, NoKeySet> {
        let set = json::object(text).ok_or(NoKeySet::Malformed)?;
        let keys = set.get("keys").ok_or(NoKeySet::Malformed)?;
        if keys.elements().count() > max {
            return Err(NoKeySet::TooManyKeys(max));
        }
        let usable: Vec<Key> = keys
            .elements()
            .filter_map(|element| Key::read(&keys.slice(element)))
            .collect();
        if usable.is_empty() {
            Err(NoKeySet::NoKeys)
        } else {
            Ok(Self(usable))
        }
    }

    /// Takes over the revocation state of keys that `before` has, too, so that tokens verified with
    /// them stay valid. Revoking `issuer` revokes all keys.
    pub(crate) fn inherit_revocation(
        mut self,
        before: Option<&Self>,
        issuer: &CancellationToken,
    ) -> Self {
        for key in &mut self.0 {
            let known = before.and_then(|before| before.0.iter().find(|known| known.is_same(key)));
            key.revoked = known.map_or_else(|| issuer.child_token(), |known| known.revoked.clone());
        }
        self
    }

    /// Revokes identities verified with keys that `next` lacks.
    pub(crate) fn revoke_except(&self, next: &Self) {
        let is_gone = |key: &&Key| !next.0.iter().any(|other| other.is_same(key));
        self.0
            .iter()
            .filter(is_gone)
            .for_each(|key| key.revoked.cancel());
    }

    /// The key with this id for `algorithm`. Without an id, or if several keys have it, the key
    /// must be the only one for the algorithm.
    pub(crate) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut suitable = self
            .0
            .iter()
            .filter(|key| key.is_for(algorithm) && (id.is_none() || key.id.as_deref() == id));
        let key = suitable.next()?;
        suitable.next().is_none().then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn number(length: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![0xc1; length])
    }

    fn usable(members: &str) -> bool {
        KeySet::read(format!(r#"{{"keys":[{{{members}}}]}}"#).into(), 10).is_ok()
    }

    fn rsa_key(bits: usize) -> String {
        format!(r#""kty":"RSA","e":"AQAB","n":"{}""#, number(bits / 8))
    }

    fn ec_key(curve: &str, x: usize, y: usize) -> String {
        format!(
            r#""kty":"EC","crv":"{curve}","x":"{}","y":"{}""#,
            number(x),
            number(y)
        )
    }

    #[test]
    fn keys_of_safe_types_are_usable() {
        for key in [
            rsa_key(2048),
            rsa_key(8192),
            ec_key("P-256", 32, 32),
            ec_key("P-384", 48, 48),
        ] {
            assert!(usable(&key), "{key}");
            assert!(
                usable(&format!(
                    r#"{key},"use":"sig","key_ops":["verify"],"kid":"a","x5c":[]"#
                )),
                "{key}"
            );
        }
        assert!(usable(&format!(
            r#""kty":"OKP","crv":"Ed25519","alg":"EdDSA","x":"{}""#,
            number(32)
        )));
    }

    #[test]
    fn other_keys_are_not_used() {
        let long_exponent = format!(r#""kty":"RSA","e":"{}","n":"{}""#, number(5), number(256));
        let leading_zeros = format!(r#""kty":"RSA","e":"AQAB","n":"AAAA{}""#, number(252));
        let good = ec_key("P-256", 32, 32);
        let others = [
            rsa_key(1024),
            rsa_key(2040),
            rsa_key(8200),
            long_exponent,
            leading_zeros,
            ec_key("P-256", 31, 32),
            ec_key("P-256", 48, 48),
            ec_key("P-521", 66, 66),
            ec_key("secp256k1", 32, 32),
            format!(r#""kty":"OKP","crv":"Ed448","x":"{}""#, number(57)),
            format!(r#""kty":"OKP","crv":"Ed25519","x":"{}""#, number(31)),
            format!(r#""kty":"oct","k":"{}""#, number(32)),
            String::new(),
            format!(r#"{good},"d":"{}""#, number(32)),
            format!(r#"{good},"use":"enc""#),
            format!(r#"{good},"use":1"#),
            format!(r#"{good},"key_ops":["encrypt"]"#),
            format!(r#"{good},"key_ops":[]"#),
            format!(r#"{good},"alg":"RS256""#),
            format!(r#"{good},"alg":"ES384""#),
            format!(r#"{good},"alg":"HS256""#),
            format!(r#"{good},"alg":"ECDH-ES""#),
            format!(r#"{good},"kid":1"#),
        ];
        for key in others {
            assert!(!usable(&key), "{key}");
        }
    }

    #[test]
    fn key_sets_that_are_malformed_or_long_are_refused() {
        let key = format!("{{{}}}", ec_key("P-256", 32, 32));
        let many = [key.as_str(); 11].join(",");
        let refused = [
            ("[]".to_owned(), NoKeySet::Malformed),
            ("{}".to_owned(), NoKeySet::Malformed),
            (r#"{"keys":{}}"#.to_owned(), NoKeySet::NoKeys),
            (r#"{"keys":[]}"#.to_owned(), NoKeySet::NoKeys),
            (
                format!(r#"{{"keys":[],"keys":[{key}]}}"#),
                NoKeySet::Malformed,
            ),
            (format!(r#"{{"keys":[{many}]}}"#), NoKeySet::TooManyKeys(10)),
        ];
        for (text, error) in refused {
            assert_eq!(
                KeySet::read(text.clone().into(), 10).unwrap_err(),
                error,
                "{text}"
            );
        }
        assert!(KeySet::read(format!(r#"{{"keys":[1,null,"x",[],{key}]}}"#).into(), 10).is_ok());
    }

    #[test]
    fn key_is_found_by_identifier_and_type_where_that_is_clear() {
        let (ec, rsa) = (ec_key("P-256", 32, 32), rsa_key(2048));
        let keys = [
            format!(r#"{{{ec},"kid":"a"}}"#),
            format!(r#"{{{rsa},"kid":"a"}}"#),
            format!(r#"{{{rsa},"kid":"b","alg":"PS256"}}"#),
            format!(r#"{{{rsa},"kid":"c"}}"#),
            format!(r#"{{{rsa},"kid":"c"}}"#),
        ];
        let set = KeySet::read(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).into(), 10).unwrap();
        let finds = |id, algorithm| set.find(id, algorithm).is_some();
        assert!(finds(Some("a"), Algorithm::Es256) && finds(Some("a"), Algorithm::Rs256));
        assert!(finds(Some("b"), Algorithm::Ps256) && !finds(Some("b"), Algorithm::Rs256));
        assert!(!finds(Some("a"), Algorithm::Es384) && !finds(Some("a"), Algorithm::EdDsa));
        assert!(!finds(Some("c"), Algorithm::Rs256) && !finds(Some("d"), Algorithm::Es256));
        assert!(
            finds(None, Algorithm::Es256)
                && !finds(None, Algorithm::Rs256)
                && !finds(Some(""), Algorithm::Es256)
        );
    }
}
