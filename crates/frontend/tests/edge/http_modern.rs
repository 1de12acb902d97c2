//! Modern clients over HTTP: the checks of requests, the fields added to results, the HTTP status
//! of errors.

use crate::client::{Client, Server, listen, modern_call, modern_headers, modern_request};
use crate::core::{TestCore, told};

#[tokio::test]
async fn modern_call_is_passed_through_byte_for_byte() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let meta = r#""io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"error","progressToken":1,"x/y":1E400"#;
    let body = modern_call(r#""\u0061""#, "echo", meta);
    let response = client
        .post(&modern_headers("tools/call", Some("echo")), &body)
        .await;
    assert_eq!(
        (response.status, response.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(
        response.body,
        r#"{"jsonrpc":"2.0","id":"\u0061","result":{"resultType":"complete", "content":[],"structuredContent":{"a":1.0}, "n": 1.0 }}"#
    );
    assert_eq!(
        response.header("content-length").unwrap(),
        response.body.len().to_string()
    );
    assert_eq!(response.header("mcp-session-id"), None);
    let first = server.log.began().await;
    assert!(first.params.unwrap().as_text().contains(r#""x/y":1E400"#));
    assert_eq!(
        told(&first.context),
        (Some(r#"{"name":"c"}"#), "{}", Some("error"), true)
    );

    // A session header is ignored, and every request is a caller of its own.
    let mut headers = modern_headers("tools/call", Some("echo"));
    headers.push(("Mcp-Session-Id", "nonsense"));
    assert_eq!(
        client
            .post(&headers, &modern_call("2", "echo", ""))
            .await
            .status,
        200
    );
    let second = server.log.began().await;
    assert_eq!(told(&second.context), (None, "{}", None, false));
    assert_ne!(first.context.caller, second.context.caller);
}

#[tokio::test]
async fn large_result_arrives_whole() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let response = client
        .post(
            &modern_headers("tools/call", Some("large")),
            &modern_call("1", "large", ""),
        )
        .await;
    assert_eq!(
        response.header("content-length").unwrap(),
        response.body.len().to_string()
    );
    assert_eq!(
        response.json()["result"]["text"].as_str().unwrap().len(),
        1 << 20
    );
}

#[tokio::test]
async fn list_result_gets_caching_hints() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let response = client
        .post(
            &modern_headers("tools/list", None),
            &modern_request("1", "tools/list", "", ""),
        )
        .await;
    assert_eq!(
        response.body,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\",\n\"tools\":[]}}"
    );
}

#[tokio::test]
async fn discover_is_rendered_from_legacy_and_modern_descriptions() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let body = modern_request("1", "server/discover", "", "");
    let response = client
        .post(&modern_headers("server/discover", None), &body)
        .await;
    let result = &response.json()["result"];
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "s"
    );
    assert!(result.get("serverInfo").is_none() && response.body.contains(r#""x":1.00"#));

    let modern = r#"{"supportedVersions":["2026-07-28"],"capabilities":{},"resultType":"complete","ttlMs":7,"cacheScope":"public"}"#;
    let (core, _log) = TestCore::described_by(modern);
    let (address, ..) = listen(core.gateway(&[]), Default::default()).await;
    let response = Client::connect(address)
        .await
        .post(&modern_headers("server/discover", None), &body)
        .await;
    assert_eq!(response.json()["result"]["ttlMs"], 7);
    assert!(response.body.ends_with(
        r#"],"capabilities":{},"resultType":"complete","ttlMs":7,"cacheScope":"public"}}"#
    ));
}

#[tokio::test]
async fn modern_request_is_checked_in_order() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let good = modern_call("5", "echo", "");
    let without = |text: &str| good.replace(text, "");
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let method = ("Mcp-Method", "tools/call");
    let name = ("Mcp-Name", "echo");
    let unknown = good.replace("2026-07-28", "v999");
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, i64);
    let cases: &[Case<'_>] = &[
        (&[method, name], &good, -32020),
        (
            &[("MCP-Protocol-Version", "2025-11-25"), method, name],
            &good,
            -32020,
        ),
        (&[version, method, name], &unknown, -32020),
        (
            &[("MCP-Protocol-Version", "v999"), method, name],
            &unknown,
            -32022,
        ),
        (
            &[("MCP-Protocol-Version", "v999")],
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#,
            -32022,
        ),
        (
            &[version],
            r#"{"jsonrpc":"2.0","id":5,"method":"server/discover"}"#,
            -32602,
        ),
        (
            &[version],
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":{}}}"#,
            -32602,
        ),
        (
            &[version, method, name],
            &without(r#","io.modelcontextprotocol/clientCapabilities":{}"#),
            -32602,
        ),
        (
            &[version, method, name],
            &modern_call("5", "echo", r#""io.modelcontextprotocol/logLevel":"loud""#),
            -32602,
        ),
        (&[version, name], &good, -32020),
        (
            &[version, ("Mcp-Method", "tools/list"), name],
            &good,
            -32020,
        ),
        (&[version, method, method, name], &good, -32020),
        (&[version, method], &good, -32020),
        (&[version, method, ("Mcp-Name", "other")], &good, -32020),
        (
            &[version, method, ("Mcp-Name", "=?base64?SGVsbG8?=")],
            &good,
            -32020,
        ),
        (
            &[version, method, ("Mcp-Name", "mirrored")],
            &good.replace(r#""echo""#, r#""mirrored","name":"x""#),
            -32602,
        ),
    ];
    for (headers, body, code) in cases {
        let response = client.post(headers, body).await;
        assert_eq!(
            (response.status, response.code()),
            (400, *code),
            "{headers:?} {body} {}",
            response.body
        );
        assert_eq!(response.json()["id"], 5, "{}", response.body);
    }
    // None of them reached the core, and the connection still serves.
    assert_eq!(
        client
            .post(&[version, method, name], &modern_call("6", "echo", ""))
            .await
            .status,
        200
    );
    assert!(
        server
            .log
            .began()
            .await
            .params
            .unwrap()
            .as_text()
            .contains("echo")
    );
}

#[tokio::test]
async fn mirrored_parameter_is_checked_against_the_tool() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let body = |region: &str| {
        let params = format!(r#""name":"mirrored","arguments":{{"region":{region}}}"#);
        modern_request("5", "tools/call", &params, "")
    };
    let mut status = async |region: &str, header: Option<&str>| {
        let mut headers = modern_headers("tools/call", Some("mirrored"));
        headers.extend(header.map(|value| ("mcp-param-REGION", value)));
        let response = client.post(&headers, &body(region)).await;
        (response.status, response.code())
    };
    assert_eq!(status(r#""eu""#, Some("eu")).await, (200, 0));
    assert_eq!(
        status(r#""Hello""#, Some("=?base64?SGVsbG8=?=")).await,
        (200, 0)
    );
    assert_eq!(status("null", None).await, (200, 0));
    assert_eq!(status(r#""eu""#, None).await, (400, -32020));
    assert_eq!(status(r#""eu""#, Some("us")).await, (400, -32020));
    assert_eq!(status("null", Some("=?base64?*?=")).await, (400, -32020));
}

#[tokio::test]
async fn error_has_the_status_and_code_of_its_revision() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    for (given, status, code) in [
        (-32601, 404, -32601),
        (-32021, 400, -32021),
        (-32002, 200, -32602),
        (-32602, 200, -32602),
        (-5, 200, -5),
    ] {
        let params = format!(r#""name":"fail","arguments":{{"code":{given}}}"#);
        let body = modern_request("5", "tools/call", &params, "");
        let response = client
            .post(&modern_headers("tools/call", Some("fail")), &body)
            .await;
        assert_eq!(
            (response.status, response.code()),
            (status, code),
            "{given}"
        );
    }
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "unknown/method",
    ] {
        let response = client
            .post(
                &modern_headers(method, None),
                &modern_request("5", method, "", ""),
            )
            .await;
        assert_eq!(
            (response.status, response.code()),
            (404, -32601),
            "{method}"
        );
        assert_eq!(response.json()["id"], 5);
    }
}

#[tokio::test]
async fn modern_notification_is_accepted_and_response_is_refused() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let version = [("MCP-Protocol-Version", "2026-07-28")];
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let response = client.post(&version, cancelled).await;
    assert_eq!((response.status, response.body.as_str()), (202, ""));
    let response = client
        .post(&version, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
        .await;
    assert_eq!((response.status, response.code()), (400, -32600));
    assert!(response.json().get("id").is_none());
}
