//! The challenge in a server's refusal: the credentials that it requires (RFC 6750, 3; RFC 9728,
//! 5.1; RFC 9449, 7.1).

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_auth::ChallengeRef;
use http_auth::parser::ChallengeParser;
use url::Url;

use crate::fetch::{FetchError, JSON, Requests};
use crate::oauth::scopes::Scopes;

/// The challenge of a server that requires an access token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// The URL of the server's metadata.
    pub resource_metadata: Option<Url>,
    /// The scopes that the request requires.
    pub scopes: Option<Scopes>,
    /// The error code, such as `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
    /// Whether the server requires DPoP proofs.
    pub is_dpop: bool,
}

impl Challenge {
    /// The challenge for an access token in `WWW-Authenticate` headers. A `Bearer` and a `DPoP`
    /// challenge complement each other.
    pub fn from_headers<'a>(headers: impl IntoIterator<Item = &'a HeaderValue>) -> Option<Self> {
        let texts = headers
            .into_iter()
            .filter_map(|header| header.to_str().ok());
        // The rest of a header after an error cannot be interpreted.
        let challenges = texts.flat_map(|text| ChallengeParser::new(text).map_while(Result::ok));
        challenges
            .filter_map(|challenge| Self::read(&challenge))
            .reduce(Self::or)
    }

    /// The challenge of `server` to a request without credentials; `None` if it sends none.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn fetch(requests: &Requests, server: &Url) -> Result<Option<Self>, FetchError> {
        let ping = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"ping","id":0}"#);
        let answer = requests.post(server, JSON, HeaderMap::new(), ping).await?;
        let is_refused = answer.status == StatusCode::UNAUTHORIZED;
        let challenges = answer.headers.get_all(WWW_AUTHENTICATE);
        Ok(Self::from_headers(challenges).filter(|_| is_refused))
    }

    /// Whether a token with more scopes would be accepted.
    pub fn wants_more_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// Whether the same token would be accepted with a proof that has the server's nonce (RFC 9449,
    /// 9).
    pub fn wants_nonce(&self) -> bool {
        self.error.as_deref() == Some("use_dpop_nonce")
    }

    fn read(challenge: &ChallengeRef<'_>) -> Option<Self> {
        let is_dpop = challenge.scheme.eq_ignore_ascii_case("DPoP");
        if !is_dpop && !challenge.scheme.eq_ignore_ascii_case("Bearer") {
            return None;
        }
        let parameter = |name: &str| {
            let (_, value) = challenge
                .params
                .iter()
                .find(|(found, _)| found.eq_ignore_ascii_case(name))?;
            Some(value.to_unescaped()).filter(|value| !value.is_empty())
        };
        Some(Self {
            resource_metadata: parameter("resource_metadata").and_then(|url| url.parse().ok()),
            scopes: parameter("scope").map(|scope| Scopes::read(&scope)),
            error: parameter("error"),
            is_dpop,
        })
    }

    fn or(self, other: Self) -> Self {
        Self {
            resource_metadata: self.resource_metadata.or(other.resource_metadata),
            scopes: self.scopes.or(other.scopes),
            error: self.error.or(other.error),
            is_dpop: self.is_dpop || other.is_dpop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[&'static str]) -> Option<Challenge> {
        let headers: Vec<_> = headers
            .iter()
            .map(|text| HeaderValue::from_static(text))
            .collect();
        Challenge::from_headers(&headers)
    }

    #[test]
    fn challenge_for_a_token_is_found_among_others() {
        let text = r#"Basic realm="a, \"b\"", Bearer error="insufficient_scope", scope="files:write x", resource_metadata="https://a.b/c""#;
        let challenge = read(&["Negotiate", text]).unwrap();
        assert_eq!(
            challenge.resource_metadata.as_ref().unwrap().as_str(),
            "https://a.b/c"
        );
        assert_eq!(challenge.scopes, Some(Scopes::read("files:write x")));
        assert!(challenge.wants_more_scopes() && !challenge.is_dpop);
    }

    #[test]
    fn challenges_of_both_schemes_count_as_one() {
        let challenge = read(&[
            r#"Bearer scope="a""#,
            r#"DPoP error="use_dpop_nonce", algs="ES256""#,
        ])
        .unwrap();
        let expected = Challenge {
            scopes: Some(Scopes::read("a")),
            error: Some("use_dpop_nonce".into()),
            is_dpop: true,
            resource_metadata: None,
        };
        assert_eq!(challenge, expected);
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        assert_eq!(read(&["bearer"]), Some(Challenge::default()));
        assert_eq!(
            read(&[r#"Bearer scope="", resource_metadata="no URL""#]),
            Some(Challenge::default())
        );
        for text in ["", "Basic realm=\"x\"", "=", "Bearer scope=\"x"] {
            assert_eq!(read(&[text]), None, "{text}");
        }
    }
}
