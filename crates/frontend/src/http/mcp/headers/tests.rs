//! The validation table.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
}

fn params(text: &str) -> Params {
    Params::read(Some(&json(text))).unwrap()
}

#[test]
fn the_version_header_comes_first() {
    let check = |pairs: &[(&str, &str)], meta: &str| {
        let params = params(&format!(r#"{{"_meta":{meta}}}"#));
        check_version(&Fields::find(&headers(pairs)), &params.meta)
            .map(drop)
            .map_err(|error| error.code)
    };
    let body =
        |version: &str| format!(r#"{{"io.modelcontextprotocol/protocolVersion":{version}}}"#);
    let name = "MCP-Protocol-Version";
    assert_eq!(
        check(&[(name, "2026-07-28")], &body(r#""2026-07-28""#)),
        Ok(())
    );
    assert_eq!(
        check(&[(name, " 2026-07-28\t")], &body(r#""2026\u002d07-28""#)),
        Ok(())
    );
    assert_eq!(
        check(&[], &body(r#""2026-07-28""#)),
        Err(code::HEADER_MISMATCH)
    );
    assert_eq!(check(&[], "{}"), Err(code::HEADER_MISMATCH));
    assert_eq!(
        check(&[(name, "2025-11-25")], &body(r#""2026-07-28""#)),
        Err(code::HEADER_MISMATCH)
    );
    assert_eq!(
        check(&[(name, "2026-07-28")], &body(r#""v999.0.0""#)),
        Err(code::HEADER_MISMATCH)
    );
    assert_eq!(
        check(
            &[(name, "2026-07-28"), (name, "2026-07-28")],
            &body(r#""2026-07-28""#)
        ),
        Err(code::HEADER_MISMATCH)
    );
    assert_eq!(
        check(&[(name, "2026-07-28")], "{}"),
        Err(code::INVALID_PARAMS)
    );
    assert_eq!(
        check(&[(name, "2026-07-28")], &body("7")),
        Err(code::INVALID_PARAMS)
    );
    assert_eq!(
        check(&[(name, "v999.0.0")], &body(r#""v999.0.0""#)),
        Err(code::UNSUPPORTED_PROTOCOL_VERSION)
    );
    assert_eq!(
        check(&[(name, "v999.0.0")], "{}"),
        Err(code::UNSUPPORTED_PROTOCOL_VERSION)
    );
    assert_eq!(
        check(&[(name, "2025-11-25")], &body(r#""2025-11-25""#)),
        Err(code::UNSUPPORTED_PROTOCOL_VERSION)
    );
}

#[test]
fn method_and_name_must_be_mirrored() {
    let check = |pairs: &[(&str, &str)], method: &str, text: &str| {
        check_standard(
            &Fields::find(&headers(pairs)),
            Revision::V2026_07_28,
            &Method::from_name(method),
            &params(text),
        )
        .map_err(|error| error.message)
    };
    let ok = |pairs: &[(&str, &str)], method: &str, text: &str| check(pairs, method, text).is_ok();
    assert!(ok(&[("mcp-method", "tools/list")], "tools/list", "{}"));
    assert!(!ok(&[], "tools/list", "{}"));
    assert!(!ok(&[("Mcp-Method", "TOOLS/LIST")], "tools/list", "{}"));
    assert!(!ok(
        &[("Mcp-Method", "tools/list"), ("Mcp-Method", "tools/list")],
        "tools/list",
        "{}"
    ));
    let call = ("MCP-METHOD", "tools/call");
    let named = r#"{"name":"caf\u00e9"}"#;
    assert!(ok(
        &[call, ("Mcp-Name", "=?base64?Y2Fmw6k=?=")],
        "tools/call",
        named
    ));
    assert!(ok(
        &[call, ("Mcp-Name", "  plain  ")],
        "tools/call",
        r#"{"name":"plain"}"#
    ));
    assert!(ok(
        &[("Mcp-Method", "resources/read"), ("Mcp-Name", "file:///a")],
        "resources/read",
        r#"{"uri":"file:///a"}"#
    ));
    assert!(ok(
        &[("Mcp-Method", "prompts/get"), ("Mcp-Name", "p")],
        "prompts/get",
        r#"{"name":"p"}"#
    ));
    let task = [("Mcp-Method", "tasks/cancel"), ("Mcp-Name", "t1")];
    assert!(ok(&task, "tasks/cancel", r#"{"taskId":"t1"}"#));
    assert!(!ok(&task, "tasks/cancel", r#"{"taskId":"t2"}"#));
    assert!(!ok(&task[..1], "tasks/cancel", r#"{"taskId":"t1"}"#));
    for (value, text) in [
        ("wrong", named),
        ("=?base64?SGVsbG8?=", r#"{"name":"Hello"}"#),
        ("x", "{}"),
        ("7", r#"{"name":7}"#),
    ] {
        assert!(
            !ok(&[call, ("Mcp-Name", value)], "tools/call", text),
            "{value}"
        );
    }
    assert_eq!(
        check(&[call], "tools/call", named),
        Err("Header mismatch: Mcp-Name is missing".into())
    );
    assert_eq!(
        check(
            &[call, ("Mcp-Name", "foo")],
            "tools/call",
            r#"{"name":"bar"}"#
        ),
        Err(
            r#"Header mismatch: Mcp-Name header value "foo" does not match body value "bar""#
                .into()
        )
    );
}

#[test]
fn mirrored_parameters() {
    let mirrored = [
        ParamHeader {
            name: "Region".into(),
            path: vec!["region".into()],
        },
        ParamHeader {
            name: "Count".into(),
            path: vec!["o".into(), "n".into()],
        },
    ];
    let check = |pairs: &[(&str, &str)], arguments: &str| {
        check_params(
            &Fields::find(&headers(pairs)),
            &mirrored,
            &params(&format!(r#"{{"arguments":{arguments}}}"#)),
        )
        .map_err(|error| error.code)
    };
    let mismatch = Err(code::HEADER_MISMATCH);
    assert_eq!(
        check(
            &[("mcp-param-region", "eu"), ("Mcp-Param-Count", "42.0")],
            r#"{"region":"eu","o":{"n":42}}"#
        ),
        Ok(())
    );
    assert_eq!(
        check(
            &[("Mcp-Param-Region", "=?base64?SGVsbG8=?=")],
            r#"{"region":"Hello"}"#
        ),
        Ok(())
    );
    assert_eq!(check(&[], r#"{"region":null}"#), Ok(()));
    assert_eq!(check(&[], "{}"), Ok(()));
    assert_eq!(
        check(&[("Mcp-Param-Region", "eu")], r#"{"region":null}"#),
        Ok(())
    );
    assert_eq!(check(&[("Mcp-Param-Region", "eu")], "{}"), Ok(()));
    assert_eq!(check(&[("Mcp-Param-Other", "eu")], "{}"), Ok(()));
    assert_eq!(
        check(&[("Mcp-Param-Count", "1.5")], r#"{"o":{"n":1.5}}"#),
        Ok(())
    );
    assert_eq!(check(&[], r#"{"o":{"n":1.5}}"#), Ok(()));

    assert_eq!(check(&[], r#"{"region":"eu"}"#), mismatch);
    assert_eq!(
        check(&[("Mcp-Param-Region", "us")], r#"{"region":"eu"}"#),
        mismatch
    );
    assert_eq!(
        check(
            &[("Mcp-Param-Region", "eu"), ("Mcp-Param-Region", "eu")],
            r#"{"region":"eu"}"#
        ),
        mismatch
    );
    assert_eq!(
        check(
            &[("Mcp-Param-Region", "=?base64?SGVs!!!bG8=?=")],
            r#"{"region":"Hello"}"#
        ),
        mismatch
    );
    assert_eq!(
        check(&[("Mcp-Param-Region", "=?base64?***?=")], "{}"),
        mismatch
    );
    assert_eq!(
        check(&[("Mcp-Param-Count", "41")], r#"{"o":{"n":42}}"#),
        mismatch
    );
    assert_eq!(
        check(&[("Mcp-Param-Count", "5")], r#"{"o":{"n":{}}}"#),
        mismatch
    );
    assert_eq!(
        check(
            &[("Mcp-Param-Region", "eu")],
            r#"{"region":"eu","regio\u006e":"us"}"#
        ),
        Err(code::INVALID_PARAMS)
    );
    assert_eq!(
        check_params(&Fields::find(&headers(&[])), &mirrored, &Params::default()),
        Ok(())
    );
}
