//! Rules of the HTTP endpoint: methods, media types, limits, sessions. `modern_requests` tests the
//! rules for modern requests.

use fanlight_tests::slicer::member;

use crate::clients::Client;
use crate::harness::{Gateway, within};
use crate::raw_client::{
    Connection, JSON_HEADERS, LEGACY, LegacySession, MODERN, Response, initialize, legacy_request,
    modern_meta, modern_request, post, post_modern,
};
use crate::scripted::{Backend, Era, Gate, Reply, Transport, config};

/// A gateway in front of one modern HTTP server with a tool `t`.
pub(crate) async fn gateway() -> (Gateway, Backend) {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend.on(
        "prompts/get",
        Reply::result(Era::Modern.complete(r#""messages":[]"#)),
    );
    (
        Gateway::start(&config(&[backend.entry("only")])).await,
        backend,
    )
}

pub(crate) fn call_t() -> String {
    modern_request("1", "tools/call", r#""name":"t""#, "")
}

/// The status, and the raw code of the JSON-RPC error in the body.
pub(crate) async fn refusal(mut response: Response) -> (u16, String) {
    let text = response.text().await;
    (
        response.status,
        member(&text, "error.code")
            .unwrap_or_else(|| panic!("no error in {text}"))
            .to_owned(),
    )
}

pub(crate) fn code(status: u16, code: i32) -> (u16, String) {
    (status, code.to_string())
}

#[tokio::test]
async fn other_http_methods_are_refused() {
    let (gateway, _backend) = gateway().await;
    for method in ["PUT", "PATCH", "HEAD"] {
        let mut connection = Connection::open(gateway.mcp).await;
        connection.request(method, "/mcp", &JSON_HEADERS, b"").await;
        let response = connection.response().await;
        assert_eq!(response.status, 405, "{method}");
        assert!(
            response
                .header("allow")
                .is_some_and(|allow| allow.contains("POST")),
            "{method}"
        );
    }
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("POST", "/elsewhere", &JSON_HEADERS, b"{}")
        .await;
    assert_eq!(connection.response().await.status, 404);
}

#[tokio::test]
async fn media_types_are_checked() {
    let (gateway, _backend) = gateway().await;
    for (content_type, accept, status) in [
        ("text/plain", "application/json, text/event-stream", 415),
        (
            "application/x-www-form-urlencoded",
            "application/json, text/event-stream",
            415,
        ),
        ("application/json", "text/html", 406),
        (
            "application/json; charset=utf-8",
            "application/json, text/event-stream",
            200,
        ),
        ("application/json", "*/*", 200),
        (
            "application/json",
            "text/event-stream;q=0.5, application/json",
            200,
        ),
    ] {
        let mut connection = Connection::open(gateway.mcp).await;
        let headers = [
            ("Content-Type", content_type),
            ("Accept", accept),
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "t"),
        ];
        connection
            .request("POST", "/mcp", &headers, call_t().as_bytes())
            .await;
        assert_eq!(
            connection.response().await.status,
            status,
            "{content_type} {accept}"
        );
    }
}

#[tokio::test]
async fn bodies_without_a_message_get_the_right_code() {
    let (gateway, _backend) = gateway().await;
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    let deep = modern_request(
        "1",
        "tools/call",
        &format!(r#""name":"t","arguments":{{"x":{deep}}}"#),
        "",
    );
    let twice = call_t().replacen(r#""method":"#, r#""method":"ping","method":"#, 1);
    let name_twice = call_t().replacen(r#""name":"t""#, r#""name":"s","name":"t""#, 1);
    for (body, error) in [
        ("{\"jsonrpc\":\"2.0\",", -32700),
        ("", -32700),
        ("nonsense", -32700),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\x01\"}",
            -32700,
        ),
        ("[]", -32600),
        (
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
        ),
        ("\"text\"", -32600),
        ("{\"id\":1,\"method\":\"ping\"}", -32600),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
            -32600,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
            -32600,
        ),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", -32600),
    ] {
        let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "ping")];
        assert_eq!(
            refusal(post(gateway.mcp, &headers, body).await).await,
            code(400, error),
            "{body}"
        );
    }
    for body in [deep, twice, name_twice] {
        let headers = [
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "t"),
        ];
        let (status, _) = refusal(post(gateway.mcp, &headers, &body).await).await;
        assert_eq!(status, 400, "{}", &body[..80]);
    }
    assert_eq!(
        post_modern(gateway.mcp, &call_t()).await.status,
        200,
        "and the next one is served"
    );
}

#[tokio::test]
async fn unknown_method_is_refused_with_several_backends() {
    let (one, two) = (
        Backend::start(Era::Modern, Transport::Http).await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    let gateway = Gateway::start(&config(&[one.entry("one"), two.entry("two")])).await;
    let body = modern_request("1", "example/unheard-of", "", "");
    assert_eq!(
        refusal(post_modern(gateway.mcp, &body).await).await,
        code(404, -32601)
    );
    let session = LegacySession::open(gateway.mcp).await;
    let mut response = session
        .post(&legacy_request("1", "example/unheard-of", ""))
        .await;
    assert_eq!(
        response.status, 200,
        "in a legacy session 404 would mean that the session is gone"
    );
    assert_eq!(member(&response.text().await, "error.code"), Some("-32601"));
}

#[tokio::test]
async fn session_is_opened_in_every_legacy_revision() {
    let (gateway, _backend) = gateway().await;
    let mut sessions = Vec::new();
    for revision in LEGACY {
        let session = LegacySession::open_as(gateway.mcp, revision).await;
        assert_eq!(session.revision, revision);
        let server_info = member(&session.initialize_result, "serverInfo");
        assert_eq!(
            server_info,
            Some(r#"{"name":"scripted","version":"1"}"#),
            "the only backend's own"
        );
        let mut response = session
            .post(&legacy_request("1", "tools/call", r#""name":"t""#))
            .await;
        assert!(response.text().await.contains(r#""content":[]"#));
        sessions.push(session.session.expect("a session id"));
    }
    for (index, session) in sessions.iter().enumerate() {
        assert!(
            session.len() >= 22 && session.bytes().all(|byte| (0x21..=0x7e).contains(&byte)),
            "{session}"
        );
        assert!(!sessions[..index].contains(session));
    }
    let unknown = LegacySession::open_as(gateway.mcp, "1999-01-01").await;
    assert_eq!(
        unknown.revision, "2025-11-25",
        "the newest with a handshake is offered"
    );
}

#[tokio::test]
async fn session_ends_with_delete_and_unknown_ids_are_404() {
    let (gateway, _backend) = gateway().await;
    let list = legacy_request("1", "tools/list", "");
    let version = ("MCP-Protocol-Version", "2025-11-25");
    assert_eq!(
        post(gateway.mcp, &[version], &list).await.status,
        400,
        "no session"
    );
    assert_eq!(
        post(gateway.mcp, &[version, ("Mcp-Session-Id", "guess")], &list)
            .await
            .status,
        404
    );
    let session = LegacySession::open(gateway.mcp).await;
    assert_eq!(session.post(&list).await.status, 200);
    let id = session.session.clone().unwrap();
    for (unfit, status) in [(MODERN, 405), ("1900-01-01", 400)] {
        let headers = [("MCP-Protocol-Version", unfit), ("Mcp-Session-Id", &id)];
        let mut connection = Connection::open(gateway.mcp).await;
        connection.request("DELETE", "/mcp", &headers, b"").await;
        assert_eq!(connection.response().await.status, status, "{unfit}");
    }
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("DELETE", "/mcp", &[version, ("Mcp-Session-Id", &id)], b"")
        .await;
    assert!((200..300).contains(&connection.response().await.status));
    assert_eq!(session.post(&list).await.status, 404);
}

#[tokio::test]
async fn stateless_client_gets_no_session() {
    let (gateway, _backend) = gateway().await;
    let response = post_modern(gateway.mcp, &call_t()).await;
    assert_eq!(
        (response.status, response.header("mcp-session-id")),
        (200, None)
    );
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let (gateway, _backend) = gateway().await;
    let port = gateway.mcp.port();
    let headers = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "t"),
    ];
    let with = |header| [&headers[..], &[header]].concat();
    for origin in [
        "https://evil.example",
        "http://127.0.0.1.evil.example",
        "null",
    ] {
        assert_eq!(
            post(gateway.mcp, &with(("Origin", origin)), &call_t())
                .await
                .status,
            403,
            "{origin}"
        );
    }
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example"] {
        assert_eq!(
            post(gateway.mcp, &with(("Host", host)), &call_t())
                .await
                .status,
            403,
            "{host}"
        );
    }
    let origin = format!("http://localhost:{port}");
    assert_eq!(
        post(gateway.mcp, &with(("Origin", &origin)), &call_t())
            .await
            .status,
        200
    );
    let host = format!("localhost:{port}");
    assert_eq!(
        post(gateway.mcp, &with(("Host", &host)), &call_t())
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn credentials_of_the_client_are_not_forwarded() {
    let (gateway, backend) = gateway().await;
    let headers = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "t"),
        ("Authorization", "Bearer s3cret-of-the-client"),
        ("Cookie", "id=s3cret-of-the-client"),
        ("Proxy-Authorization", "Basic s3cret-of-the-client"),
    ];
    assert_eq!(post(gateway.mcp, &headers, &call_t()).await.status, 200);
    let received = &backend.received("tools/call")[0];
    assert!(
        !format!("{:?}", received.headers).contains("s3cret"),
        "{:?}",
        received.headers
    );
    assert!(!gateway.log.text().contains("s3cret"));
}

#[tokio::test]
async fn notifications_are_accepted() {
    let (gateway, _backend) = gateway().await;
    let body = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"_meta":{{{}}}}}}}"#,
        modern_meta("{}")
    );
    let mut response = post_modern(gateway.mcp, &body).await;
    assert_eq!((response.status, response.text().await.as_str()), (202, ""));
}

#[tokio::test]
async fn response_is_json_unless_a_message_precedes_it() {
    let (gateway, backend) = gateway().await;
    let plain = post_modern(gateway.mcp, &call_t()).await;
    assert_eq!(plain.header("content-type"), Some("application/json"));
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":1}}"#;
    let gate = Gate::new();
    let reply = Reply::result(Era::Modern.complete(r#""content":[]"#))
        .after(&[progress])
        .gated(&gate);
    backend.once("tools/call", reply);
    let request = modern_request(
        "1",
        "tools/call",
        r#""name":"t""#,
        r#""progressToken":"mine""#,
    );
    let mut streamed = post_modern(gateway.mcp, &request).await;
    assert!(streamed.is_event_stream());
    let first = streamed.event().await.unwrap().unwrap();
    assert_eq!(
        member(&first, "params.progressToken"),
        Some(r#""mine""#),
        "sent while the call runs"
    );
    gate.open();
    let (rest, answer) = streamed.messages().await;
    assert!(rest.is_empty());
    assert_eq!(member(&answer, "result.content"), Some("[]"));
    // The server's stream has only the response, so it becomes one JSON object here.
    backend.once(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)).streamed(),
    );
    assert_eq!(
        post_modern(gateway.mcp, &call_t())
            .await
            .header("content-type"),
        Some("application/json")
    );
}

#[tokio::test]
async fn resource_not_found_has_the_code_of_the_client_revision() {
    let rest = r#""message":"n\u006f","data":{"uri":"test://x"},"more":1.0"#;
    for (server, sent) in [(Era::Legacy, "-32002"), (Era::Modern, "-32602")] {
        let backend = Backend::start(server, Transport::Http).await;
        backend.on(
            "resources/read",
            Reply::error(format!(r#"{{"code":{sent},{rest}}}"#)),
        );
        for (era, expected) in [(Era::Legacy, "-32002"), (Era::Modern, "-32602")] {
            let mut client =
                Client::start(&config(&[backend.entry("only")]), era, Transport::Http).await;
            let exchange = client
                .request("1", "resources/read", r#""uri":"test://x""#, "")
                .await;
            let expected = format!(r#"{{"code":{expected},{rest}}}"#);
            assert_eq!(exchange.member("error"), expected, "{server:?} to {era:?}");
        }
    }
}

#[tokio::test]
async fn large_bodies_and_heads_are_refused_without_effect_on_others() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let config = format!(
        r#"{{"mcpServers":{{{}}},"limits":{{"requestBody":100000}},"x-limits":"headerBytes=16KiB"}}"#,
        backend.entry("only")
    );
    let gateway = Gateway::start(&config).await;
    let body = modern_request(
        "1",
        "ping",
        &format!(r#""x":"{}""#, "x".repeat(200_000)),
        "",
    );
    let (status, error) = refusal(post_modern(gateway.mcp, &body).await).await;
    assert_eq!((status, error), code(413, -32600));
    let mut chunked = Connection::open(gateway.mcp).await;
    let mut head = JSON_HEADERS.to_vec();
    head.push(("Transfer-Encoding", "chunked"));
    let head = chunked.head("POST", "/mcp", &head);
    chunked.send(&head).await.unwrap();
    let chunk = format!("{:x}\r\n{body}\r\n", body.len());
    // The gateway may stop reading before the end of the request.
    let _ = chunked.send(chunk.as_bytes()).await;
    assert_eq!(chunked.response().await.status, 413, "without a length too");
    let long = "x".repeat(100_000);
    assert_eq!(
        post(gateway.mcp, &[("X-Long", &long)], "{}").await.status,
        431
    );
    assert_eq!(
        post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn endless_body_times_out_without_delaying_others() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let config = format!(
        r#"{{"mcpServers":{{{}}},"x-limits":"body=1s"}}"#,
        backend.entry("only")
    );
    let gateway = Gateway::start(&config).await;
    let mut slow = Connection::open(gateway.mcp).await;
    let mut headers = JSON_HEADERS.to_vec();
    headers.push(("Content-Length", "1000"));
    let mut head = slow.head("POST", "/mcp", &headers);
    head.extend_from_slice(b"{\"jsonrpc\"");
    slow.send(&head).await.unwrap();
    assert_eq!(
        post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
            .await
            .status,
        200
    );
    assert_eq!(within("408", slow.response()).await.status, 408);
}

#[tokio::test]
async fn connection_serves_requests_in_sequence() {
    let (gateway, _backend) = gateway().await;
    let mut connection = Connection::open(gateway.mcp).await;
    for body in [call_t(), "nonsense".to_owned(), call_t()] {
        let mut headers = JSON_HEADERS.to_vec();
        headers.extend([
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "t"),
        ]);
        connection
            .request("POST", "/mcp", &headers, body.as_bytes())
            .await;
        let (text, again) = connection.response().await.finish().await;
        assert_eq!(text.contains("error"), body == "nonsense", "{text}");
        connection = again;
    }
}

#[tokio::test]
async fn admin_listener_reports_health() {
    let (gateway, _backend) = gateway().await;
    // The response shows that the server is connected, which readiness requires.
    post_modern(gateway.mcp, &call_t()).await.text().await;
    for path in ["/healthz", "/readyz"] {
        let mut connection = Connection::open(gateway.admin).await;
        connection.request("GET", path, &[], b"").await;
        assert_eq!(connection.response().await.status, 200, "{path}");
    }
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", "/elsewhere", &[], b"").await;
    assert_eq!(connection.response().await.status, 404);
}

/// Legacy and modern clients use one gateway at once, on one path.
#[tokio::test]
async fn both_eras_share_the_endpoint() {
    let (gateway, _backend) = gateway().await;
    let session = LegacySession::open(gateway.mcp).await;
    let legacy = session
        .post(&legacy_request("1", "tools/call", r#""name":"t""#))
        .await
        .text()
        .await;
    let modern = post_modern(gateway.mcp, &call_t()).await.text().await;
    assert_eq!(member(&modern, "result.resultType"), Some(r#""complete""#));
    assert_eq!(member(&legacy, "result.content"), Some("[]"));
    let mut discovered =
        post_modern(gateway.mcp, &modern_request("1", "server/discover", "", "")).await;
    let discovered = discovered.text().await;
    for required in [
        "resultType",
        "supportedVersions",
        "capabilities",
        "ttlMs",
        "cacheScope",
    ] {
        assert!(
            member(&discovered, &format!("result.{required}")).is_some(),
            "{required} in {discovered}"
        );
    }
    let again = post(gateway.mcp, &[], &initialize("2025-11-25", "{}")).await;
    assert_eq!(again.status, 200);
}
