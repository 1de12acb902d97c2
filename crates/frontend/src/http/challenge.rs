//! `WWW-Authenticate`: tells a client which credentials a request needs, and where to get them.
//!
//! Source: RFC 6750, 3; RFC 9449, 7.1; RFC 9728, 5.1; 2026-07-28 basic/authorization, Error
//! Handling.

use std::fmt::Write as _;
use std::sync::Arc;

use fanlight_config::settings::Algorithm;
use http::HeaderValue;

/// A scope for refresh tokens, which no resource requires (2026-07-28 basic/authorization, Refresh
/// Tokens).
const OFFLINE_ACCESS: &str = "offline_access";

/// The way to present a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// The token alone.
    #[default]
    Bearer,
    /// The token with a proof that the client has the key it is bound to.
    Dpop,
}

/// A challenge to present a token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Challenge<'a> {
    /// The way to present the token.
    pub(crate) scheme: Scheme,
    /// The reason why credentials were refused: an error code and its explanation.
    pub(crate) error: Option<(&'static str, &'a str)>,
    /// The required scopes.
    pub(crate) scopes: &'a [Arc<str>],
    /// The URL of the protected resource metadata.
    pub(crate) metadata: Option<&'a str>,
}

impl Challenge<'_> {
    /// The value of the header field.
    pub(crate) fn to_value(self) -> HeaderValue {
        let scheme = match self.scheme {
            Scheme::Bearer => "Bearer",
            Scheme::Dpop => "DPoP",
        };
        let mut text = String::from(scheme);
        let mut separator = " ";
        let mut add = |name: &str, value: &str| {
            // Writing to a string does not fail.
            let _ = write!(text, "{separator}{name}=\"{}\"", quoted(value));
            separator = ", ";
        };
        if let Some((error, description)) = self.error {
            add("error", error);
            add("error_description", &plain_text(description));
        }
        let scopes = joined(self.scopes);
        if !scopes.is_empty() {
            add("scope", &scopes);
        }
        if let Some(metadata) = self.metadata {
            add("resource_metadata", metadata);
        }
        if self.scheme == Scheme::Dpop {
            add("algs", &Algorithm::names().join(" "));
        }
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(scheme))
    }
}

/// A scope list in OAuth's syntax. Strings that cannot be scopes are left out (RFC 6749, 3.3).
pub(crate) fn joined(scopes: &[Arc<str>]) -> String {
    let is_token =
        |scope: &str| !scope.is_empty() && scope.bytes().all(|byte| is_plain(byte) && byte != b' ');
    let scopes = scopes
        .iter()
        .map(AsRef::as_ref)
        .filter(|scope| is_token(scope) && *scope != OFFLINE_ACCESS);
    scopes.collect::<Vec<_>>().join(" ")
}

/// The content of a quoted string (RFC 9110, 5.6.4), without control characters.
fn quoted(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len());
    for c in value.chars().filter(|c| matches!(c, ' '..='~')) {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

/// The text in the characters that a description allows (RFC 6750, 3).
fn plain_text(text: &str) -> String {
    let character = |c: char| match c {
        '"' => '\'',
        c if u8::try_from(c).is_ok_and(is_plain) => c,
        _ => '?',
    };
    text.chars().map(character).collect()
}

/// `%x20-21 / %x23-5B / %x5D-7E`
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn challenge_names_error_scopes_and_metadata() {
        let scopes = scopes(&["mcp:read", "offline_access", "mcp:call"]);
        let metadata = Some("https://a.example/.well-known/oauth-protected-resource/mcp");
        let error = Some(("invalid_token", "the token has expired"));
        assert_eq!(
            Challenge {
                error,
                scopes: &scopes,
                metadata,
                ..Challenge::default()
            }
            .to_value(),
            "Bearer error=\"invalid_token\", error_description=\"the token has expired\", scope=\"mcp:read mcp:call\", \
             resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\""
        );
        assert_eq!(Challenge::default().to_value(), "Bearer");
        assert_eq!(
            Challenge {
                scheme: Scheme::Dpop,
                error,
                ..Challenge::default()
            }
            .to_value(),
            "DPoP error=\"invalid_token\", error_description=\"the token has expired\", \
             algs=\"ES256 ES384 EdDSA PS256 PS384 PS512 RS256 RS384 RS512\""
        );
        assert_eq!(
            Challenge {
                scopes: &scopes,
                ..Challenge::default()
            }
            .to_value(),
            "Bearer scope=\"mcp:read mcp:call\""
        );
    }

    #[test]
    fn challenge_has_no_field_of_its_values() {
        let error = Some(("invalid_token", "a\" , error=\"none\\\r\nSet-Cookie: x é"));
        let scopes = scopes(&["a\" x=\"", "b c", "", "d\\", "e\r\nf", "g"]);
        let metadata = Some("https://a.example/\"\r\n\\");
        assert_eq!(
            Challenge {
                error,
                scopes: &scopes,
                metadata,
                ..Challenge::default()
            }
            .to_value(),
            "Bearer error=\"invalid_token\", error_description=\"a' , error='none???Set-Cookie: x ?\", scope=\"g\", \
             resource_metadata=\"https://a.example/\\\"\\\\\""
        );
    }
}
