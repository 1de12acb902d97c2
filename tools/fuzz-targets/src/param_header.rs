//! `x-mcp-header` annotations in a server's tools: no input panics, a mirrored parameter has a
//! path, and its value survives the header.

use bytes::Bytes;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::param_header::{self, ParamHeader};
use fanlight_protocol::{Json, header};

use crate::cost::{Cost, bounded};

/// The limit of mirrored parameters.
const MIRRORED: usize = 64;

pub(crate) fn check(data: &[u8]) {
    let Ok(value) = Json::parse(Bytes::copy_from_slice(data), DEFAULT_NESTING) else {
        return;
    };
    let annotations = bounded(data.len(), Cost::ELEMENTS, || {
        param_header::annotations(&value, MIRRORED)
    });
    for parameter in annotations.unwrap_or_default() {
        assert!(!parameter.path.is_empty());
        if let Some(text) = parameter.value(&value) {
            let header = header::encode(&text);
            let received =
                header::decode(header.as_bytes()).expect("an encoded value is a header value");
            assert!(ParamHeader::values_match(&received, &text));
        }
    }
    bounded(data.len(), Cost::ELEMENTS, || {
        param_header::without_invalid_tools(&value, MIRRORED, |_, _, _| {})
    });
    let mut tools = 0;
    if let Some(valid) = param_header::without_invalid_tools(&value, MIRRORED, |_, _, _| tools += 1)
    {
        let left = valid
            .get("tools")
            .expect("the list is still there")
            .elements()
            .count();
        assert!(left < tools);
        assert_eq!(
            param_header::without_invalid_tools(&valid, MIRRORED, |_, _, found| assert!(
                found.is_ok()
            )),
            None
        );
    }
}
