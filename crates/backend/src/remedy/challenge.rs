//! Reads a server's `WWW-Authenticate` header (RFC 9110, 11.6.1), only to inform operators.

use http_auth::ParamValue;
use http_auth::parser::ChallengeParser;

use crate::log::excerpt;

/// The first challenge of a header.
pub(super) struct Challenge {
    /// The scheme in lower case.
    pub(super) scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// Parses a header; unreadable parts are left out.
    pub(super) fn read(text: &str) -> Self {
        let first = ChallengeParser::new(text).next().and_then(Result::ok);
        let Some(challenge) = first else {
            return Self {
                scheme: scheme_of(text),
                parameters: Vec::new(),
            };
        };
        let owned = |(name, value): &(&str, ParamValue<'_>)| {
            (name.to_ascii_lowercase(), value.to_unescaped())
        };
        Self {
            scheme: challenge.scheme.to_ascii_lowercase(),
            parameters: challenge.params.iter().map(owned).collect(),
        }
    }

    /// The value of a parameter; `None` if it is empty.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let (_, value) = self.parameters.iter().find(|(found, _)| found == name)?;
        (!value.is_empty()).then(|| excerpt(value.as_bytes(), 200))
    }

    /// The server's explanation of its refusal.
    pub(super) fn explanation(&self) -> Option<String> {
        self.parameter("error_description")
            .or_else(|| self.parameter("error"))
    }
}

/// The first word.
fn scheme_of(text: &str) -> String {
    text.split([' ', ','])
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_is_read_as_far_as_possible() {
        let text = r#"Bearer realm="a, \"b\"", error=invalid_token ,error_description="it has expired", scope="x y""#;
        let challenge = Challenge::read(text);
        assert_eq!(challenge.scheme, "bearer");
        assert_eq!(challenge.parameter("realm").as_deref(), Some("a, \"b\""));
        assert_eq!(
            challenge.parameter("error").as_deref(),
            Some("invalid_token")
        );
        assert_eq!(challenge.parameter("scope").as_deref(), Some("x y"));
        assert_eq!(challenge.explanation().as_deref(), Some("it has expired"));
        assert_eq!(Challenge::read("Bearer realm=\"x").scheme, "bearer");
        for odd in ["", "Basic", "Basic realm=\"x", "=", "Bearer ,,=\"\""] {
            assert_eq!(Challenge::read(odd).parameter("scope"), None);
        }
    }
}
