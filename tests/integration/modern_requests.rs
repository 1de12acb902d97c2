//! The rules for a modern request's body and headers (2026-07-28 streamable-http, Server
//! Validation), and the headers that the gateway adds for modern servers.

use fanlight_tests::slicer::member;

use crate::clients::Client;
use crate::http_rules::{call_t, code, gateway, refusal};
use crate::raw_client::{MODERN, legacy_request, modern_request, post, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

#[tokio::test]
async fn missing_metadata_is_refused() {
    let (gateway, _backend) = gateway().await;
    let headers = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/list"),
    ];
    let without_capabilities =
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    for params in ["", r#""_meta":{}"#, without_capabilities] {
        let body = legacy_request("1", "tools/list", params);
        let (status, error) = refusal(post(gateway.mcp, &headers, &body).await).await;
        // Without a version in the body, the header also mismatches the body; either error is
        // correct.
        let allowed = if params == without_capabilities {
            vec!["-32602"]
        } else {
            vec!["-32602", "-32020"]
        };
        assert_eq!(status, 400, "{params}");
        assert!(allowed.contains(&error.as_str()), "{params}: {error}");
    }
}

#[tokio::test]
async fn unknown_version_is_refused_with_the_supported_ones() {
    let (gateway, _backend) = gateway().await;
    let body = modern_request("1", "tools/list", "", "").replace(MODERN, "1900-01-01");
    let mut response = post_modern(gateway.mcp, &body).await;
    assert_eq!(response.status, 400);
    let text = response.text().await;
    assert_eq!(member(&text, "error.code"), Some("-32022"));
    assert_eq!(
        member(&text, "error.data.requested"),
        Some(r#""1900-01-01""#)
    );
    assert!(
        member(&text, "error.data.supported")
            .unwrap()
            .contains(MODERN),
        "{text}"
    );
}

#[tokio::test]
async fn headers_must_match_the_body() {
    let (gateway, backend) = gateway().await;
    let version = ("MCP-Protocol-Version", MODERN);
    let method = ("Mcp-Method", "tools/call");
    let name = ("Mcp-Name", "t");
    let refused: [&[(&str, &str)]; 9] = [
        &[method, name],
        &[version, name],
        &[version, method],
        &[("MCP-Protocol-Version", "2025-11-25"), method, name],
        &[version, ("Mcp-Method", "tools/list"), name],
        &[version, ("Mcp-Method", "TOOLS/CALL"), name],
        &[version, method, ("Mcp-Name", "T")],
        &[version, method, ("Mcp-Name", "=?base64?cw==?=")],
        &[version, method, ("Mcp-Name", "=?base64?%%%?=")],
    ];
    for headers in refused {
        assert_eq!(
            refusal(post(gateway.mcp, headers, &call_t()).await).await,
            code(400, -32020),
            "{headers:?}"
        );
    }
    assert!(backend.received("tools/call").is_empty());
    let taken: [&[(&str, &str)]; 3] = [
        &[version, method, name],
        &[version, method, ("Mcp-Name", "=?base64?dA==?=")],
        &[
            ("mcp-protocol-version", MODERN),
            ("MCP-METHOD", "tools/call"),
            ("mcp-name", "  t  "),
        ],
    ];
    for headers in taken {
        assert_eq!(
            post(gateway.mcp, headers, &call_t()).await.status,
            200,
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn non_ascii_name_is_base64_in_both_directions() {
    let (gateway, backend) = gateway().await;
    let body = modern_request("1", "prompts/get", r#""name":"\u4e16界""#, "");
    let headers = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "prompts/get"),
        ("Mcp-Name", "=?base64?5LiW55WM?="),
    ];
    backend.on(
        "prompts/list",
        backend.list("prompts", r#"{"name":"世界"}"#),
    );
    assert_eq!(post(gateway.mcp, &headers, &body).await.status, 200);
    let received = backend.received("prompts/get");
    assert_eq!(received[0].header("mcp-name"), Some("=?base64?5LiW55WM?="));
    assert_eq!(received[0].header("mcp-method"), Some("prompts/get"));
}

const SQL_TOOL: &str = r#"{"name":"sql","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"limits":{"type":"object","properties":{"rows":{"type":"integer","x-mcp-header":"Rows"}}}}}}"#;
const SQL_CALL: &str = r#""name":"sql","arguments":{"region":"Zürich","limits":{"rows":42}}"#;

#[tokio::test]
async fn parameter_headers_are_checked_against_the_tool_schema() {
    let (gateway, backend) = gateway().await;
    backend.on("tools/list", backend.list("tools", SQL_TOOL));
    // The gateway lists the tool before the call.
    post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
        .await
        .text()
        .await;
    let standard = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "sql"),
    ];
    let region = ("Mcp-Param-Region", "=?base64?WsO8cmljaA==?=");
    let rows = ("mcp-param-rows", "42");
    let body = modern_request("1", "tools/call", SQL_CALL, "");
    let send =
        async |more: &[(&str, &str)]| post(gateway.mcp, &[&standard, more].concat(), &body).await;
    for wrong in [
        vec![],
        vec![region],
        vec![rows],
        vec![region, ("mcp-param-rows", "43")],
        vec![("mcp-param-region", "Zurich"), rows],
        vec![("mcp-param-region", "=?base64?!?="), rows],
    ] {
        assert_eq!(
            refusal(send(&wrong).await).await,
            code(400, -32020),
            "{wrong:?}"
        );
    }
    for right in [
        vec![region, rows],
        vec![region, ("mcp-param-rows", "42.0")],
        vec![region, rows, ("mcp-param-x", "?")],
    ] {
        assert_eq!(send(&right).await.status, 200, "{right:?}");
    }
    let null = modern_request(
        "1",
        "tools/call",
        r#""name":"sql","arguments":{"region":null}"#,
        "",
    );
    assert_eq!(
        post(gateway.mcp, &standard, &null).await.status,
        200,
        "no header for null or absent"
    );
}

/// The gateway adds the headers also for clients whose revision has none.
#[tokio::test]
async fn headers_are_sent_to_modern_backends() {
    for era in [Era::Legacy, Era::Modern] {
        for transport in [Transport::Http, Transport::Stdio] {
            if (era, transport) == (Era::Modern, Transport::Http) {
                continue; // that client brings headers of its own: see above
            }
            let backend = Backend::start(Era::Modern, Transport::Http).await;
            backend.on("tools/list", backend.list("tools", SQL_TOOL));
            backend.on(
                "tools/call",
                Reply::result(Era::Modern.complete(r#""content":[]"#)),
            );
            let mut client = Client::start(&config(&[backend.entry("only")]), era, transport).await;
            let exchange = client.request("1", "tools/call", SQL_CALL, "").await;
            exchange.member("result");
            let received = &backend.received("tools/call")[0];
            assert_eq!(received.header("mcp-protocol-version"), Some(MODERN));
            assert_eq!(received.header("mcp-method"), Some("tools/call"));
            assert_eq!(received.header("mcp-name"), Some("sql"));
            assert_eq!(
                received.header("mcp-param-region"),
                Some("=?base64?WsO8cmljaA==?=")
            );
            assert_eq!(received.header("mcp-param-rows"), Some("42"));
            let version = ["params", "_meta", "io.modelcontextprotocol/protocolVersion"];
            assert_eq!(received.member_at(&version), Some(r#""2026-07-28""#));
        }
    }
}

/// A `number` cannot be mirrored (2026-07-28 server/tools, x-mcp-header).
const UNMIRRORABLE_TOOL: &str = r#"{"name":"bad","inputSchema":{"type":"object","properties":{"n":{"type":"number","x-mcp-header":"N"}}}}"#;

/// The gateway is a modern HTTP client of this server, so it must exclude the tool.
#[tokio::test]
async fn tool_with_bad_header_annotations_of_a_modern_http_backend_is_excluded() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.on(
        "tools/list",
        backend.list("tools", &format!("{SQL_TOOL},{UNMIRRORABLE_TOOL}")),
    );
    let mut client = Client::start(
        &config(&[backend.entry("only")]),
        Era::Modern,
        Transport::Http,
    )
    .await;
    assert_eq!(client.tool_names().await, ["sql"]);
    client.log().line_with("x-mcp-header").await;
}

/// No headers are sent on these routes, so the tool is valid.
#[tokio::test]
async fn tool_with_bad_header_annotations_is_kept_where_no_header_is_sent() {
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.on(
        "tools/list",
        backend.list("tools", &format!("{SQL_TOOL},{UNMIRRORABLE_TOOL}")),
    );
    for (era, transport) in [
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Stdio),
        (Era::Legacy, Transport::Stdio),
    ] {
        let mut client = Client::start(&config(&[backend.entry("only")]), era, transport).await;
        assert_eq!(
            client.tool_names().await,
            ["sql", "bad"],
            "{era:?} {transport:?}"
        );
    }
}

/// A modern HTTP client could not call the tool by the rules, whatever the era of the server.
#[tokio::test]
async fn tool_with_bad_header_annotations_is_hidden_from_modern_http_clients() {
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.on(
        "tools/list",
        backend.list("tools", &format!("{SQL_TOOL},{UNMIRRORABLE_TOOL}")),
    );
    let mut client = Client::start(
        &config(&[backend.entry("only")]),
        Era::Modern,
        Transport::Http,
    )
    .await;
    assert_eq!(client.tool_names().await, ["sql"]);
    client.log().line_with("x-mcp-header").await;
}
