//! Refusals at the listener: clear, harmless to others, and no end of a kept-alive connection.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;

use crate::client::{Client, Server, legacy_call, modern_call, modern_headers, soon};

/// The connection still answers a call.
async fn is_well(client: &mut Client) -> bool {
    client.post(&modern_headers("tools/call", Some("echo")), &modern_call("1", "echo", "")).await.status == 200
}

#[tokio::test]
async fn each_refusal_has_its_status_and_leaves_the_connection_alone() {
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
        (&[], r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, 400, -32600),
        (&[], "7", 400, -32600),
        (&[], &deep, 400, -32600),
    ];
    for (headers, body, status, code) in cases {
        let response = client.post(headers, body).await;
        assert_eq!((response.status, response.code()), (*status, *code), "{headers:?} {}", response.body);
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert!(response.json().get("id").is_none(), "{}", response.body);
        assert!(is_well(&mut client).await, "{headers:?}");
    }
    let doubled = r#"{"jsonrpc":"2.0","id":7,"method":"ping","method":"ping"}"#;
    let response = client.post(&[], doubled).await;
    assert_eq!((response.status, response.code(), response.json()["id"].as_i64()), (400, -32600, Some(7)));
    let response = client.post(&[], &deep).await;
    assert!(response.body.contains("128 levels"), "{}", response.body);
}

#[tokio::test]
async fn other_paths_and_methods() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    assert_eq!(client.call("GET", "/", &[]).await.status, 404);
    assert_eq!(client.call("POST", "/mcp2", &[]).await.status, 404);
    for method in ["PUT", "PATCH"] {
        let response = client.call(method, "/mcp", &[]).await;
        assert_eq!((response.status, response.header("allow")), (405, Some("GET, POST, DELETE, OPTIONS")), "{method}");
    }
    client.send("POST", "/mcp/?x=1", &modern_headers("tools/call", Some("echo")), &modern_call("1", "echo", "")).await;
    assert_eq!(client.response().await.status, 200);
    let preflight = [("Origin", "http://localhost:3000"), ("Access-Control-Request-Headers", "mcp-param-region")];
    let response = client.call("OPTIONS", "/mcp", &preflight).await;
    assert_eq!(response.status, 204);
    assert_eq!(response.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert!(response.header("access-control-allow-headers").unwrap().contains("mcp-param-region"));
    let mut headers = modern_headers("tools/call", Some("echo"));
    headers.push(("Origin", "http://localhost:3000"));
    let response = client.post(&headers, &modern_call("1", "echo", "")).await;
    assert_eq!(response.header("access-control-expose-headers"), Some("Mcp-Session-Id"));
}

#[tokio::test]
async fn bodies_are_bounded_whether_their_size_is_declared_or_not() {
    let settings = FrontendSettings { max_body: 1000, ..FrontendSettings::default() };
    let server = Server::with(settings).await;
    let mut client = server.connect().await;
    let large = "x".repeat(1 << 20);
    let response = client.post(&[], &large).await;
    assert_eq!((response.status, response.code()), (413, -32600));
    assert!(response.body.contains("1000 bytes"), "{}", response.body);
    assert!(is_well(&mut client).await);
    client.send("POST", "/mcp", &[("Content-Length", ""), ("Transfer-Encoding", "chunked")], "").await;
    for _ in 0..20 {
        client.write(format!("64\r\n{}\r\n", "x".repeat(100)).as_bytes()).await;
    }
    client.write(b"0\r\n\r\n").await;
    assert_eq!(client.response().await.status, 413);
    assert!(is_well(&mut client).await);
}

#[tokio::test]
async fn a_client_that_waits_to_continue_is_told_before_it_sends() {
    let settings = FrontendSettings { max_body: 1000, ..FrontendSettings::default() };
    let server = Server::with(settings).await;
    let mut client = server.connect().await;
    client.send("POST", "/mcp", &[("Content-Length", "5000"), ("Expect", "100-continue")], "").await;
    assert_eq!(client.response().await.status, 413);
    let mut client = server.connect().await;
    let body = modern_call("1", "echo", "");
    let length = body.len().to_string();
    let mut headers = modern_headers("tools/call", Some("echo"));
    headers.extend([("Content-Length", length.as_str()), ("Expect", "100-continue")]);
    client.send("POST", "/mcp", &headers, "").await;
    assert_eq!(client.head().await.status, 100);
    client.write(body.as_bytes()).await;
    assert_eq!(client.response().await.status, 200);
}

const BRIEF: Duration = Duration::from_millis(40);

#[tokio::test]
async fn a_slow_body_is_given_up() {
    let server = Server::with(FrontendSettings { body_timeout: BRIEF, ..FrontendSettings::default() }).await;
    let mut client = server.connect().await;
    client.send("POST", "/mcp", &[("Content-Length", "500")], "{").await;
    assert_eq!(client.response().await.status, 408);
}

#[tokio::test]
async fn a_head_that_does_not_arrive_is_given_up() {
    let server = Server::with(FrontendSettings { header_timeout: BRIEF, ..FrontendSettings::default() }).await;
    let (mut slow, mut silent) = (server.connect().await, server.connect().await);
    slow.write(b"POST /mcp HTTP/1.1\r\nHost: loc").await;
    assert!(slow.is_closed().await);
    assert!(silent.is_closed().await);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let server = Server::with(FrontendSettings { idle_connection: BRIEF, ..FrontendSettings::default() }).await;
    let mut client = server.connect().await;
    assert!(is_well(&mut client).await);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn heads_are_bounded() {
    let settings = FrontendSettings { max_header: 8 << 10, ..FrontendSettings::default() };
    let server = Server::with(settings).await;
    let mut client = server.connect().await;
    let large = "x".repeat(20_000);
    client.send("POST", "/mcp", &[("X-Large", large.as_str())], "").await;
    assert_eq!(client.response().await.status, 431);
    assert!(is_well(&mut server.connect().await).await);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let settings = FrontendSettings { max_connections: 1, ..FrontendSettings::default() };
    let server = Server::with(settings).await;
    let mut first = server.connect().await;
    assert!(is_well(&mut first).await);
    let mut second = server.connect().await;
    let headers = modern_headers("tools/call", Some("echo"));
    second.send("POST", "/mcp", &headers, &modern_call("1", "echo", "")).await;
    assert!(is_well(&mut first).await);
    drop(first);
    assert_eq!(second.response().await.status, 200);
}

#[tokio::test]
async fn requests_in_one_go_are_answered_in_turn() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let id = server.session(&mut client).await;
    for count in 0..10 {
        let (headers, id) = ([("Mcp-Session-Id", id.as_str())], count.to_string());
        client.send("POST", "/mcp", &headers, &legacy_call(&id, "echo", "")).await;
    }
    for count in 0..10 {
        assert_eq!(client.response().await.json()["id"], count);
    }
}

#[tokio::test]
async fn http2_is_served_too() {
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let server = Server::start().await;
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = soon(handshake).await.unwrap();
    tokio::spawn(connection);
    let request = |host: &str| {
        let mut request = http::Request::post(format!("http://{host}/mcp")).header("content-type", "application/json");
        for (name, value) in modern_headers("tools/call", Some("notify")) {
            request = request.header(name, value);
        }
        let body = modern_call("1", "notify", r#""progressToken":1"#);
        request.body(Full::new(bytes::Bytes::from(body))).unwrap()
    };
    let response = soon(sender.send_request(request("localhost"))).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert_eq!(text.matches("notifications/progress").count(), 50);
    assert!(text.contains("\"resultType\":\"complete\""), "{text}");
    let refused = soon(sender.send_request(request("evil.example.com"))).await.unwrap();
    assert_eq!(refused.status(), 403);
}
