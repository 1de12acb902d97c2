//! The bearer token of the listener.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The digest of a token. Digests are compared, so that timing reveals neither the token nor its length.
pub(crate) struct Token([u8; SHA256_OUTPUT_LEN]);

impl Token {
    pub(crate) fn new(secret: &str) -> Self {
        Self(hashed(secret))
    }

    /// Whether `headers` have exactly one `Authorization`, `Bearer` with this token (RFC 6750, 2.1).
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, given)) = value.to_str().ok().and_then(|text| text.split_once(' ')) else { return false };
        scheme.eq_ignore_ascii_case("bearer") && verify_slices_are_equal(&self.0, &hashed(given.trim())).is_ok()
    }
}

fn hashed(text: &str) -> [u8; SHA256_OUTPUT_LEN] {
    let mut out = [0; SHA256_OUTPUT_LEN];
    out.iter_mut().zip(digest(&SHA256, text.as_bytes()).as_ref()).for_each(|(slot, byte)| *slot = *byte);
    out
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn token_must_match_exactly() {
        let token = Token::new("0123456789abcdef");
        let with = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            token.is_in(&headers)
        };
        assert!(with(&["Bearer 0123456789abcdef"]));
        assert!(with(&["bearer  0123456789abcdef "]));
        for wrong in
            ["Bearer 0123456789abcde", "Bearer 0123456789abcdeff", "Basic 0123456789abcdef", "Bearer", "Bearer ", ""]
        {
            assert!(!with(&[wrong]), "{wrong}");
        }
        assert!(!with(&[]));
        assert!(!with(&["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"]));
    }
}
