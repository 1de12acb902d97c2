//! The admin listener of the real binary: access, and its data about clients and servers.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use fanlight_tests::slicer::{member, plain_string};

use crate::faults::backend;
use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{
    Connection, LegacySession, NEWEST_LEGACY, Response, StdioClient, legacy_request,
    modern_request, modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};

const TOKEN: &str = "0123456789abcdef0123";

async fn get(admin: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut connection = Connection::open(admin).await;
    connection.request("GET", path, headers, b"").await;
    connection.response().await
}

async fn json(admin: SocketAddr, path: &str) -> String {
    let mut response = get(admin, path, &[]).await;
    assert_eq!(
        (response.status, response.header("content-type")),
        (200, Some("application/json")),
        "{path}"
    );
    response.text().await
}

/// The configuration `servers` with an `admin` that has these members.
fn with_admin(servers: &str, members: &str) -> String {
    format!(
        r#"{},"admin":{{{members}}}}}"#,
        servers.trim_end().strip_suffix('}').unwrap()
    )
}

#[tokio::test]
async fn admin_routes_answer_and_event_streams_end_with_the_process() {
    let backend = backend(Era::Modern, Transport::Http).await;
    let gateway = Gateway::start(&config(&[backend.entry("only")])).await;
    // The response shows that the server is connected, which readiness requires.
    post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
        .await
        .text()
        .await;
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/ui",
        "/ui/app.js",
        "/api/overview",
        "/api/traces",
        "/api/config",
    ] {
        assert_eq!(get(gateway.admin, path, &[]).await.status, 200, "{path}");
    }
    let overview = json(gateway.admin, "/api/overview").await;
    assert_eq!(
        member(&overview, "endpoint").and_then(plain_string),
        Some(gateway.url().as_str())
    );
    let mut events = get(gateway.admin, "/api/events", &[]).await;
    assert!(events.is_event_stream());
    assert!(
        events
            .event()
            .await
            .unwrap()
            .unwrap()
            .contains(r#""name":"only""#)
    );
    assert!(gateway.terminate().await.success());
    while events.event().await.unwrap().is_some() {}
}

#[tokio::test]
async fn call_from_the_page_goes_through_the_gateway() {
    let backend = backend(Era::Modern, Transport::Stdio).await;
    let result = r#"{"content":[],"structuredContent":{"n":1E400,"m": 1.0},"_meta":{"x/y":[ ]}}"#;
    backend.on("tools/call", Reply::result(result));
    let gateway = Gateway::start(&config(&[backend.entry("only")])).await;
    let mut connection = Connection::open(gateway.admin).await;
    let body = r#"{"method":"tools/call","params":{"name":"t","arguments":{"a": 2.50}}}"#;
    connection
        .request(
            "POST",
            "/api/call",
            &[("Content-Type", "application/json")],
            body.as_bytes(),
        )
        .await;
    let answer = connection.response().await.text().await;
    assert!(
        answer.contains(&format!(r#""result":{result}"#)),
        "{answer}"
    );
    assert_eq!(
        backend.received("tools/call")[0].member("params.arguments"),
        Some(r#"{"a": 2.50}"#)
    );
    let trace = member(&answer, "traceId")
        .and_then(plain_string)
        .expect("a trace");
    let listed = json(gateway.admin, "/api/traces").await;
    assert!(listed.contains(trace), "{listed}");
    let otlp = json(gateway.admin, &format!("/api/traces/{trace}")).await;
    assert!(
        otlp.starts_with(r#"{"resourceSpans":["#) && otlp.contains(trace),
        "{otlp}"
    );
}

#[tokio::test]
async fn sessions_and_suspended_calls_are_shown_without_secrets() {
    const ASKED: &str = r#"{"jsonrpc":"2.0","id":"ask","method":"roots/list"}"#;
    let backend: Backend = backend(Era::Legacy, Transport::Http).await;
    backend.once(
        "tools/call",
        Reply::result(r#"{"content":[]}"#).asking(&[ASKED]),
    );
    let gateway = Gateway::start(&config(&[backend.entry("only")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    let call = modern_request_with(r#"{"roots":{}}"#, "1", "tools/call", r#""name":"t""#, "");
    let suspended = post_modern(gateway.mcp, &call).await.text().await;
    let state = member(&suspended, "result.requestState")
        .and_then(plain_string)
        .expect("a suspended call");

    let seen = json(gateway.admin, "/api/sessions").await;
    assert_eq!(
        (
            member(&seen, "sessionCount"),
            member(&seen, "suspendedCallCount")
        ),
        (Some("1"), Some("1")),
        "{seen}"
    );
    assert!(
        seen.contains(r#""revision":"2025-11-25""#) && seen.contains(r#""transport":"http""#),
        "{seen}"
    );
    assert!(
        seen.contains(r#""method":"tools/call","name":"t","asked":["roots/list"],"round":1"#),
        "{seen}"
    );
    let overview = json(gateway.admin, "/api/overview").await;
    assert_eq!(
        (
            member(&overview, "sessions"),
            member(&overview, "suspendedCalls")
        ),
        (Some("1"), Some("1")),
        "{overview}"
    );
    let id = session.session.as_deref().expect("a session");
    assert!(
        !seen.contains(&id[..8]) && !seen.contains(&state[..16]),
        "{seen}"
    );
    session.delete().await;
    let seen = json(gateway.admin, "/api/sessions").await;
    assert_eq!(member(&seen, "sessionCount"), Some("0"));
}

#[tokio::test]
async fn shown_configuration_masks_the_token() {
    let backend = backend(Era::Legacy, Transport::Stdio).await;
    let servers = config(&[backend.entry("only")]);
    let text = with_admin(&servers, &format!(r#""token":"{TOKEN}""#));
    let gateway = Gateway::start(&text).await;
    assert_eq!(get(gateway.admin, "/api/config", &[]).await.status, 401);
    let bearer = format!("Bearer {TOKEN}");
    let shown = get(gateway.admin, "/api/config", &[("Authorization", &bearer)])
        .await
        .text()
        .await;
    assert!(
        shown.contains(r#""only""#) && shown.contains(r#""token": "***""#),
        "{shown}"
    );
    assert!(!shown.contains(TOKEN));
    assert!(!gateway.log.text().contains(TOKEN));
}

#[tokio::test]
async fn admin_listener_beyond_loopback_requires_a_token() {
    let backend = backend(Era::Legacy, Transport::Stdio).await;
    let servers = config(&[backend.entry("only")]);
    let open = with_admin(&servers, r#""listen":"0.0.0.0:0""#);
    for (text, arguments) in [
        (servers.as_str(), &["--admin", "0.0.0.0:0"][..]),
        (&open, &[]),
    ] {
        let file = TempFile::new("yaml", text);
        let mut command = fanlight();
        command
            .args(["run", "--listen", "127.0.0.1:0", "--config"])
            .arg(file.path())
            .args(arguments)
            .stdin(Stdio::null());
        let output = within("the refusal", command.output()).await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains("token") && text.contains("FANLIGHT_ADMIN_TOKEN"),
            "{text}"
        );
    }
}

/// The address is in the log, since standard output carries only messages.
#[tokio::test]
async fn stdio_gateway_has_an_admin_listener_if_configured() {
    let backend = backend(Era::Legacy, Transport::Stdio).await;
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    let servers = config(&[backend.entry("only")]);
    let configured = with_admin(&servers, r#""listen":"127.0.0.1:0""#);
    for (text, arguments) in [
        (&servers, &["--admin", "127.0.0.1:0"][..]),
        (&configured, &[]),
    ] {
        let mut gateway = Gateway::stdio_with(text, arguments);
        let admin = gateway.log.line_with("admin on http://").await;
        let admin: SocketAddr = admin
            .split("http://")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let mut client = StdioClient::new(&mut gateway);
        client.initialize(NEWEST_LEGACY).await;
        client
            .call(&legacy_request("1", "tools/call", r#""name":"t""#))
            .await;
        for path in ["/healthz", "/readyz", "/ui", "/api/config"] {
            assert_eq!(get(admin, path, &[]).await.status, 200, "{path}");
        }
        let overview = json(admin, "/api/overview").await;
        assert_eq!(
            (member(&overview, "endpoint"), member(&overview, "sessions")),
            (Some(r#""stdio""#), Some("1"))
        );
        let seen = json(admin, "/api/sessions").await;
        assert!(
            seen.contains(r#""digest":null,"transport":"stdio","revision":"2025-11-25""#),
            "{seen}"
        );
        assert!(json(admin, "/api/traces").await.contains("tools/call t"));
        let metrics = get(admin, "/metrics", &[]).await.text().await;
        assert!(metrics.contains("fanlight_sessions_active 1"), "{metrics}");
        client.close_input();
        assert_eq!(gateway.ended().await.code(), Some(0));
    }
}

/// A desktop client starts several processes on one machine, which would compete for the port.
#[tokio::test]
async fn stdio_gateway_has_no_admin_listener_by_default() {
    let backend = backend(Era::Legacy, Transport::Stdio).await;
    let servers = config(&[backend.entry("only")]);
    let with_token = with_admin(&servers, &format!(r#""token":"{TOKEN}""#));
    let configured = with_admin(&servers, r#""listen":"127.0.0.1:0""#);
    for (text, arguments) in [
        (&servers, &[][..]),
        (&with_token, &[]),
        (&configured, &["--admin", "off"]),
    ] {
        let mut gateway = Gateway::stdio_with(text, arguments);
        let mut client = StdioClient::new(&mut gateway);
        client.initialize(NEWEST_LEGACY).await;
        assert_eq!(gateway.listening_sockets(), 0);
        client.close_input();
        assert_eq!(gateway.ended().await.code(), Some(0));
        assert!(!gateway.log.text().contains("admin on"));
    }
}

/// The page cannot answer server requests: the server gets an error, and the page lists the refused
/// requests.
#[tokio::test]
async fn call_from_the_page_reports_refused_server_requests() {
    const ASKED: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}"#;
    for transport in [Transport::Http, Transport::Stdio] {
        let legacy = backend(Era::Legacy, transport).await;
        let refusal = |_: &Received, answers: &[Arc<Received>]| {
            format!(
                r#"{{"content":[],"refusal":{}}}"#,
                answers[0].member("error").unwrap()
            )
        };
        legacy.once("tools/call", Reply::conclude(refusal).asking(&[ASKED]));
        let gateway = Gateway::start(&config(&[legacy.entry("only")])).await;
        let answer = call(&gateway).await;
        assert_eq!(
            member(&answer, "requiredCapabilities"),
            Some(r#"{"elicitation":{}}"#),
            "{transport:?}: {answer}"
        );
        assert_eq!(
            member(&answer, "result.refusal.code"),
            Some("-32601"),
            "{answer}"
        );
        assert!(
            member(&answer, "result.refusal.message")
                .unwrap()
                .contains("elicitation"),
            "{answer}"
        );
        // A call without server requests has no `requiredCapabilities`.
        legacy.once("tools/call", Reply::result(r#"{"content":[]}"#));
        assert_eq!(member(&call(&gateway).await, "requiredCapabilities"), None);
    }
    let modern = backend(Era::Modern, Transport::Http).await;
    let input_required = r#"{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"s"}"#;
    modern.once("tools/call", Reply::result(input_required));
    let gateway = Gateway::start(&config(&[modern.entry("only")])).await;
    let answer = call(&gateway).await;
    assert_eq!(
        member(&answer, "requiredCapabilities"),
        Some(r#"{"roots":{}}"#),
        "{answer}"
    );
    assert_eq!(member(&answer, "result"), Some(input_required), "{answer}");
}

/// Calls the tool `t` in the way that the page does.
async fn call(gateway: &Gateway) -> String {
    let mut connection = Connection::open(gateway.admin).await;
    let body = r#"{"method":"tools/call","params":{"name":"t","arguments":{}}}"#;
    connection
        .request(
            "POST",
            "/api/call",
            &[("Content-Type", "application/json")],
            body.as_bytes(),
        )
        .await;
    connection.response().await.text().await
}
