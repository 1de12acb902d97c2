//! Headers as texts, for code that knows no HTTP.

use bytes::Bytes;
use http::HeaderMap;

/// All headers, by lower-case name.
pub fn header_texts(headers: &HeaderMap) -> Vec<(Box<str>, Bytes)> {
    let text = |value: &[u8]| Bytes::copy_from_slice(value);
    let all = headers.iter();
    all.map(|(name, value)| (name.as_str().into(), text(value.as_bytes())))
        .collect()
}
