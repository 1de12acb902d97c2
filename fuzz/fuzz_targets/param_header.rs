//! `x-mcp-header` annotations in the tools of a server: no input panics, a mirrored parameter has a path, and its
//! value survives the header.
#![no_main]

use bytes::Bytes;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::param_header::{self, ParamHeader};
use fanlight_protocol::{Json, header};
use libfuzzer_sys::fuzz_target;

/// The default of `limits.mirroredParameters`.
const MIRRORED: usize = 64;

fuzz_target!(|data: &[u8]| {
    let Ok(value) = Json::parse(Bytes::copy_from_slice(data), DEFAULT_NESTING) else { return };
    for parameter in param_header::annotations(&value, MIRRORED).unwrap_or_default() {
        assert!(!parameter.path.is_empty());
        if let Some(text) = parameter.value(&value) {
            let header = header::encode(&text);
            let received = header::decode(header.as_bytes()).expect("an encoded value is a header value");
            assert!(ParamHeader::values_match(&received, &text));
        }
    }
    let mut tools = 0;
    if let Some(valid) = param_header::without_invalid_tools(&value, MIRRORED, |_, _| tools += 1) {
        let left = valid.get("tools").expect("the list is still there").elements().count();
        assert!(left < tools);
        assert_eq!(param_header::without_invalid_tools(&valid, MIRRORED, |_, found| assert!(found.is_ok())), None);
    }
});
