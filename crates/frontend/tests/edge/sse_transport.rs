//! The deprecated HTTP+SSE transport: one stream for all messages to a client, and POSTs for its
//! own.

use std::time::Duration;

use fanlight_canonical::ServerMessage;
use fanlight_frontend::FrontendSettings;
use serde_json::Value;

use crate::client::{Client, Response, Server, legacy_call, modern_call, soon};
use crate::core::{Happened, notification};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// A client of the transport: its stream, and a connection for its messages.
struct SseClient {
    stream: Client,
    posts: Client,
    endpoint: String,
}

impl SseClient {
    async fn open(server: &Server) -> Self {
        let mut stream = server.connect().await;
        stream
            .send("GET", "/sse", &[("Accept", "text/event-stream")], "")
            .await;
        let head = stream.head().await;
        assert_eq!(
            (head.status, head.header("content-type")),
            (200, Some("text/event-stream"))
        );
        let first = String::from_utf8(stream.chunk().await.unwrap()).unwrap();
        let endpoint = first
            .strip_prefix("event: endpoint\ndata: ")
            .and_then(|rest| rest.strip_suffix("\n\n"));
        let endpoint = endpoint.unwrap_or_else(|| panic!("{first:?}")).to_owned();
        Self {
            stream,
            posts: server.connect().await,
            endpoint,
        }
    }

    /// A client that has sent `initialize` with `revision`, and has its answer.
    async fn session(server: &Server, revision: &str) -> Self {
        let mut client = Self::open(server).await;
        let opening = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{"roots":{{}},"elicitation":{{}}}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        );
        let opened = client.ask(&opening).await;
        assert_eq!(
            (&opened["id"], &opened["result"]["protocolVersion"]),
            (&0.into(), &revision.into()),
            "{opened}"
        );
        client
            .tell(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        client
    }

    async fn post(&mut self, body: &str) -> Response {
        self.posts
            .send("POST", &self.endpoint.clone(), &[], body)
            .await;
        self.posts.response().await
    }

    async fn tell(&mut self, body: &str) {
        let response = self.post(body).await;
        assert_eq!((response.status, response.body.as_str()), (202, ""));
    }

    async fn message(&mut self) -> Value {
        serde_json::from_str(&self.stream.event().await.expect("the stream has ended")).unwrap()
    }

    async fn ask(&mut self, body: &str) -> Value {
        self.tell(body).await;
        self.message().await
    }
}

#[tokio::test]
async fn sse_client_of_the_first_revision_is_served_byte_by_byte() {
    let server = Server::start().await;
    let mut client = SseClient::session(&server, "2024-11-05").await;
    assert!(
        client.endpoint.starts_with("/sse/message?sessionId="),
        "{}",
        client.endpoint
    );
    assert_eq!(client.endpoint.split('=').nth(1).unwrap().len(), 71);
    client.tell(&legacy_call("\"\\u0041\"", "echo", "")).await;
    let answer = client.stream.event().await.unwrap();
    assert!(
        answer.starts_with(r#"{"jsonrpc":"2.0","id":"\u0041","result":"#),
        "{answer}"
    );
    assert!(answer.contains(r#""a":1.0"#), "{answer}");
    // Messages of a call come before its answer.
    client.tell(&legacy_call("2", "notify", "\"p\"")).await;
    for count in 1..=50 {
        let progress = client.message().await;
        assert_eq!(
            (
                &progress["params"]["progress"],
                &progress["params"]["progressToken"]
            ),
            (&count.into(), &"p".into())
        );
    }
    while client.message().await["id"] != 2 {}
}

#[tokio::test]
async fn sse_stream_carries_server_requests_and_notifications() {
    let mut server = Server::start().await;
    let mut client = SseClient::session(&server, "2025-06-18").await;
    let listen = server.log.listens().await;
    listen
        .messages
        .send(ServerMessage::Notification(notification(
            "notifications/tools/list_changed",
            "{}",
        )))
        .await;
    assert_eq!(
        client.message().await["method"],
        "notifications/tools/list_changed"
    );
    client
        .tell(
            &legacy_call("1", "ask", "")
                .replace(r#"{"a":1.0}"#, r#"{"ask":[[{"method":"roots/list"}]]}"#),
        )
        .await;
    let question = client.message().await;
    assert_eq!(question["method"], "roots/list", "{question}");
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#,
        question["id"]
    );
    let answered = client.ask(&answer).await;
    assert_eq!(
        (&answered["id"], &answered["result"]["answers"][0]["roots"]),
        (&1.into(), &serde_json::json!([]))
    );
}

#[tokio::test]
async fn sse_post_without_a_message_is_refused() {
    let server = Server::with(FrontendSettings {
        max_body: 1000,
        ..FrontendSettings::default()
    })
    .await;
    let mut sse = SseClient::open(&server).await;
    let bad = sse.post("{").await;
    assert_eq!((bad.status, bad.code()), (400, -32700));
    let bad = sse.post(r#"{"jsonrpc":"2.0","id":7,"method":8}"#).await;
    assert_eq!(
        (bad.status, bad.code(), &bad.json()["id"]),
        (400, -32600, &7.into())
    );
    assert_eq!(sse.post(&format!("[{PING}]")).await.status, 400);
    assert_eq!(sse.post(&"x".repeat(1001)).await.status, 413);
    let endpoint = sse.endpoint.clone();
    let mut client = server.connect().await;
    for (verb, path, headers, status) in [
        (
            "POST",
            endpoint.as_str(),
            &[("Content-Type", "text/plain")][..],
            415,
        ),
        (
            "POST",
            &endpoint,
            &[("Origin", "https://evil.example")],
            403,
        ),
        ("POST", &endpoint, &[("Host", "evil.example")], 403),
        ("POST", "/sse/message", &[], 400),
        ("POST", "/sse/message?sessionId=0", &[], 404),
        ("GET", &endpoint, &[], 405),
        // This status tells a client of both transports to open a stream.
        ("POST", "/sse", &[], 405),
        ("GET", "/sse", &[("Accept", "application/json")], 406),
        ("GET", "/sse", &[("Origin", "https://evil.example")], 403),
        ("GET", "/sse/other", &[], 404),
        ("GET", "/ssex", &[], 404),
    ] {
        client.send(verb, path, headers, PING).await;
        let response = client.response().await;
        assert_eq!(response.status, status, "{verb} {path} {headers:?}");
        assert!(
            response.json()["error"]["message"].is_string(),
            "{verb} {path}"
        );
    }
    // None of these requests has harmed the session.
    assert_eq!(sse.ask(PING).await["id"], 1);
}

#[tokio::test]
async fn sse_transport_serves_legacy_requests_only() {
    let server = Server::start().await;
    let mut client = SseClient::open(&server).await;
    let refused = client.ask(&modern_call("1", "echo", "")).await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&1.into(), &(-32022).into())
    );
    let supported = refused["error"]["data"]["supported"].as_array().unwrap();
    assert!(
        supported.contains(&"2024-11-05".into()) && !supported.contains(&"2026-07-28".into()),
        "{supported:?}"
    );
    let unopened = client.ask(&legacy_call("2", "echo", "")).await;
    assert_eq!(
        (&unopened["id"], &unopened["error"]["code"]),
        (&2.into(), &(-32600).into())
    );
}

#[tokio::test]
async fn sse_session_ends_with_its_stream() {
    let mut server = Server::start().await;
    let mut client = SseClient::session(&server, "2024-11-05").await;
    let key = server.log.began().await.context.session().unwrap();
    client.tell(&legacy_call("1", "wait", "")).await;
    assert_eq!(server.log.began().await.context.session(), Some(key));
    let SseClient {
        stream,
        mut posts,
        endpoint,
    } = client;
    drop(stream);
    assert!(matches!(server.log.ended().await, Happened::Dropped));
    assert_eq!(server.log.session_ended().await, key);
    posts.send("POST", &endpoint, &[], PING).await;
    assert_eq!(posts.response().await.status, 404);
}

#[tokio::test]
async fn sse_sessions_are_bounded() {
    let server = Server::with(FrontendSettings {
        max_sessions: 1,
        ..FrontendSettings::default()
    })
    .await;
    let first = SseClient::open(&server).await;
    let mut client = server.connect().await;
    let full = client.call("GET", "/sse", &[]).await;
    assert_eq!((full.status, full.code()), (503, -32600));
    drop(first);
    // The server notices the end of the first connection later.
    let again = async {
        while client
            .call("GET", "/sse/", &[("Accept", "application/json")])
            .await
            .status
            != 406
        {}
        loop {
            client.send("GET", "/sse/", &[], "").await;
            let head = client.head().await;
            if head.status == 200 {
                break;
            }
            client
                .skip(head.header("content-length").unwrap().parse().unwrap())
                .await;
        }
    };
    soon(again).await;
}

#[tokio::test]
async fn sse_stream_is_kept_alive() {
    let settings = FrontendSettings {
        keep_alive: Duration::from_millis(20),
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let mut client = SseClient::open(&server).await;
    assert!(client.stream.block().await.unwrap().comment);
    assert!(client.stream.block().await.unwrap().comment);
}

#[tokio::test]
async fn sse_client_that_does_not_read_is_disconnected() {
    let settings = FrontendSettings {
        write_timeout: Duration::from_millis(300),
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let mut client = SseClient::session(&server, "2024-11-05").await;
    let key = server.log.began().await.context.session().unwrap();
    let long = "x".repeat(1 << 20);
    let call = legacy_call("1", "echo", "").replace("1.0", &format!("{long:?}"));
    let ended = async {
        // Far more than sockets and queues hold; the client reads nothing.
        for _ in 0..64 {
            client.posts = server.connect().await;
            if client.post(&call).await.status == 404 {
                break;
            }
        }
        server.log.session_ended().await
    };
    assert_eq!(soon(ended).await, key);
}

#[tokio::test]
async fn shutdown_lets_running_sse_requests_finish() {
    let mut server = Server::start().await;
    let mut client = SseClient::session(&server, "2024-11-05").await;
    server.log.began().await;
    client.tell(&legacy_call("1", "wait", "")).await;
    server.log.began().await;
    server.shutdown.cancel();
    server.core.release.add_permits(1);
    assert_eq!(client.message().await["id"], 1);
    assert_eq!(client.stream.event().await, None);
    soon(server.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn sse_transport_can_be_switched_off() {
    let server = Server::with(FrontendSettings {
        sse_path: None,
        ..FrontendSettings::default()
    })
    .await;
    assert_eq!(
        server.connect().await.call("GET", "/sse", &[]).await.status,
        404
    );
}
