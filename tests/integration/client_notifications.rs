//! Client notifications that Fanlight does not know reach the servers that the client's session has
//! opened.

use fanlight_tests::slicer::member;

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

async fn server(transport: Transport) -> Backend {
    let backend = Backend::start(Era::Legacy, transport).await;
    backend.offers_tools(&["t"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Legacy.complete(r#""content":[]"#)),
    );
    backend
}

async fn notify(session: &LegacySession, method: &str, params: &str) {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}"#);
    assert_eq!(session.post(&text).await.status, 202, "{text}");
}

async fn call(session: &LegacySession, name: &str) {
    let (_, answer) = session
        .post(&legacy_request(
            "1",
            "tools/call",
            &format!(r#""name":"{name}""#),
        ))
        .await
        .messages()
        .await;
    assert!(answer.contains("result"), "{answer}");
}

#[tokio::test]
async fn unknown_notification_reaches_the_servers_that_the_session_has_opened() {
    let (http, stdio, unused) = (
        server(Transport::Http).await,
        server(Transport::Stdio).await,
        server(Transport::Http).await,
    );
    let gateway = Gateway::start(&config(&[
        http.entry("http"),
        stdio.entry("stdio"),
        unused.entry("unused"),
    ]))
    .await;
    let session = LegacySession::open_with(
        gateway.mcp,
        "2025-11-25",
        r#"{"roots":{"listChanged":true}}"#,
    )
    .await;
    call(&session, "http__t").await;
    call(&session, "stdio__t").await;
    assert_eq!(session.post(CHANGED).await.status, 202);
    notify(&session, "notifications/x", "\n\"k\": 1.0").await;
    for server in [&http, &stdio] {
        server.wait_for("notifications/roots/list_changed", 1).await;
        let received = server.wait_for("notifications/x", 1).await;
        assert_eq!(received[0].member("params.k"), Some("1.0"));
    }
    // Another client's session has another connection to the server.
    let other = LegacySession::open(gateway.mcp).await;
    call(&other, "unused__t").await;
    notify(&other, "notifications/y", "").await;
    unused.wait_for("notifications/y", 1).await;
    assert!(
        http.received("notifications/y").is_empty()
            && unused.received("notifications/x").is_empty()
    );
}

#[tokio::test]
async fn notification_before_the_first_request_reaches_the_server_once_the_session_is_there() {
    for transport in [Transport::Http, Transport::Stdio] {
        let server = server(transport).await;
        let gateway = Gateway::start(&config(&[server.entry("only")])).await;
        let session = LegacySession::open_with(
            gateway.mcp,
            "2025-11-25",
            r#"{"roots":{"listChanged":true}}"#,
        )
        .await;
        assert_eq!(session.post(CHANGED).await.status, 202);
        notify(&session, "notifications/x", "\n\"k\": 1.0").await;
        call(&session, "t").await;
        server.wait_for("notifications/roots/list_changed", 1).await;
        let received = server.wait_for("notifications/x", 1).await;
        assert_eq!(received[0].member("params.k"), Some("1.0"));
        call(&session, "t").await;
        notify(&session, "notifications/last", "").await;
        server.wait_for("notifications/last", 1).await;
        assert_eq!(server.received("notifications/x").len(), 1);
    }
}

#[tokio::test]
async fn unknown_notification_goes_to_the_server_of_what_it_names() {
    let (a, b) = (server(Transport::Http).await, server(Transport::Http).await);
    let gateway = Gateway::start(&config(&[a.entry("a"), b.entry("b")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    call(&session, "a__t").await;
    call(&session, "b__t").await;
    notify(&session, "notifications/named", r#""tool":"b__t""#).await;
    // No such request is running. At a server, these ids would name another client's request.
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

#[tokio::test]
async fn notification_that_names_a_running_request_goes_where_the_request_was_sent() {
    let (a, b) = (
        server(Transport::Http).await,
        server(Transport::Stdio).await,
    );
    let gateway = Gateway::start(&config(&[a.entry("a"), b.entry("b")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    call(&session, "a__t").await;
    b.on("tools/call", Reply::driven());
    let params = r#""name":"b__t","_meta":{"progressToken":"mine"}"#;
    let mut running = session
        .post(&legacy_request(r#""r\u0031""#, "tools/call", params))
        .await;
    let stream = b.stream(0).await;
    let (id, token) = (
        stream.request.member("id"),
        stream.request.member("params._meta.progressToken"),
    );
    notify(&session, "notifications/x", r#""requestId":"r1","k":1E400"#).await;
    notify(
        &session,
        "notifications/x",
        r#""progressToken":"mine","requestId":"r1""#,
    )
    .await;
    // Ids of no running request, of two requests at once, and of another client's request.
    notify(&session, "notifications/lost", r#""requestId":"r2""#).await;
    notify(&session, "notifications/lost", r#""progressToken":"r1""#).await;
    notify(
        &session,
        "notifications/lost",
        r#""progressToken":"mine","requestId":1"#,
    )
    .await;
    let other = LegacySession::open(gateway.mcp).await;
    b.on(
        "tools/call",
        Reply::result(Era::Legacy.complete(r#""content":[]"#)),
    );
    call(&other, "b__t").await;
    notify(&other, "notifications/lost", r#""requestId":"r1""#).await;
    let named = b.wait_for("notifications/x", 2).await;
    assert_eq!(
        (
            named[0].member("params.requestId"),
            named[0].member("params.k")
        ),
        (id, Some("1E400"))
    );
    assert_eq!(
        (
            named[1].member("params.requestId"),
            named[1].member("params.progressToken")
        ),
        (id, token)
    );
    stream
        .result(&Era::Legacy.complete(r#""content":[]"#))
        .await;
    while running
        .event()
        .await
        .unwrap()
        .is_some_and(|message| member(&message, "result").is_none())
    {}
    notify(&session, "notifications/lost", r#""requestId":"r1""#).await;
    notify(&session, "notifications/last", "").await;
    notify(&other, "notifications/last", "").await;
    a.wait_for("notifications/last", 1).await;
    b.wait_for("notifications/last", 2).await;
    assert!(a.received("notifications/x").is_empty());
    assert!(
        a.received("notifications/lost").is_empty() && b.received("notifications/lost").is_empty()
    );
}

/// Begins a call during which the server sends a request; returns the forwarded request.
async fn elicit(
    session: &LegacySession,
    server: &Backend,
) -> (crate::raw_client::Response, String) {
    let request = legacy_request("5", "tools/call", r#""name":"a__t""#);
    let mut stream = session.post(&request).await;
    let relayed = stream.event().await.unwrap().expect("a server request");
    assert_eq!(server.received("tools/call").len(), 1);
    (stream, relayed)
}

#[tokio::test]
async fn progress_of_a_client_on_a_server_request_reaches_that_server_under_its_own_token() {
    for transport in [Transport::Http, Transport::Stdio] {
        let (a, b) = (server(transport).await, server(transport).await);
        let elicitation = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}},"_meta":{"progressToken":7,"k":1.0}}}"#;
        a.on(
            "tools/call",
            Reply::result(Era::Legacy.complete(r#""content":[]"#)).asking(&[elicitation]),
        );
        let gateway = Gateway::start(&config(&[a.entry("a"), b.entry("b")])).await;
        let session =
            LegacySession::open_with(gateway.mcp, "2025-11-25", r#"{"elicitation":{}}"#).await;
        call(&session, "b__t").await;
        let (mut stream, relayed) = elicit(&session, &a).await;
        let token = member(&relayed, "params._meta.progressToken").unwrap();
        assert_eq!(
            (member(&relayed, "params._meta.k"), member(&relayed, "id")),
            (Some("1.0"), Some(token))
        );
        let progress = format!(r#""progressToken":{token},"progress":1E2,"x":"\u0041""#);
        notify(&session, "notifications/progress", &progress).await;
        // The client does not know the server's own token, and another session has other requests.
        notify(
            &session,
            "notifications/progress",
            r#""progressToken":7,"progress":9"#,
        )
        .await;
        let other = LegacySession::open(gateway.mcp).await;
        notify(&other, "notifications/progress", &progress).await;
        notify(
            &session,
            "notifications/named",
            &format!(r#""requestId":{token}"#),
        )
        .await;
        let named = a.wait_for("notifications/named", 1).await;
        assert_eq!(named[0].member("params.requestId"), Some(r#""q""#));
        let received = a.wait_for("notifications/progress", 1).await;
        assert_eq!(
            (received.len(), received[0].member("params.progressToken")),
            (1, Some("7")),
            "{transport:?}"
        );
        assert_eq!(
            (
                received[0].member("params.progress"),
                received[0].member("params.x")
            ),
            (Some("1E2"), Some(r#""\u0041""#))
        );
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{token},"result":{{"action":"decline"}}}}"#);
        session.post(&answer).await;
        let (_, last) = stream.messages().await;
        assert!(last.contains("content"), "{last}");
        assert!(
            b.received("notifications/progress").is_empty()
                && b.received("notifications/named").is_empty()
        );
    }
}
