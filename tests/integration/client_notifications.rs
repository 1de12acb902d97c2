//! Notifications of clients that Fanlight does not know: they reach the servers that the client's session has opened.

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

async fn server(transport: Transport) -> Backend {
    let backend = Backend::start(Era::Legacy, transport).await;
    backend.offers_tools(&["t"]);
    backend.on("tools/call", Reply::result(Era::Legacy.complete(r#""content":[]"#)));
    backend
}

async fn notify(session: &LegacySession, method: &str, params: &str) {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}"#);
    assert_eq!(session.post(&text).await.status, 202, "{text}");
}

async fn call(session: &LegacySession, name: &str) {
    let (_, answer) =
        session.post(&legacy_request("1", "tools/call", &format!(r#""name":"{name}""#))).await.messages().await;
    assert!(answer.contains("result"), "{answer}");
}

#[tokio::test]
async fn unknown_notification_reaches_the_servers_that_the_session_has_opened() {
    let (http, stdio, unused) =
        (server(Transport::Http).await, server(Transport::Stdio).await, server(Transport::Http).await);
    let gateway = Gateway::start(&config(&[http.entry("http"), stdio.entry("stdio"), unused.entry("unused")])).await;
    let session = LegacySession::open_with(gateway.mcp, "2025-11-25", r#"{"roots":{"listChanged":true}}"#).await;
    call(&session, "http__t").await;
    call(&session, "stdio__t").await;
    assert_eq!(session.post(CHANGED).await.status, 202);
    notify(&session, "notifications/x", "\n\"k\": 1.0").await;
    for server in [&http, &stdio] {
        server.wait_for("notifications/roots/list_changed", 1).await;
        let received = server.wait_for("notifications/x", 1).await;
        assert_eq!(received[0].member("params.k"), Some("1.0"));
    }
    // Another client's session is another connection.
    let other = LegacySession::open(gateway.mcp).await;
    call(&other, "unused__t").await;
    notify(&other, "notifications/y", "").await;
    unused.wait_for("notifications/y", 1).await;
    assert!(http.received("notifications/y").is_empty() && unused.received("notifications/x").is_empty());
}

#[tokio::test]
async fn unknown_notification_goes_to_the_server_of_what_it_names() {
    let (a, b) = (server(Transport::Http).await, server(Transport::Http).await);
    let gateway = Gateway::start(&config(&[a.entry("a"), b.entry("b")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    call(&session, "a__t").await;
    call(&session, "b__t").await;
    notify(&session, "notifications/named", r#""tool":"b__t""#).await;
    // A request or token of this hop is that of another at a server.
    notify(&session, "notifications/hop", r#""requestId":1"#).await;
    notify(&session, "notifications/hop", r#""progressToken":1"#).await;
    notify(&session, "notifications/all", "").await;
    for server in [&a, &b] {
        server.wait_for("notifications/all", 1).await;
        assert!(server.received("notifications/hop").is_empty());
    }
    let named = b.wait_for("notifications/named", 1).await;
    assert_eq!(named[0].member("params.tool"), Some("\"t\""));
    assert!(a.received("notifications/named").is_empty());
}

#[tokio::test]
async fn unknown_notification_reaches_the_only_server() {
    let server = server(Transport::Http).await;
    let gateway = Gateway::start(&config(&[server.entry("only")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    call(&session, "t").await;
    notify(&session, "notifications/x", r#""uri":"x:\/\/1""#).await;
    let received = server.wait_for("notifications/x", 1).await;
    assert_eq!(received[0].member("params.uri"), Some(r#""x:\/\/1""#));
}
