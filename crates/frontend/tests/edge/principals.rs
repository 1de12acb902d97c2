//! Two principals: nothing that belongs to one exists for the other.

use std::sync::Arc;

use fanlight_canonical::identity::Identity;
use fanlight_canonical::{Listen, Principal};
use fanlight_credentials::{Authenticate, Authentication, Credentials};
use fanlight_frontend::FrontendSettings;

use crate::client::{Client, Server, legacy_call, modern_headers, modern_request};
use crate::core::Happened;
use crate::suspended::{call, input, state};

const ANN: (&str, &str) = ("X-Principal", "ann");
const BOB: (&str, &str) = ("X-Principal", "bob");
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}"#;

fn named(name: &str) -> Principal {
    Principal::new("test", name)
}

async fn server() -> Server {
    Server::with(FrontendSettings {
        authenticate: Arc::new(ByHeader),
        ..FrontendSettings::default()
    })
    .await
}

/// The principal of a request is the value of its `X-Principal` header.
#[derive(Debug)]
struct ByHeader;

impl Authenticate for ByHeader {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        let principal = named(credentials.headers["x-principal"].to_str().unwrap());
        Authentication::Ready(Ok(Arc::new(Identity {
            principal,
            ..Identity::anonymous()
        })))
    }
}

/// Opens a session of `principal`.
async fn open(client: &mut Client, principal: (&str, &str)) -> String {
    let response = client.post(&[principal], INITIALIZE).await;
    response
        .header("mcp-session-id")
        .unwrap_or_else(|| panic!("{}", response.body))
        .to_owned()
}

/// Opens a GET stream of `principal`; returns the head of the response.
async fn listen(client: &mut Client, principal: (&str, &str), session: &str) -> u16 {
    let headers = [
        principal,
        ("Mcp-Session-Id", session),
        ("Accept", "text/event-stream"),
    ];
    client.send("GET", "/mcp", &headers, "").await;
    client.head().await.status
}

#[tokio::test]
async fn session_of_one_principal_is_unknown_to_another() {
    let mut server = server().await;
    let id = open(&mut server.connect().await, ANN).await;
    server.log.began().await;
    let session = ("Mcp-Session-Id", id.as_str());
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{"roots":[]}}"#;
    let batch = format!("[{PING}]");
    let last_event = [
        ("Last-Event-ID", "post1-0"),
        ("Accept", "text/event-stream"),
    ];
    let get = [("Accept", "text/event-stream")];
    for (what, method, headers, body) in [
        ("request", "POST", &[][..], PING),
        ("call", "POST", &[][..], &legacy_call("1", "echo", "")),
        ("cancellation", "POST", &[][..], cancelled),
        ("answer to a server request", "POST", &[][..], answer),
        ("GET stream", "GET", &get[..], ""),
        ("replay after an event id", "GET", &last_event[..], ""),
        ("DELETE", "DELETE", &[][..], ""),
    ] {
        let mut headers = headers.to_vec();
        headers.extend([session, BOB]);
        let mut client = server.connect().await;
        client.send(method, "/mcp", &headers, body).await;
        let refused = client.response().await;
        assert_eq!(
            (
                refused.status,
                refused.json()["error"]["message"].as_str().unwrap().len()
            ),
            (404, 74),
            "{what}"
        );
    }
    // The same holds for a batch, which is accepted only if the session's revision has batches.
    let refused = server.connect().await.post(&[BOB, session], &batch).await;
    assert_eq!(refused.status, 400);
    // All the time it exists for its owner.
    assert!(
        !server
            .log
            .pending()
            .iter()
            .any(|happened| matches!(happened, Happened::Began(_)))
    );
    assert_eq!(
        server
            .connect()
            .await
            .post(&[ANN, session], PING)
            .await
            .status,
        200
    );
    assert_eq!(
        server
            .connect()
            .await
            .call("DELETE", "/mcp", &[ANN, session])
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn running_call_of_one_principal_is_neither_answered_nor_cancelled_by_another() {
    let mut server = server().await;
    let (ann, bob) = (
        open(&mut server.connect().await, ANN).await,
        open(&mut server.connect().await, BOB).await,
    );
    let mut calls = server.connect().await;
    let ask = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"ask":[[{"method":"roots/list"}]]}}}"#;
    calls
        .send("POST", "/mcp", &[ANN, ("Mcp-Session-Id", &ann)], ask)
        .await;
    assert_eq!(calls.head().await.status, 200);
    let asked = calls.event().await.unwrap();
    assert!(
        asked.contains(r#""id":"fanlight-1","method":"roots/list""#),
        "{asked}"
    );
    // The same ids in the other's session mean nothing to this one.
    let answer = |roots: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"fanlight-1","result":{{"roots":[{roots}]}}}}"#)
    };
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let mut others = server.connect().await;
    for body in [answer("6"), cancelled.to_owned()] {
        assert_eq!(
            others
                .post(&[BOB, ("Mcp-Session-Id", &bob)], &body)
                .await
                .status,
            202
        );
    }
    let mut client = server.connect().await;
    assert_eq!(
        client
            .post(&[ANN, ("Mcp-Session-Id", &ann)], &answer("7"))
            .await
            .status,
        202
    );
    let answered = calls.event().await.unwrap();
    assert!(
        answered.contains(r#""answers":[{"roots":[7]}]"#),
        "{answered}"
    );
    // The calls are made for the principals of their sessions.
    for principal in ["ann", "bob", "ann"] {
        assert_eq!(
            *server.log.began().await.context.caller.principal(),
            named(principal)
        );
    }
}

#[tokio::test]
async fn suspended_call_of_one_principal_is_not_resumed_by_another() {
    const ROOTS: &str = r#"{"ask":[[{"method":"roots/list"}]]}"#;
    const URLS: &str = r#"{"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"u","message":"m","elicitationId":"e"}]}}}"#;
    let server = server().await;
    let mut client = server.connect().await;
    // One call is kept; the other exists only in its state.
    for (tool, arguments, capabilities, answer) in [
        ("ask", ROOTS, r#"{"roots":{}}"#, r#"{"roots":[]}"#),
        (
            "answer",
            URLS,
            r#"{"elicitation":{"url":{}}}"#,
            r#"{"action":"accept"}"#,
        ),
    ] {
        let of = |principal| [modern_headers("tools/call", Some(tool)), vec![principal]].concat();
        let first = client
            .post(&of(ANN), &call(1, tool, arguments, "", capabilities, ""))
            .await;
        let state = state(&first.json());
        let retry = input(&state, &format!(r#"{{"input-1":{answer}}}"#));
        let retry = call(2, tool, arguments, &retry, capabilities, "");
        let refused = client.post(&of(BOB), &retry).await;
        assert!(
            refused.body.contains("was not given to this client"),
            "{tool}: {}",
            refused.body
        );
        server
            .core
            .release
            .add_permits(usize::from(tool == "answer"));
        let resumed = client.post(&of(ANN), &retry).await;
        assert!(
            !resumed.body.contains("requestState"),
            "{tool}: {}",
            resumed.body
        );
    }
}

#[tokio::test]
async fn stream_of_one_principal_does_not_reach_another() {
    let mut server = server().await;
    let (mut ann, mut bob) = (server.connect().await, server.connect().await);
    let mut listens: Vec<Listen> = Vec::new();
    for (client, principal) in [(&mut ann, ANN), (&mut bob, BOB)] {
        let id = open(client, principal).await;
        assert_eq!(listen(client, principal, &id).await, 200);
        listens.push(server.log.listens().await);
        assert_eq!(
            *listens.last().unwrap().context.caller.principal(),
            named(principal.1)
        );
    }
    for (listen, name) in listens.iter().zip(["ann", "bob"]) {
        let params = format!(r#"{{"level":"error","data":"{name}"}}"#);
        let message = crate::core::notification("notifications/message", &params);
        listen
            .messages
            .send(fanlight_canonical::ServerMessage::Notification(message))
            .await;
    }
    for (client, name) in [(&mut ann, "ann"), (&mut bob, "bob")] {
        let message = client.event().await.unwrap();
        assert!(
            message.contains(&format!(r#""data":"{name}""#)),
            "{message}"
        );
    }
}

#[tokio::test]
async fn subscription_is_made_for_its_principal() {
    let mut server = server().await;
    for (principal, name) in [(ANN, "ann"), (BOB, "bob")] {
        let mut client = server.connect().await;
        let headers = [
            modern_headers("subscriptions/listen", None),
            vec![principal],
        ]
        .concat();
        let request = modern_request(
            "1",
            "subscriptions/listen",
            r#""notifications":{"toolsListChanged":true}"#,
            "",
        );
        client.send("POST", "/mcp", &headers, &request).await;
        assert_eq!(client.head().await.status, 200);
        assert_eq!(
            *server.log.listens().await.context.caller.principal(),
            named(name)
        );
    }
}

#[tokio::test]
async fn sse_session_of_one_principal_is_unknown_to_another() {
    let server = server().await;
    let (mut stream, mut posts) = (server.connect().await, server.connect().await);
    stream
        .send("GET", "/sse", &[("Accept", "text/event-stream"), ANN], "")
        .await;
    assert_eq!(stream.head().await.status, 200);
    let first = String::from_utf8(stream.chunk().await.unwrap()).unwrap();
    let endpoint = first
        .strip_prefix("event: endpoint\ndata: ")
        .unwrap()
        .trim_end();
    for (principal, status) in [(BOB, 404), (ANN, 202)] {
        posts.send("POST", endpoint, &[principal], PING).await;
        assert_eq!(posts.response().await.status, status);
    }
}
