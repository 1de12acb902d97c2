//! Legacy clients over HTTP: sessions and their requests.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;

use crate::client::{Client, Server, legacy_call, listen};
use crate::core::{Happened, TestCore, told};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn session_lives_from_initialize_to_delete() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let body = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}"#;
    let opened = client.post(&[], body).await;
    assert_eq!(
        opened.body,
        r#"{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1.0"},"x":1.00}}"#
    );
    let id = opened.header("mcp-session-id").unwrap().to_owned();
    assert!(id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_graphic()));
    let first = server.log.began().await;

    let session = [
        ("Mcp-Session-Id", id.as_str()),
        ("MCP-Protocol-Version", "2025-06-18"),
    ];
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(client.post(&session, initialized).await.status, 202);
    assert_eq!(
        client.post(&session, PING).await.body,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#
    );
    let called = client
        .post(&session, &legacy_call("1.0e1", "echo", ""))
        .await;
    assert_eq!((called.status, called.code()), (400, -32600));
    let called = client.post(&session, &legacy_call("10", "echo", "")).await;
    assert_eq!(
        called.body,
        r#"{"jsonrpc":"2.0","id":10,"result":{ "content":[],"structuredContent":{"a":1.0}, "n": 1.0 }}"#
    );
    let second = server.log.began().await;
    assert_eq!(
        told(&second.context),
        (
            Some(r#"{"name":"c","version":"1"}"#),
            r#"{"roots":{}}"#,
            None,
            false
        )
    );
    assert_eq!(first.context.caller, second.context.caller);
    assert_eq!(
        client
            .post(&session, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
            .await
            .status,
        202
    );

    assert_eq!(client.call("DELETE", "/mcp", &session).await.status, 204);
    assert_eq!(client.call("DELETE", "/mcp", &session).await.status, 404);
    assert_eq!(client.call("DELETE", "/mcp", &[]).await.status, 400);
    let ended = client.post(&session, PING).await;
    assert_eq!((ended.status, ended.json()["id"].as_i64()), (404, Some(1)));
}

#[tokio::test]
async fn request_without_a_known_session_is_refused() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let id = server.session(&mut client).await;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for body in [PING, notification, response] {
        assert_eq!(client.post(&[], body).await.status, 400, "{body}");
        assert_eq!(
            client
                .post(&[("Mcp-Session-Id", "unknown")], body)
                .await
                .status,
            404,
            "{body}"
        );
    }
    let session = ("Mcp-Session-Id", id.as_str());
    // Any legacy revision is accepted, even if another was negotiated; an unknown or modern one is
    // refused.
    assert_eq!(
        client
            .post(&[session, ("MCP-Protocol-Version", "2024-11-05")], PING)
            .await
            .status,
        200
    );
    assert_eq!(
        client
            .post(&[session, ("MCP-Protocol-Version", "1999-01-01")], PING)
            .await
            .status,
        400
    );
    assert_eq!(
        client
            .post(
                &[session, ("MCP-Protocol-Version", "1999-01-01")],
                notification
            )
            .await
            .status,
        400
    );
    assert_eq!(
        client
            .post(&[session, ("MCP-Protocol-Version", "2026-07-28")], PING)
            .await
            .status,
        400
    );
}

#[tokio::test]
async fn refused_initialize_opens_no_session() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let response = client
        .post(
            &[],
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
        )
        .await;
    assert_eq!(
        (
            response.status,
            response.code(),
            response.header("mcp-session-id")
        ),
        (200, -32602, None)
    );
}

#[tokio::test]
async fn initialize_is_rendered_from_a_modern_description() {
    let modern = r#"{"supportedVersions":["2026-07-28"],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"2"}}}"#;
    let (core, _log) = TestCore::described_by(modern);
    let (address, ..) = listen(core.gateway(&[]), FrontendSettings::default()).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2099-01-01"}}"#;
    let result = Client::connect(address).await.post(&[], body).await.json()["result"].clone();
    assert_eq!(
        (&result["protocolVersion"], &result["serverInfo"]["name"]),
        (&"2025-11-25".into(), &"m".into())
    );
    assert_eq!(result["capabilities"], serde_json::json!({}));
    assert!(result.get("supportedVersions").is_none());
}

#[tokio::test]
async fn error_of_a_legacy_call_is_unchanged_with_status_200() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let id = server.session(&mut client).await;
    let session = [("Mcp-Session-Id", id.as_str())];
    for code in [-32601, -32002, -32602] {
        let body = legacy_call("1", "fail", "").replace(r#""a":1.0"#, &format!(r#""code":{code}"#));
        let response = client.post(&session, &body).await;
        assert_eq!((response.status, response.code()), (200, code));
    }
}

#[tokio::test]
async fn log_level_belongs_to_its_session() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let (quiet, loud) = (
        server.session(&mut client).await,
        server.session(&mut client).await,
    );
    let quiet = [("Mcp-Session-Id", quiet.as_str())];
    let loud = [("Mcp-Session-Id", loud.as_str())];
    let set = |level: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
        )
    };
    assert_eq!(client.post(&quiet, &set("nonsense")).await.code(), -32602);
    assert_eq!(
        client.post(&quiet, &set("error")).await.json()["result"],
        serde_json::json!({})
    );
    // The server refuses this level, so the session keeps its own.
    assert_eq!(client.post(&quiet, &set("emergency")).await.code(), -32602);
    let logged = async |client: &mut Client, session: &[(&str, &str)]| {
        let events = client
            .post(session, &legacy_call("1", "notify", ""))
            .await
            .events();
        events
            .iter()
            .filter(|event| event.contains("notifications/message"))
            .count()
    };
    assert_eq!(logged(&mut client, &quiet).await, 1);
    assert_eq!(logged(&mut client, &loud).await, 3);
    // Two descriptions, two levels, and the call that the first applies to.
    for _ in 0..4 {
        server.log.began().await;
    }
    assert_eq!(told(&server.log.began().await.context).2, Some("error"));
}

#[tokio::test]
async fn cancelled_request_ends_without_a_response() {
    let mut server = Server::start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    let id = server.session(&mut client).await;
    let session = [("Mcp-Session-Id", id.as_str())];
    client
        .send(
            "POST",
            "/mcp",
            &session,
            &legacy_call(r#""\u0061""#, "wait", ""),
        )
        .await;
    server.log.began().await;
    server.log.began().await;
    let cancel = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"r"}}}}"#
        )
    };
    assert_eq!(other.post(&session, &cancel("1")).await.status, 202);
    assert_eq!(other.post(&session, &cancel(r#""a""#)).await.status, 202);
    let response = client.response().await;
    assert_eq!((response.status, response.events().len()), (200, 0));
    assert!(matches!(server.log.ended().await, Happened::Dropped));
    assert_eq!(client.post(&session, PING).await.status, 200);
}

#[tokio::test]
async fn legacy_request_continues_after_its_client_disconnects() {
    let mut server = Server::start().await;
    for tool in ["wait", "notify-and-wait"] {
        let mut client = server.connect().await;
        let id = server.session(&mut client).await;
        server.log.began().await;
        client
            .send(
                "POST",
                "/mcp",
                &[("Mcp-Session-Id", &id)],
                &legacy_call("1", tool, "7"),
            )
            .await;
        server.log.began().await;
        if tool == "notify-and-wait" {
            client.head().await;
        }
        drop(client);
        server.core.release.add_permits(1);
        assert!(
            matches!(server.log.ended().await, Happened::Answered),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn session_ends_with_its_requests() {
    let mut server = Server::start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    let id = server.session(&mut client).await;
    let session = [("Mcp-Session-Id", id.as_str())];
    client
        .send("POST", "/mcp", &session, &legacy_call("1", "wait", ""))
        .await;
    server.log.began().await;
    server.log.began().await;
    assert_eq!(other.call("DELETE", "/mcp", &session).await.status, 204);
    assert_eq!(client.response().await.events().len(), 0);
}

#[tokio::test]
async fn session_limit_evicts_only_unused_sessions() {
    let settings = FrontendSettings {
        max_sessions: 1,
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    let first = server.session(&mut client).await;
    let second = server.session(&mut client).await;
    assert_eq!(
        client
            .post(&[("Mcp-Session-Id", &first)], PING)
            .await
            .status,
        404
    );
    client
        .send(
            "POST",
            "/mcp",
            &[("Mcp-Session-Id", &second)],
            &legacy_call("1", "wait", ""),
        )
        .await;
    for _ in 0..3 {
        server.log.began().await;
    }
    let body = r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let refused = other.post(&[], body).await;
    assert_eq!(
        (refused.status, refused.json()["id"].as_i64()),
        (503, Some(9))
    );
    assert!(
        refused.body.contains("sessions are in use"),
        "{}",
        refused.body
    );
    server.core.release.add_permits(1);
    assert_eq!(client.response().await.status, 200);
    assert_eq!(other.post(&[], body).await.status, 200);
}

#[tokio::test]
async fn session_expires_after_idle_timeout() {
    let settings = FrontendSettings {
        session_idle: Duration::ZERO,
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let mut client = server.connect().await;
    let id = server.session(&mut client).await;
    assert_eq!(
        client.post(&[("Mcp-Session-Id", &id)], PING).await.status,
        404
    );
}
