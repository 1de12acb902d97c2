//! Secrets in requests, which are compared by their digests.

use std::hash::{Hash, Hasher};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use data_encoding::HEXLOWER;
use fanlight_protocol::digest::{Sha256, sha256};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

/// The SHA-256 digest of a secret. Digests are compared in constant time, so timing reveals neither
/// the secret nor its length.
#[derive(Clone, Copy, Eq)]
pub(crate) struct Digest(Sha256);

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Digest {
    /// The digest as text.
    pub(crate) fn name(self) -> String {
        HEXLOWER.encode(&self.0)
    }

    pub(crate) fn compute(secret: &[u8]) -> Self {
        Self(sha256([secret]))
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

fanlight_protocol::opaque!(Digest);

/// The `Authorization` field of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Authorization<'a> {
    /// The request has no such field.
    Absent,
    /// A bearer token (RFC 6750, 2.1).
    Bearer(&'a str),
    /// Another scheme, or several fields.
    Other,
}

impl<'a> Authorization<'a> {
    pub(crate) fn read(headers: &'a HeaderMap) -> Self {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Absent,
            (Some(value), None) => bearer(value).map_or(Self::Other, Self::Bearer),
            (Some(_), Some(_)) => Self::Other,
        }
    }
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_token_is_the_only_authorization() {
        let of = |values: &[&'static str], expected: Authorization<'_>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            assert_eq!(Authorization::read(&headers), expected, "{values:?}");
        };
        of(
            &["Bearer 0123456789abcdef"],
            Authorization::Bearer("0123456789abcdef"),
        );
        of(
            &["bearer  0123456789abcdef "],
            Authorization::Bearer("0123456789abcdef"),
        );
        for other in ["Basic 0123456789abcdef", "Bearer", "Bearer ", ""] {
            of(&[other], Authorization::Other);
        }
        of(&[], Authorization::Absent);
        of(
            &["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"],
            Authorization::Other,
        );
    }

    #[test]
    fn digests_are_equal_for_equal_secrets_alone() {
        let token = Digest::compute(b"0123456789abcdef");
        assert!(token == Digest::compute(b"0123456789abcdef"));
        assert!(
            token != Digest::compute(b"0123456789abcde")
                && token != Digest::compute(b"0123456789abcdeF")
        );
    }
}
