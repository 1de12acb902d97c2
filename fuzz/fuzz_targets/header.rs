//! Header values and `x-mcp-header` annotations: no input panics, and encoding is undone by
//! decoding.
#![no_main]

use bytes::Bytes;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::{Json, header, param_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let decoded = header::decode(data);
    if let Ok(value) = decoded {
        assert_eq!(header::decode(header::encode(&value).as_bytes()).as_deref(), Ok(value.as_ref()));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        assert_eq!(header::decode(header::encode(text).as_bytes()).as_deref(), Ok(text));
    }
    if let Ok(schema) = Json::parse(Bytes::copy_from_slice(data), DEFAULT_NESTING) {
        for parameter in param_header::annotations(&schema).unwrap_or_default() {
            assert!(!parameter.path.is_empty());
            let _ = parameter.value(&schema);
        }
    }
});
