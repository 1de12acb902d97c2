//! Refusals and limits of the listener. A refusal does not end a kept-alive connection.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;

use crate::client::{
    Client, Server, legacy_call, modern_call, modern_headers, modern_request, soon,
};

/// Whether the connection still answers a call.
async fn is_usable(client: &mut Client) -> bool {
    client
        .post(
            &modern_headers("tools/call", Some("echo")),
            &modern_call("1", "echo", ""),
        )
        .await
        .status
        == 200
}

#[tokio::test]
async fn refusal_has_its_status_and_keeps_the_connection_open() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let text = "x".repeat(100_000);
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, u16, i64);
    let cases: &[Case<'_>] = &[
        (&[("Host", "evil.example.com")], &text, 403, -32600),
        (&[("Origin", "http://evil.example.com")], &text, 403, -32600),
        (&[("Content-Type", "text/plain")], &text, 415, -32600),
        (&[("Content-Encoding", "gzip")], &text, 415, -32600),
        (&[("Accept", "text/html")], &text, 406, -32600),
        (&[], &text, 400, -32700),
        (&[], "", 400, -32700),
        (&[], "[]", 400, -32600),
        (
            &[],
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            400,
            -32600,
        ),
        (&[], "7", 400, -32600),
        (&[], &deep, 400, -32600),
    ];
    for (headers, body, status, code) in cases {
        let response = client.post(headers, body).await;
        assert_eq!(
            (response.status, response.code()),
            (*status, *code),
            "{headers:?} {}",
            response.body
        );
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert!(response.json().get("id").is_none(), "{}", response.body);
        assert!(is_usable(&mut client).await, "{headers:?}");
    }
    let doubled = r#"{"jsonrpc":"2.0","id":7,"method":"ping","method":"ping"}"#;
    let response = client.post(&[], doubled).await;
    assert_eq!(
        (
            response.status,
            response.code(),
            response.json()["id"].as_i64()
        ),
        (400, -32600, Some(7))
    );
    let response = client.post(&[], &deep).await;
    assert!(response.body.contains("128 levels"), "{}", response.body);
}

#[tokio::test]
async fn paths_and_methods_are_served_as_documented() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    assert_eq!(client.call("GET", "/", &[]).await.status, 404);
    assert_eq!(client.call("POST", "/mcp2", &[]).await.status, 404);
    for method in ["PUT", "PATCH"] {
        let response = client.call(method, "/mcp", &[]).await;
        assert_eq!(
            (response.status, response.header("allow")),
            (405, Some("GET, POST, DELETE, OPTIONS")),
            "{method}"
        );
    }
    client
        .send(
            "POST",
            "/mcp/?x=1",
            &modern_headers("tools/call", Some("echo")),
            &modern_call("1", "echo", ""),
        )
        .await;
    assert_eq!(client.response().await.status, 200);
    let preflight = [
        ("Origin", "http://localhost:3000"),
        ("Access-Control-Request-Headers", "mcp-param-region"),
    ];
    let response = client.call("OPTIONS", "/mcp", &preflight).await;
    assert_eq!(response.status, 204);
    assert_eq!(
        response.header("access-control-allow-origin"),
        Some("http://localhost:3000")
    );
    assert!(
        response
            .header("access-control-allow-headers")
            .unwrap()
            .contains("mcp-param-region")
    );
    let mut headers = modern_headers("tools/call", Some("echo"));
    headers.push(("Origin", "http://localhost:3000"));
    let response = client.post(&headers, &modern_call("1", "echo", "")).await;
    assert_eq!(
        response.header("access-control-expose-headers"),
        Some("Mcp-Session-Id, Retry-After, WWW-Authenticate")
    );
}

#[tokio::test]
async fn body_limit_applies_with_and_without_a_declared_size() {
    let settings = FrontendSettings {
        max_body: 1000,
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let mut client = server.connect().await;
    let large = "x".repeat(1 << 20);
    let response = client.post(&[], &large).await;
    assert_eq!((response.status, response.code()), (413, -32600));
    assert!(response.body.contains("1000 bytes"), "{}", response.body);
    assert!(is_usable(&mut client).await);
    client
        .send(
            "POST",
            "/mcp",
            &[("Content-Length", ""), ("Transfer-Encoding", "chunked")],
            "",
        )
        .await;
    for _ in 0..20 {
        client
            .write(format!("64\r\n{}\r\n", "x".repeat(100)).as_bytes())
            .await;
    }
    client.write(b"0\r\n\r\n").await;
    assert_eq!(client.response().await.status, 413);
    assert!(is_usable(&mut client).await);
}

#[tokio::test]
async fn expect_continue_is_answered_before_the_body_is_sent() {
    let settings = FrontendSettings {
        max_body: 1000,
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let mut client = server.connect().await;
    client
        .send(
            "POST",
            "/mcp",
            &[("Content-Length", "5000"), ("Expect", "100-continue")],
            "",
        )
        .await;
    assert_eq!(client.response().await.status, 413);
    let mut client = server.connect().await;
    let body = modern_call("1", "echo", "");
    let length = body.len().to_string();
    let mut headers = modern_headers("tools/call", Some("echo"));
    headers.extend([
        ("Content-Length", length.as_str()),
        ("Expect", "100-continue"),
    ]);
    client.send("POST", "/mcp", &headers, "").await;
    assert_eq!(client.head().await.status, 100);
    client.write(body.as_bytes()).await;
    assert_eq!(client.response().await.status, 200);
}

const BRIEF: Duration = Duration::from_millis(40);

#[tokio::test]
async fn body_expires_after_its_timeout() {
    let server = Server::with(FrontendSettings {
        body_timeout: BRIEF,
        ..FrontendSettings::default()
    })
    .await;
    let mut client = server.connect().await;
    client
        .send("POST", "/mcp", &[("Content-Length", "500")], "{")
        .await;
    assert_eq!(client.response().await.status, 408);
}

#[tokio::test]
async fn head_expires_after_its_timeout() {
    let server = Server::with(FrontendSettings {
        header_timeout: BRIEF,
        ..FrontendSettings::default()
    })
    .await;
    let (mut slow, mut silent) = (server.connect().await, server.connect().await);
    slow.write(b"POST /mcp HTTP/1.1\r\nHost: loc").await;
    assert!(slow.is_closed().await);
    assert!(silent.is_closed().await);
}

#[tokio::test]
async fn idle_connection_is_closed_after_its_timeout() {
    let server = Server::with(FrontendSettings {
        idle_connection: BRIEF,
        ..FrontendSettings::default()
    })
    .await;
    let mut client = server.connect().await;
    assert!(is_usable(&mut client).await);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn head_limit_is_answered_with_431() {
    let settings = FrontendSettings {
        max_header: 8 << 10,
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let mut client = server.connect().await;
    let large = "x".repeat(20_000);
    client
        .send("POST", "/mcp", &[("X-Large", large.as_str())], "")
        .await;
    assert_eq!(client.response().await.status, 431);
    assert!(is_usable(&mut server.connect().await).await);
}

#[tokio::test]
async fn connection_beyond_the_limit_ends_an_idle_one() {
    let settings = FrontendSettings {
        max_connections: 1,
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let mut first = server.connect().await;
    assert!(is_usable(&mut first).await);
    let mut second = server.connect().await;
    assert!(is_usable(&mut second).await);
}

#[tokio::test]
async fn connection_beyond_the_limit_waits_while_all_carry_a_request() {
    let settings = FrontendSettings {
        max_connections: 1,
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let mut first = server.connect().await;
    let id = first.open("2025-11-25").await;
    assert_eq!(first.listen(&id, None).await.status, 200);
    first.block().await.unwrap();
    let mut second = server.connect().await;
    let headers = modern_headers("tools/call", Some("echo"));
    second
        .send("POST", "/mcp", &headers, &modern_call("1", "echo", ""))
        .await;
    drop(first);
    assert_eq!(second.response().await.status, 200);
}

#[tokio::test]
async fn stream_limit_reserves_connections_for_requests() {
    let settings = FrontendSettings {
        max_connections: 4,
        max_streams: 100,
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let mut opener = server.connect().await;
    let id = opener.open("2025-11-25").await;
    drop(opener);
    // Each kind of stream counts; a quarter of the connections is reserved for requests.
    let (mut get, mut old, mut modern) = (
        server.connect().await,
        server.connect().await,
        server.connect().await,
    );
    assert_eq!(get.listen(&id, None).await.status, 200);
    let last = get.block().await.unwrap().id.unwrap();
    old.send("GET", "/sse", &[("Accept", "text/event-stream")], "")
        .await;
    assert_eq!(old.head().await.status, 200);
    let listen = modern_request(
        "7",
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true}"#,
        "",
    );
    let listening = modern_headers("subscriptions/listen", None);
    modern.send("POST", "/mcp", &listening, &listen).await;
    assert_eq!(modern.head().await.status, 200);
    let mut client = server.connect().await;
    let headers = [
        ("Mcp-Session-Id", id.as_str()),
        ("Accept", "text/event-stream"),
    ];
    let again = [headers[0], headers[1], ("Last-Event-ID", last.as_str())];
    for refused in [
        client.call("GET", "/mcp", &headers).await,
        client.call("GET", "/mcp", &again).await,
        client
            .call("GET", "/sse", &[("Accept", "text/event-stream")])
            .await,
        client.post(&listening, &listen).await,
    ] {
        assert_eq!(
            (refused.status, refused.code()),
            (503, -32603),
            "{}",
            refused.body
        );
        assert!(
            refused
                .body
                .contains("busy: 3 event streams are open, the limit here"),
            "{}",
            refused.body
        );
        assert!(is_usable(&mut client).await);
    }
    // A permit is free once the server has noticed that its client closed the connection.
    drop(modern);
    loop {
        let response = client.listen(&id, None).await;
        if response.status == 200 {
            break;
        }
        let _ = client
            .skip(response.header("content-length").unwrap().parse().unwrap())
            .await;
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let id = server.session(&mut client).await;
    for count in 0..10 {
        let (headers, id) = ([("Mcp-Session-Id", id.as_str())], count.to_string());
        client
            .send("POST", "/mcp", &headers, &legacy_call(&id, "echo", ""))
            .await;
    }
    for count in 0..10 {
        assert_eq!(client.response().await.json()["id"], count);
    }
}

#[tokio::test]
async fn http2_connection_is_served() {
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let server = Server::start().await;
    let stream = tokio::net::TcpStream::connect(server.address)
        .await
        .unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = soon(handshake).await.unwrap();
    tokio::spawn(connection);
    let request = |host: &str| {
        let mut request = http::Request::post(format!("http://{host}/mcp"))
            .header("content-type", "application/json");
        for (name, value) in modern_headers("tools/call", Some("notify")) {
            request = request.header(name, value);
        }
        let body = modern_call("1", "notify", r#""progressToken":1"#);
        request.body(Full::new(bytes::Bytes::from(body))).unwrap()
    };
    let response = soon(sender.send_request(request("localhost")))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let body = soon(response.into_body().collect())
        .await
        .unwrap()
        .to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert_eq!(text.matches("notifications/progress").count(), 50);
    assert!(text.contains("\"resultType\":\"complete\""), "{text}");
    let refused = soon(sender.send_request(request("evil.example.com")))
        .await
        .unwrap();
    assert_eq!(refused.status(), 403);
}
