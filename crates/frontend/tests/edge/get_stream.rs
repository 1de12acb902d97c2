//! Messages to legacy clients outside of calls: on GET streams, and on stdio.

use std::time::Duration;

use fanlight_canonical::{Listen, ServerMessage, ServerRequest};
use fanlight_frontend::FrontendSettings;
use fanlight_protocol::subscription::Lists;
use fanlight_protocol::{Json, Method, Response};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::client::{Client, Server, soon};
use crate::core::notification;
use crate::streams::Stdio;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const SUBSCRIBE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}"#;
const TOOLS: &str = "notifications/tools/list_changed";

async fn say(listen: &Listen, method: &str, params: &str) {
    listen
        .messages
        .send(ServerMessage::Notification(notification(method, params)))
        .await;
}

async fn ask(listen: &Listen, method: &str) -> oneshot::Receiver<Response> {
    let (answer, answered) = oneshot::channel();
    let (method, params) = (
        Method::from_name(method),
        Some(Json::literal(r#"{ "x":1.0}"#)),
    );
    let (trace, deadline) = (
        Default::default(),
        Instant::now() + Duration::from_secs(600),
    );
    let request = ServerRequest {
        method,
        params,
        trace,
        answer,
        notices: None,
        deadline,
    };
    listen.messages.send(ServerMessage::Request(request)).await;
    answered
}

fn text(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// A session with a GET stream.
async fn listening(server: &mut Server, revision: &str) -> (String, Client, Listen) {
    let mut client = server.connect().await;
    let id = client.open(revision).await;
    assert_eq!(client.listen(&id, None).await.status, 200);
    let listen = server.log.listens().await;
    (id, client, listen)
}

#[tokio::test]
async fn session_notification_is_passed_through_unchanged() {
    let mut server = Server::start().await;
    let (id, mut stream, listen) = listening(&mut server, "2025-06-18").await;
    let interest = &listen.interest;
    assert!(interest.session && interest.lists == Lists::ALL && interest.uris.is_empty());
    assert!(listen.context.session().is_some());
    // Notifications of another era or of a request are dropped.
    say(&listen, "notifications/subscriptions/acknowledged", "{}").await;
    say(&listen, "notifications/tasks", "{}").await;
    say(
        &listen,
        "notifications/progress",
        r#"{"progressToken":99,"progress":1}"#,
    )
    .await;
    let odd = r#"{ "uri":"a:b","_meta":{"k" : 1E400}, "new":null }"#;
    say(&listen, "notifications/resources/updated", odd).await;
    assert_eq!(
        stream.event().await.unwrap(),
        text("notifications/resources/updated", odd)
    );
    say(
        &listen,
        TOOLS,
        r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7,"k":0}}"#,
    )
    .await;
    assert_eq!(
        stream.event().await.unwrap(),
        text(TOOLS, r#"{"_meta":{"k":0}}"#)
    );
    // Log messages are filtered by the session's level, once it is set.
    say(&listen, "notifications/message", r#"{"level":"debug"}"#).await;
    assert!(stream.event().await.unwrap().contains("debug"));
    let set = r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#;
    assert_eq!(
        server
            .connect()
            .await
            .post(&[("Mcp-Session-Id", &id)], set)
            .await
            .status,
        200
    );
    say(&listen, "notifications/message", r#"{"level":"warning"}"#).await;
    say(&listen, "notifications/message", r#"{"level":"error"}"#).await;
    assert!(stream.event().await.unwrap().contains("error"));
}

#[tokio::test]
async fn server_request_is_asked_and_withdrawn() {
    let mut server = Server::start().await;
    let (id, mut stream, listen) = listening(&mut server, "2025-11-25").await;
    let refused = soon(ask(&listen, "sampling/createMessage").await)
        .await
        .unwrap();
    assert_eq!(refused.error_code(), Some(-32601));
    let answered = ask(&listen, "roots/list").await;
    let asked = r#"{"jsonrpc":"2.0","id":"fanlight-1","method":"roots/list","params":{ "x":1.0}}"#;
    assert_eq!(stream.event().await.unwrap(), asked);
    let answer = r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{ "roots":[ ]}}"#;
    assert_eq!(
        server
            .connect()
            .await
            .post(&[("Mcp-Session-Id", &id)], answer)
            .await
            .status,
        202
    );
    assert_eq!(
        soon(answered).await.unwrap().body().as_text(),
        r#"{ "roots":[ ]}"#
    );
    let withdrawn = ask(&listen, "roots/list").await;
    assert!(stream.event().await.unwrap().contains("fanlight-2"));
    drop(withdrawn);
    let cancelled = stream.event().await.unwrap();
    assert!(
        cancelled.contains("notifications/cancelled") && cancelled.contains("fanlight-2"),
        "{cancelled}"
    );
    let kept = ask(&listen, "roots/list").await;
    assert!(stream.event().await.unwrap().contains("fanlight-3"));
    drop(stream);
    // Server requests end with their session.
    let mut other = server.connect().await;
    assert_eq!(
        other
            .call("DELETE", "/mcp", &[("Mcp-Session-Id", &id)])
            .await
            .status,
        204
    );
    assert!(soon(kept).await.is_err());
    server.log.listens_no_more().await;
}

#[tokio::test]
async fn messages_wait_for_a_stream_within_the_buffer_limit() {
    let settings = FrontendSettings {
        notification_buffer: 3,
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let mut client = server.connect().await;
    let id = client.open("2025-06-18").await;
    // A subscription starts listening to the server, so that its first notifications are not lost.
    let session = [("Mcp-Session-Id", id.as_str())];
    assert_eq!(client.post(&session, SUBSCRIBE).await.status, 200);
    let listen = server.log.listens().await;
    assert_eq!(client.post(&session, SUBSCRIBE).await.status, 200);
    assert!(
        !server
            .log
            .pending()
            .iter()
            .any(|happened| matches!(happened, crate::core::Happened::Listens(_)))
    );
    for count in [1, 2, 1, 2, 3, 4] {
        let updated = format!(r#"{{"uri":"a:{count}"}}"#);
        say(&listen, "notifications/resources/updated", &updated).await;
    }
    // Once this server request is answered, all notifications have been received: they share its
    // channel.
    drop(soon(ask(&listen, "sampling/createMessage").await).await);
    client.listen(&id, None).await;
    for count in [2, 3, 4] {
        assert!(
            client
                .event()
                .await
                .unwrap()
                .contains(&format!("a:{count}"))
        );
    }
    // Messages also wait after a stream has ended.
    drop(client);
    let mut other = server.connect().await;
    while other.post(&session, PING).await.status != 200 {}
    say(&listen, TOOLS, "{}").await;
    other.listen(&id, None).await;
    // This notification may be lost, depending on when the end of the first stream is noticed.
    // Later ones arrive.
    say(&listen, TOOLS, r#"{"last":true}"#).await;
    while !other.event().await.unwrap().contains("last") {}
}

#[tokio::test]
async fn withdrawn_server_request_leaves_the_buffer() {
    let settings = FrontendSettings {
        max_server_requests: 1,
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let mut client = server.connect().await;
    let id = client.open("2025-11-25").await;
    assert_eq!(
        client
            .post(&[("Mcp-Session-Id", id.as_str())], SUBSCRIBE)
            .await
            .status,
        200
    );
    let listen = server.log.listens().await;
    drop(ask(&listen, "roots/list").await);
    let second = ask(&listen, "roots/list").await;
    client.listen(&id, None).await;
    let asked = client.event().await.unwrap();
    assert!(asked.contains("fanlight-2"), "{asked}");
    drop(second);
    assert!(
        client
            .event()
            .await
            .unwrap()
            .contains("notifications/cancelled")
    );
}

#[tokio::test]
async fn newest_of_several_streams_gets_new_messages() {
    let mut server = Server::start().await;
    let (id, mut first, listen) = listening(&mut server, "2025-06-18").await;
    say(&listen, TOOLS, "{}").await;
    first.event().await.unwrap();
    let mut second = server.connect().await;
    second.listen(&id, None).await;
    assert!(second.block().await.unwrap().comment);
    for count in 0..3 {
        say(&listen, TOOLS, &format!(r#"{{"n":{count}}}"#)).await;
        assert!(
            second
                .event()
                .await
                .unwrap()
                .contains(&format!(r#""n":{count}"#))
        );
    }
    // When the newest stream is closed, the other one is the newest.
    drop(second);
    let mut count = 3;
    let received = loop {
        say(&listen, TOOLS, &format!(r#"{{"n":{count}}}"#)).await;
        count += 1;
        let event = tokio::time::timeout(Duration::from_millis(50), first.event()).await;
        if let Ok(event) = event {
            break event.unwrap();
        }
        assert!(count < 100);
    };
    assert!(received.contains(TOOLS));
}

#[tokio::test]
async fn get_without_session_or_accept_is_refused() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let id = client.open("2025-11-25").await;
    let (session, events) = (
        ("Mcp-Session-Id", id.as_str()),
        ("Accept", "text/event-stream"),
    );
    assert_eq!(client.call("GET", "/mcp", &[session]).await.status, 406);
    assert_eq!(
        client
            .call("GET", "/mcp", &[session, ("Accept", "application/json")])
            .await
            .status,
        406
    );
    assert_eq!(client.call("GET", "/mcp", &[events]).await.status, 400);
    assert_eq!(
        client
            .call("GET", "/mcp", &[events, ("Mcp-Session-Id", "unknown")])
            .await
            .status,
        404
    );
    let modern = client
        .call(
            "GET",
            "/mcp",
            &[session, events, ("MCP-Protocol-Version", "2026-07-28")],
        )
        .await;
    assert_eq!(
        (modern.status, modern.header("allow")),
        (405, Some("POST, OPTIONS"))
    );
    let unknown = client
        .call(
            "GET",
            "/mcp",
            &[session, events, ("MCP-Protocol-Version", "1999-01-01")],
        )
        .await;
    assert_eq!(unknown.status, 400);
    let preflight = [
        ("Origin", "http://localhost:3000"),
        ("Access-Control-Request-Method", "GET"),
    ];
    let allowed = client.call("OPTIONS", "/mcp", &preflight).await;
    assert_eq!(
        allowed.header("access-control-allow-methods"),
        Some("GET, POST, DELETE, OPTIONS")
    );
    assert!(
        allowed
            .header("access-control-allow-headers")
            .unwrap()
            .contains("Last-Event-ID")
    );
}

#[tokio::test]
async fn stream_is_primed_by_revision() {
    let mut server = Server::start().await;
    for (revision, has_ids, primed) in [
        ("2024-11-05", false, false),
        ("2025-03-26", true, false),
        ("2025-06-18", true, false),
        ("2025-11-25", true, true),
    ] {
        let (_, mut stream, listen) = listening(&mut server, revision).await;
        let opening = stream.block().await.unwrap();
        assert_eq!(
            (opening.comment, opening.data.as_str()),
            (!primed, ""),
            "{revision}"
        );
        assert_eq!(
            (opening.id.is_some(), opening.retry.is_some()),
            (primed, primed),
            "{revision}"
        );
        say(&listen, TOOLS, "{}").await;
        assert_eq!(
            stream.sse().await.unwrap().id.is_some(),
            has_ids,
            "{revision}"
        );
    }
}

#[tokio::test]
async fn stream_keeps_its_session_and_ends_with_it() {
    let settings = FrontendSettings {
        keep_alive: Duration::from_millis(5),
        session_idle: Duration::from_millis(1),
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let mut client = server.connect().await;
    // A session this short may have expired before its stream is open.
    let id = loop {
        let id = client.open("2025-11-25").await;
        let head = client.listen(&id, None).await;
        if head.status == 200 {
            break id;
        }
        let length = head.header("content-length").unwrap().parse().unwrap();
        client.skip(length).await;
    };
    server.log.listens().await;
    for _ in 0..4 {
        client.block().await.unwrap();
    }
    let mut other = server.connect().await;
    assert_eq!(
        other.post(&[("Mcp-Session-Id", &id)], PING).await.status,
        200
    );
    assert_eq!(
        other
            .call("DELETE", "/mcp", &[("Mcp-Session-Id", &id)])
            .await
            .status,
        204
    );
    while client.block().await.is_some() {}
    server.log.listens_no_more().await;
}

#[tokio::test]
async fn connection_is_reused_after_its_stream_ends() {
    let mut server = Server::start().await;
    let (id, mut stream, listen) = listening(&mut server, "2025-06-18").await;
    // A request that is sent meanwhile is answered after the stream.
    stream.send("GET", "/elsewhere", &[], "").await;
    say(&listen, TOOLS, "{}").await;
    assert_eq!(stream.event().await.unwrap(), text(TOOLS, "{}"));
    let long = format!(r#"{{"uri":"a:{}"}}"#, "b".repeat(100_000));
    say(&listen, "notifications/resources/updated", &long).await;
    let mut received = Vec::new();
    while !received.ends_with(b"\n\n") {
        received.extend(stream.chunk().await.unwrap());
    }
    assert!(
        received
            .windows(long.len())
            .any(|window| window == long.as_bytes())
    );
    let mut other = server.connect().await;
    assert_eq!(
        other
            .call("DELETE", "/mcp", &[("Mcp-Session-Id", &id)])
            .await
            .status,
        204
    );
    assert_eq!(stream.chunk().await, None);
    assert_eq!(stream.response().await.status, 404);
    assert_eq!(stream.call("GET", "/elsewhere", &[]).await.status, 404);
}

#[tokio::test]
async fn stream_head_is_equal_with_and_without_hyper() {
    let server = Server::start().await;
    let mut heads = Vec::new();
    for connection in ["keep-alive", "close"] {
        let (mut stream, mut other) = (server.connect().await, server.connect().await);
        let id = other.open("2025-06-18").await;
        let headers = [
            ("Mcp-Session-Id", &*id),
            ("Accept", "text/event-stream"),
            ("Connection", connection),
        ];
        stream.send("GET", "/mcp", &headers, "").await;
        let mut head = stream.head().await;
        let is_close = |(name, value): &(String, String)| name == "connection" && value == "close";
        assert_eq!(head.headers.iter().any(is_close), connection == "close");
        head.headers
            .retain(|(name, _)| name != "connection" && name != "date");
        head.headers.sort();
        assert!(stream.block().await.unwrap().comment);
        assert_eq!(
            other
                .call("DELETE", "/mcp", &[("Mcp-Session-Id", &id)])
                .await
                .status,
            204
        );
        assert_eq!(stream.chunk().await, None);
        if connection == "close" {
            assert!(stream.is_closed().await);
        } else {
            assert_eq!(stream.call("GET", "/elsewhere", &[]).await.status, 404);
        }
        heads.push((head.status, head.headers));
    }
    assert_eq!(heads[0], heads[1]);
}

#[tokio::test]
async fn shutdown_ends_streams_at_once() {
    let mut server = Server::start().await;
    let (_, mut stream, _listen) = listening(&mut server, "2025-11-25").await;
    let mut unread = server.connect().await;
    let id = unread.open("2025-11-25").await;
    unread.post(&[("Mcp-Session-Id", &id)], SUBSCRIBE).await;
    server.log.listens().await;
    server.shutdown.cancel();
    while stream.block().await.is_some() {}
    soon(server.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn stdio_carries_the_messages_of_a_session() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(r#"{"roots":{}}"#).await;
    assert!(
        !stdio
            .log
            .pending()
            .iter()
            .any(|happened| matches!(happened, crate::core::Happened::Listens(_)))
    );
    stdio
        .send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    let listen = stdio.log.listens().await;
    assert!(listen.interest.session && listen.context.session().is_some());
    say(&listen, "notifications/tasks", "{}").await;
    say(&listen, TOOLS, r#"{ "x":1.0}"#).await;
    assert_eq!(stdio.line().await.unwrap(), text(TOOLS, r#"{ "x":1.0}"#));
    let answered = ask(&listen, "roots/list").await;
    assert_eq!(stdio.message().await["id"], "fanlight-1");
    stdio
        .send(r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{"a":1.0}}"#)
        .await;
    assert_eq!(
        soon(answered).await.unwrap().body().as_text(),
        r#"{"a":1.0}"#
    );
    // A new session listens on its own, as soon as it subscribes.
    stdio.initialize_with("{}").await;
    stdio.log.listens_no_more().await;
    stdio.send(SUBSCRIBE).await;
    let listen = stdio.log.listens().await;
    assert_eq!(stdio.message().await["id"], 1);
    say(&listen, TOOLS, "{}").await;
    assert_eq!(stdio.line().await.unwrap(), text(TOOLS, "{}"));
    assert!(stdio.end().await.is_empty());
}
