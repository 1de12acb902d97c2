//! Tokens and keys in `Authorization: Bearer …` (RFC 6750, 2.1) or `Authorization: DPoP …` (RFC
//! 9449, 7.1). Tokens are read only from this field, never from a URL or a body (2026-07-28
//! basic/authorization, Token Requirements).

use std::fmt;

use fanlight_credentials::Denial;
use fanlight_grants::oauth::TokenKind;
use fanlight_protocol::digest::sha256;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The length limit of credentials. Access tokens have a few kilobytes, and each is hashed or
/// decoded.
pub(crate) const MAX_LENGTH: usize = 16 << 10;

/// The prefix of keys from `fanlight keys new`, by which people and scanners for secrets recognise
/// them. Other bearer credentials are access tokens.
pub(crate) const KEY_PREFIX: &str = "fanlight_";

/// The credentials of one request: a `token68` (RFC 9110, 11.2) of at most [`MAX_LENGTH`] bytes,
/// otherwise unverified.
#[derive(Clone, Copy)]
pub(crate) struct Bearer<'a> {
    text: &'a str,
    scheme: TokenKind,
}

impl<'a> Bearer<'a> {
    /// The credentials in a request; `None` if it has no `Authorization`.
    ///
    /// # Errors
    ///
    /// If it has several, or one with another scheme or form.
    pub(crate) fn shown_in(headers: &'a HeaderMap) -> Result<Option<Self>, Denial> {
        let mut fields = headers.get_all(AUTHORIZATION).iter();
        let Some(field) = fields.next() else {
            return Ok(None);
        };
        if fields.next().is_some() {
            return Err(Denial::Malformed(
                "there are several Authorization headers".into(),
            ));
        }
        let is_malformed = || Denial::Malformed("the Authorization header is malformed".into());
        let field = field.to_str().map_err(|_| is_malformed())?;
        let (scheme, credentials) = field.split_once(' ').unwrap_or((field, ""));
        let known = [("bearer", TokenKind::Bearer), ("dpop", TokenKind::Dpop)];
        let known = known
            .into_iter()
            .find(|(name, _)| scheme.eq_ignore_ascii_case(name));
        // Another scheme is answered like missing credentials (RFC 6750, 3.1).
        let Some((_, scheme)) = known else {
            return Err(Denial::Missing);
        };
        let token = credentials.trim_start_matches(' ');
        if token.len() > MAX_LENGTH {
            return Err(Denial::Invalid("the token is too long".into()));
        }
        if is_token68(token) {
            Ok(Some(Self {
                text: token,
                scheme,
            }))
        } else {
            Err(is_malformed())
        }
    }

    /// Whether these are a key rather than an access token.
    pub(crate) fn is_key(self) -> bool {
        self.text.starts_with(KEY_PREFIX)
    }

    /// The scheme with which they were sent.
    pub(crate) fn scheme(self) -> TokenKind {
        self.scheme
    }

    /// The credentials themselves: a secret.
    pub(crate) fn expose(self) -> &'a str {
        self.text
    }
}

impl fmt::Debug for Bearer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

fn is_token68(text: &str) -> bool {
    let characters = text.trim_end_matches('=');
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !characters.is_empty() && characters.bytes().all(is_allowed)
}

/// The SHA-256 hash of a token and the endpoint that it was sent to: acceptance at one endpoint
/// means nothing at another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of `token` at `endpoint`.
    pub(crate) fn compute(token: &str, endpoint: &str) -> Self {
        let length = (token.len() as u64).to_be_bytes();
        Self(sha256([&length, token.as_bytes(), endpoint.as_bytes()]))
    }
}

fanlight_protocol::opaque!(TokenHash);

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn find_token(fields: &[&[u8]]) -> Result<Option<String>, Denial> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(field).unwrap());
        }
        Ok(Bearer::shown_in(&headers)?.map(|bearer| bearer.expose().to_owned()))
    }

    #[test]
    fn credentials_are_those_of_the_only_bearer_field() {
        assert_eq!(find_token(&[]), Ok(None));
        assert_eq!(
            find_token(&[b"Bearer abc.DEF-_~+/09=="]),
            Ok(Some("abc.DEF-_~+/09==".to_owned()))
        );
        assert_eq!(find_token(&[b"bEARER   x"]), Ok(Some("x".to_owned())));
        assert_eq!(find_token(&[b"dpop x"]), Ok(Some("x".to_owned())));
    }

    #[test]
    fn malformed_fields_are_refused() {
        let malformed: &[&[&[u8]]] = &[
            &[b"Bearer a", b"Bearer a"],
            &[b"Bearer a", b"Basic b"],
            &[b"Bearer"],
            &[b"Bearer "],
            &[b"Bearer =="],
            &[b"Bearer a b"],
            &[b"Bearer a,Bearer b"],
            &[b"Bearer a=b"],
            &[b"Bearer \"a\""],
            &[b"Bearer a\t"],
            &[b"Bearer \xffa"],
            &[b"\xff"],
        ];
        for fields in malformed {
            assert!(
                matches!(find_token(fields), Err(Denial::Malformed(_))),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn other_schemes_show_nothing() {
        for field in [
            "Basic YTpi",
            "DPoPx abc",
            "Bearerx abc",
            "Bearer\tabc",
            "",
            "abc",
            "Negotiate",
        ] {
            assert_eq!(
                find_token(&[field.as_bytes()]),
                Err(Denial::Missing),
                "{field:?}"
            );
        }
    }

    #[test]
    fn long_credentials_are_invalid() {
        let token = |length| format!("Bearer {}", "x".repeat(length));
        assert!(find_token(&[token(MAX_LENGTH).as_bytes()]).is_ok());
        assert!(matches!(
            find_token(&[token(MAX_LENGTH + 1).as_bytes()]),
            Err(Denial::Invalid(_))
        ));
    }

    #[test]
    fn credentials_are_not_printed() {
        let headers =
            HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer secret"))]);
        assert_eq!(format!("{:?}", Bearer::shown_in(&headers)), "Ok(Some(***))");
    }
}
