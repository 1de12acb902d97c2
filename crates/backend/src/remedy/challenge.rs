//! Reading what a server wants from its `WWW-Authenticate` header (RFC 9110, 11.6.1), for operators alone.

use crate::log::excerpt;

/// The first challenge of a header.
pub(super) struct Challenge {
    /// In lower case.
    pub(super) scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// Reads leniently: what cannot be read is left out.
    pub(super) fn read(text: &str) -> Self {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut parameters = Vec::new();
        while let Some((name, after)) = rest.split_once('=') {
            let name = name.trim_matches([' ', ',', '\t']).to_ascii_lowercase();
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted_value(quoted),
                None => {
                    let (value, after) = after.split_once(',').unwrap_or((after, ""));
                    (value.trim().to_owned(), after)
                }
            };
            parameters.push((name, value));
            rest = after;
        }
        Self { scheme: scheme.to_ascii_lowercase(), parameters }
    }

    /// The value of a parameter that is not empty.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let (_, value) = self.parameters.iter().find(|(found, _)| found == name)?;
        (!value.is_empty()).then(|| excerpt(value.as_bytes(), 200))
    }

    /// What the server says of why it refuses.
    pub(super) fn explanation(&self) -> Option<String> {
        self.parameter("error_description").or_else(|| self.parameter("error"))
    }
}

/// A quoted value without its first quote, and what follows it.
fn quoted_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_is_read_as_far_as_possible() {
        let text =
            r#"Bearer realm="a, \"b\"", error=invalid_token ,error_description="it has \u{1b} expired", scope="x y""#;
        let challenge = Challenge::read(text);
        assert_eq!(challenge.scheme, "bearer");
        assert_eq!(challenge.parameter("realm").as_deref(), Some("a, \"b\""));
        assert_eq!(challenge.parameter("error").as_deref(), Some("invalid_token"));
        assert_eq!(challenge.parameter("scope").as_deref(), Some("x y"));
        assert!(challenge.explanation().unwrap().starts_with("it has"));
        for odd in ["", "Basic", "Basic realm=\"x", "=", "Bearer ,,=\"\""] {
            assert_eq!(Challenge::read(odd).parameter("scope"), None);
        }
    }
}
