//! Header values: no input panics, and decoding reverses encoding.

use fanlight_protocol::header;

use crate::cost::{Cost, bounded};

pub(crate) fn check(data: &[u8]) {
    if let Ok(value) = bounded(data.len(), Cost::TEXT, || header::decode(data)) {
        assert_eq!(
            header::decode(header::encode(&value).as_bytes()).as_deref(),
            Ok(value.as_ref())
        );
    }
    if let Ok(text) = std::str::from_utf8(data) {
        assert_eq!(
            header::decode(header::encode(text).as_bytes()).as_deref(),
            Ok(text)
        );
    }
}
