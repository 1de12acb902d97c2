//! A strict parser of JSON Web Tokens (RFC 7515, 7519; best practices of RFC 8725), used before a
//! library sees them.

use fanlight_credentials::Denial;
use fanlight_protocol::Json;
use jsonwebtoken::crypto;

use fanlight_config::settings::Algorithm;

use crate::algorithm::library_algorithm;
use crate::issuer::Key;
use crate::json;

/// Header parameters that supply the token's own keys, or change how the rest is interpreted. They
/// are refused with any value: keys come only from issuers.
const REFUSED: [&str; 8] = [JWK, "crit", "b64", "zip", "enc", "jku", "x5c", "x5u"];

/// The header parameter with the public key of a DPoP proof.
const JWK: &str = "jwk";

/// The type of DPoP proofs (RFC 9449, 4.2).
const PROOF: &str = "dpop+jwt";

/// The accepted types of tokens (RFC 9068, 2.1; RFC 8725, 3.11), without `application/`. Others,
/// such as `logout+jwt`, are signed with the same keys for other purposes.
const TYPES: [&str; 2] = ["jwt", "at+jwt"];

/// The length limit of a key's id.
const MAX_KEY_ID: usize = 1024;

/// A text in three parts that claims to be a JSON Web Token. Nothing in it is verified.
#[derive(Clone, Debug)]
pub(crate) struct Jwt<'a> {
    /// The signed part.
    message: &'a str,
    header: Json,
    /// The unverified claims.
    pub(crate) claims: Json,
    signature: &'a str,
}

/// The header's data about the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) algorithm: Algorithm,
    /// The key's id.
    pub(crate) key: Option<String>,
}

impl<'a> Jwt<'a> {
    /// Reads a token; `None` if it has another form: fewer than three parts, or a first part that
    /// is not a JSON object.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub(crate) fn read(token: &'a str) -> Result<Option<Self>, Denial> {
        let Some((message, signature)) = token.rsplit_once('.') else {
            return Ok(None);
        };
        let Some((header, claims)) = message.split_once('.') else {
            return Ok(None);
        };
        let Some(header) = json::base64url(header)
            .filter(|header| !claims.contains('.') && header.starts_with(b"{"))
        else {
            return Ok(None);
        };
        let header = json::object(header).ok_or_else(malformed_token)?;
        let claims = json::base64url(claims)
            .and_then(json::object)
            .ok_or_else(malformed_token)?;
        Ok(Some(Self {
            message,
            header,
            claims,
            signature,
        }))
    }

    /// The header's data about the signature.
    ///
    /// # Errors
    ///
    /// If it is not the header of an access token whose signature can be verified.
    pub(crate) fn header(&self) -> Result<Header, Denial> {
        let header = &self.header;
        if let Some(name) = self.refused_parameter(|_| true) {
            return Err(Denial::Invalid(
                format!("tokens with the header parameter {name} are not accepted").into(),
            ));
        }
        let is_accepted = |kind: String| {
            let kind = kind.to_ascii_lowercase();
            TYPES.contains(&kind.strip_prefix("application/").unwrap_or(&kind))
        };
        if header.peek("typ").is_some() && !header.text_at("typ").is_some_and(is_accepted) {
            return Err(Denial::Invalid("the token is not an access token".into()));
        }
        let algorithm = self
            .algorithm()
            .ok_or_else(|| Denial::Invalid("the token's algorithm is not accepted".into()))?;
        let key = header.text_at("kid");
        if header.peek("kid").is_some() && key.as_ref().is_none_or(|key| key.len() > MAX_KEY_ID) {
            return Err(malformed_token());
        }
        Ok(Header { algorithm, key })
    }

    /// The algorithm and the public key of a DPoP proof; `None` if its signature cannot be verified
    /// (RFC 9449, 4.2).
    pub(crate) fn proof_header(&self) -> Option<(Algorithm, Json)> {
        let is_proof = self.header.says("typ", PROOF);
        let is_plain = self.refused_parameter(|name| name != JWK).is_none();
        let key = self
            .header
            .get(JWK)
            .filter(|key| is_proof && is_plain && key.is_object())?;
        Some((self.algorithm()?, key))
    }

    fn algorithm(&self) -> Option<Algorithm> {
        self.header
            .text_at("alg")
            .and_then(|name| Algorithm::from_name(&name))
    }

    /// A refused header parameter, among those that `is_meant`.
    fn refused_parameter(&self, is_meant: impl Fn(&str) -> bool) -> Option<&'static str> {
        REFUSED
            .into_iter()
            .find(|name| is_meant(name) && self.header.peek(name).is_some())
    }

    /// Whether `key` has signed the token with `algorithm`, which must suit the key's type.
    pub(crate) fn is_signed_by(&self, key: &Key, algorithm: Algorithm) -> bool {
        json::base64url(self.signature).is_some()
            && crypto::verify(
                self.signature,
                self.message.as_bytes(),
                key.verifying(),
                library_algorithm(algorithm),
            )
            .is_ok_and(|is_valid| is_valid)
    }
}

fn malformed_token() -> Denial {
    Denial::Invalid("the token is malformed".into())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn encoded(header: &str, claims: &str) -> String {
        format!(
            "{}.{}.c2ln",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        )
    }

    fn header(text: &str) -> Result<Header, Denial> {
        let token = encoded(text, "{}");
        Jwt::read(&token)?.expect("a JWT").header()
    }

    #[test]
    fn tokens_of_other_forms_are_not_read() {
        let object = URL_SAFE_NO_PAD.encode("{}");
        let others = [
            "opaque".to_owned(),
            "a.b".to_owned(),
            "a.b.c".to_owned(),
            format!("{object}.{object}"),
            format!("{object}.{object}.{object}.{object}"),
            format!("{object}.a.b.c.d"),
            format!("{object}=.{object}.{object}"),
            ".e30.".to_owned(),
        ];
        for token in others {
            assert!(Jwt::read(&token).unwrap().is_none(), "{token}");
        }
    }

    #[test]
    fn malformed_tokens_are_invalid() {
        let object = URL_SAFE_NO_PAD.encode("{}");
        let malformed = [
            encoded(r#"{"alg":"ES256","alg":"ES256"}"#, "{}"),
            encoded("{}", r#"{"iss":"a","iss":"b"}"#),
            encoded("{}", r#"{"x":{"a":1,"a":2}}"#),
            encoded("{}", "[]"),
            encoded("{}", ""),
            encoded("{", "{}"),
            format!("{object}.{object}=.x"),
            format!("{object}..x"),
            format!("{object}.e31.x"),
        ];
        for token in malformed {
            assert!(
                matches!(Jwt::read(&token), Err(Denial::Invalid(_))),
                "{token}"
            );
        }
    }

    #[test]
    fn header_names_algorithm_and_key() {
        let read = header(r#"{"alg":"ES256","kid":"a","typ":"at+JWT","x5t":"ignored"}"#).unwrap();
        assert_eq!(
            read,
            Header {
                algorithm: Algorithm::Es256,
                key: Some("a".to_owned())
            }
        );
        for kind in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
            assert!(
                header(&format!(r#"{{"alg":"RS256","typ":"{kind}"}}"#)).is_ok(),
                "{kind}"
            );
        }
        assert_eq!(
            header(r#"{"alg":"Ed25519"}"#).unwrap(),
            Header {
                algorithm: Algorithm::EdDsa,
                key: None
            }
        );
    }

    #[test]
    fn headers_of_attackers_are_refused() {
        let refused = [
            r#"{}"#,
            r#"{"alg":"none"}"#,
            r#"{"alg":"None"}"#,
            r#"{"alg":""}"#,
            r#"{"alg":"HS256"}"#,
            r#"{"alg":"es256"}"#,
            r#"{"alg":"ES512"}"#,
            r#"{"alg":"ES256K"}"#,
            r#"{"alg":["ES256"]}"#,
            r#"{"alg":null}"#,
            r#"{"alg":"ES256","crit":[]}"#,
            r#"{"alg":"ES256","crit":["exp"],"exp":1}"#,
            r#"{"alg":"ES256","b64":false}"#,
            r#"{"alg":"ES256","zip":"DEF"}"#,
            r#"{"alg":"ES256","enc":"A128GCM"}"#,
            r#"{"alg":"ES256","jku":"https://evil.example/keys"}"#,
            r#"{"alg":"ES256","x5u":"https://evil.example/keys"}"#,
            r#"{"alg":"ES256","jwk":{}}"#,
            r#"{"alg":"ES256","\u006awk":null}"#,
            r#"{"alg":"ES256","x5c":[]}"#,
            r#"{"alg":"ES256","typ":"logout+jwt"}"#,
            r#"{"alg":"ES256","typ":"secevent+jwt"}"#,
            r#"{"alg":"ES256","typ":"dpop+jwt"}"#,
            r#"{"alg":"ES256","typ":"id_token"}"#,
            r#"{"alg":"ES256","typ":null}"#,
            r#"{"alg":"ES256","typ":["JWT"]}"#,
            r#"{"alg":"ES256","kid":1}"#,
            r#"{"alg":"ES256","kid":null}"#,
            r#"{"alg":"ES256","kid":"\ud800"}"#,
        ];
        for text in refused {
            assert!(matches!(header(text), Err(Denial::Invalid(_))), "{text}");
        }
        assert!(
            header(&format!(
                r#"{{"alg":"ES256","kid":"{}"}}"#,
                "k".repeat(1025)
            ))
            .is_err()
        );
    }
}
