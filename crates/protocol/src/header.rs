//! Header values that mirror body members (2026-07-28 streamable-http, Value Encoding).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::secret::is_secret;

/// The revision of a request.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The method of a request.
pub const METHOD: &str = "mcp-method";
/// The name or URI in a request.
pub const NAME: &str = "mcp-name";
/// The session of a legacy request.
pub const SESSION_ID: &str = "mcp-session-id";
/// The prefix of headers that mirror tool parameters.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// The largest number of bytes in the names and values of a request's forwarded headers.
pub const MAX_FORWARDED: usize = 8 << 10;

/// Headers of messages that their transport sets.
const OF_TRANSPORT: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "last-event-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether the transport of a message sets the header with this lower-case name itself.
#[must_use]
pub fn is_of_transport(name: &str) -> bool {
    OF_TRANSPORT.contains(&name) || name.starts_with("mcp-")
}

/// Further names that no client's header may have on its way to a server. HTTP, tracing or Fanlight
/// define them, or proxies say something of clients with them. A `-` at the end stands for any
/// longer name.
const OWNED: &[&str] = &[
    "accept-",
    "access-control-",
    "age",
    "allow",
    "b3",
    "baggage",
    "cache-control",
    "client-cert",
    "client-cert-",
    "content-",
    "date",
    "dpop",
    "early-data",
    "etag",
    "expect",
    "expires",
    "fanlight-",
    "forwarded",
    "from",
    "host",
    "http2-settings",
    "if-",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "proxy-",
    "range",
    "referer",
    "retry-after",
    "sec-",
    "server",
    "traceparent",
    "tracestate",
    "uber-trace-id",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-",
    "x-b3-",
    "x-forwarded-",
    "x-http-method-override",
    "x-original-",
    "x-real-ip",
    "x-rewrite-",
    "x-ssl-",
];

/// Whether a client's header with this lower-case name may reach a server, or be what a server gets
/// instead: never credentials, nor what HTTP, MCP, tracing and Fanlight define.
#[must_use]
pub fn may_be_forwarded(name: &str) -> bool {
    let is_owned =
        |owned: &&str| name == *owned || (owned.ends_with('-') && name.starts_with(owned));
    !is_secret(name) && !is_of_transport(name) && !OWNED.iter().any(is_owned)
}

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// The reason why a header value cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderValueError {
    /// The value contains bytes that a header value must not have.
    #[error("it has characters that a header value may not have")]
    Characters,
    /// The Base64 between the markers is malformed.
    #[error("its Base64 is malformed")]
    Base64,
    /// The decoded bytes are not UTF-8.
    #[error("its Base64 does not decode to UTF-8")]
    Utf8,
}

/// Encodes `value` as a header value: plain if that is safe, otherwise as Base64 between the
/// markers.
pub fn encode(value: &str) -> Cow<'_, str> {
    if is_plain(value) {
        Cow::Borrowed(value)
    } else {
        Cow::Owned(format!(
            "{SENTINEL_START}{}{SENTINEL_END}",
            STANDARD.encode(value)
        ))
    }
}

/// Decodes a received header value.
pub fn decode(value: &[u8]) -> Result<Cow<'_, str>, HeaderValueError> {
    let text = std::str::from_utf8(value).map_err(|_| HeaderValueError::Characters)?;
    if !text.bytes().all(is_value_byte) {
        return Err(HeaderValueError::Characters);
    }
    let Some(encoded) = text
        .strip_prefix(SENTINEL_START)
        .and_then(|rest| rest.strip_suffix(SENTINEL_END))
    else {
        return Ok(Cow::Borrowed(text));
    };
    let decoded = STANDARD
        .decode(encoded)
        .map_err(|_| HeaderValueError::Base64)?;
    String::from_utf8(decoded)
        .map(Cow::Owned)
        .map_err(|_| HeaderValueError::Utf8)
}

fn is_plain(value: &str) -> bool {
    value.bytes().all(is_value_byte)
        && value.trim_matches([' ', '\t']).len() == value.len()
        && !(value.starts_with(SENTINEL_START) && value.ends_with(SENTINEL_END))
}

/// Visible ASCII, space and tab (RFC 9110, 5.5, without obsolete text).
fn is_value_byte(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_encoded_as_in_the_examples_of_the_specification() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(value), header);
            assert_eq!(decode(header.as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn headers_with_another_meaning_are_not_forwarded() {
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "x-api-key",
            "x-auth-token",
            "te",
            "x-forwarded-user",
            "connection",
            "keep-alive",
            "transfer-encoding",
            "upgrade",
            "host",
            "mcp-session-id",
            "mcp-param-region",
            "last-event-id",
            "traceparent",
            "tracestate",
            "baggage",
            "content-type",
            "accept-encoding",
            "fanlight-event",
            "sec-fetch-site",
            "x-http-method-override",
            "dpop",
            "client-cert",
        ] {
            assert!(!may_be_forwarded(name), "{name}");
        }
        for name in [
            "x-tenant",
            "tenant",
            "team",
            "agent",
            "x-idempotency-key",
            "x-request-id",
            "fromage",
        ] {
            assert!(may_be_forwarded(name), "{name}");
        }
    }

    #[test]
    fn decode_refuses_malformed_values() {
        assert_eq!(decode(b"caf\xc3\xa9"), Err(HeaderValueError::Characters));
        assert_eq!(decode(b"a\x01"), Err(HeaderValueError::Characters));
        assert_eq!(decode(b"=?base64?***?="), Err(HeaderValueError::Base64));
        assert_eq!(decode(b"=?base64?/w==?="), Err(HeaderValueError::Utf8));
        // The markers are case-sensitive: this is a plain value.
        assert_eq!(decode(b"=?BASE64?YQ==?=").unwrap(), "=?BASE64?YQ==?=");
    }

    proptest! {
        #[test]
        fn encoded_value_decodes_to_itself(value in any::<String>()) {
            let header = encode(&value);
            prop_assert!(header.bytes().all(is_value_byte));
            prop_assert_eq!(decode(header.as_bytes()).unwrap(), value.as_str());
        }

        #[test]
        fn decode_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }
}
