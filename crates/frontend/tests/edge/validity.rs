//! Lasting requests and streams end with the credentials that they began with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fanlight_canonical::Principal;
use fanlight_canonical::identity::{Identity, Source, Validity};
use fanlight_credentials::{Authenticate, Authentication, Credentials, Denial};
use fanlight_frontend::FrontendSettings;

use crate::client::{
    Client, Server, legacy_call, modern_call, modern_headers, modern_request, soon,
};
use crate::suspended::{call, input, state};

/// A token is `<name>-<number>`; one of these expires soon, if its number is `soon`.
#[derive(Debug, Default)]
struct Tokens(Mutex<HashMap<String, Arc<Identity>>>);

impl Tokens {
    fn identity(&self, token: &str) -> Arc<Identity> {
        let name = token.split_once('-').unwrap().0;
        let left = if token.ends_with("soon") {
            Duration::from_millis(400)
        } else {
            Duration::from_secs(3600)
        };
        let expires = Some(SystemTime::now() + left);
        let new = || Identity {
            principal: Principal::new("test", name),
            name: name.into(),
            source: Source::Token,
            validity: Validity {
                expires,
                ..Validity::default()
            },
            ..Identity::anonymous()
        };
        Arc::clone(
            self.0
                .lock()
                .unwrap()
                .entry(token.to_owned())
                .or_insert_with(|| Arc::new(new())),
        )
    }

    fn revoke(&self, token: &str) {
        self.identity(token).validity.revoked.cancel();
    }
}

impl Authenticate for Tokens {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        let shown = credentials
            .headers
            .get("authorization")
            .and_then(|value| value.to_str().ok());
        let Some(token) = shown.and_then(|shown| shown.strip_prefix("Bearer ")) else {
            return Authentication::Ready(Err(Denial::Missing));
        };
        let identity = self.identity(token);
        let holds = identity.validity.holds_at(SystemTime::now());
        Authentication::Ready(if holds {
            Ok(identity)
        } else {
            Err(Denial::Invalid("over".into()))
        })
    }
}

async fn start() -> (Server, Arc<Tokens>) {
    let tokens = Arc::new(Tokens::default());
    let settings = FrontendSettings {
        authenticate: Arc::clone(&tokens) as Arc<dyn Authenticate>,
        stream_after: Duration::from_millis(20),
        ..FrontendSettings::default()
    };
    (Server::with(settings).await, tokens)
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Opens a legacy session.
async fn open(server: &Server, token: &str) -> String {
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let response = server
        .connect()
        .await
        .post(&[("Authorization", &bearer(token))], INITIALIZE)
        .await;
    response
        .header("mcp-session-id")
        .unwrap_or_else(|| panic!("{}", response.body))
        .to_owned()
}

/// Opens the listen-only streams of all transports with `token`.
async fn listening(server: &mut Server, token: &str) -> Vec<Client> {
    let (own, session) = (bearer(token), open(server, "ann-other").await);
    let authorization = ("Authorization", own.as_str());
    let events = ("Accept", "text/event-stream");
    let [mut get, mut listen, mut sse] = [
        server.connect().await,
        server.connect().await,
        server.connect().await,
    ];
    get.send(
        "GET",
        "/mcp",
        &[authorization, events, ("Mcp-Session-Id", &session)],
        "",
    )
    .await;
    let headers = [
        modern_headers("subscriptions/listen", None),
        vec![authorization],
    ]
    .concat();
    let request = modern_request(
        "1",
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true}"#,
        "",
    );
    listen.send("POST", "/mcp", &headers, &request).await;
    sse.send("GET", "/sse", &[authorization, events], "").await;
    let mut streams = vec![get, listen, sse];
    for stream in &mut streams {
        assert_eq!(stream.head().await.status, 200);
        stream.chunk().await.unwrap();
    }
    streams
}

/// Waits until a stream ends, whatever else it carries.
async fn ended(stream: &mut Client) {
    while soon(stream.chunk()).await.is_some() {}
}

#[tokio::test]
async fn listen_only_streams_end_when_their_token_is_revoked() {
    let (mut server, tokens) = start().await;
    let mut revoked = listening(&mut server, "ann-1").await;
    let mut others = listening(&mut server, "ann-2").await;
    tokens.revoke("ann-1");
    for stream in &mut revoked {
        ended(stream).await;
    }
    // Streams with another token of the same principal stay open.
    for stream in &mut others {
        assert!(
            tokio::time::timeout(Duration::from_millis(50), stream.chunk())
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn listen_only_streams_end_when_their_token_expires() {
    let (mut server, _) = start().await;
    for stream in &mut listening(&mut server, "ann-soon").await {
        ended(stream).await;
    }
}

#[tokio::test]
async fn stream_of_a_running_call_ends_with_an_error_when_its_token_is_revoked() {
    let (mut server, tokens) = start().await;
    let session = open(&server, "ann-other").await;
    let own = bearer("ann-1");
    let legacy = vec![
        ("Authorization", own.as_str()),
        ("Mcp-Session-Id", &session),
    ];
    let modern = [
        modern_headers("tools/call", Some("wait")),
        vec![("Authorization", own.as_str())],
    ]
    .concat();
    let mut calls = Vec::new();
    for (headers, body) in [
        (legacy, legacy_call("9", "wait", "")),
        (modern, modern_call("9", "wait", "")),
    ] {
        let mut client = server.connect().await;
        client.send("POST", "/mcp", &headers, &body).await;
        assert_eq!(
            client.head().await.header("content-type"),
            Some("text/event-stream")
        );
        calls.push(client);
    }
    tokens.revoke("ann-1");
    for client in &mut calls {
        let error: serde_json::Value =
            serde_json::from_str(&client.event().await.unwrap()).unwrap();
        assert_eq!(
            (&error["id"], &error["error"]["code"]),
            (&9.into(), &(-31004).into()),
            "{error}"
        );
        assert_eq!(error["error"]["data"]["mayHaveRun"], true);
        assert!(
            error["error"]["message"]
                .as_str()
                .unwrap()
                .contains("have been revoked"),
            "{error}"
        );
        ended(client).await;
    }
    // Neither runs on at the server.
    server.log.dropped(2).await;
}

#[tokio::test]
async fn detached_call_ends_when_its_token_is_revoked() {
    let (mut server, tokens) = start().await;
    let session = open(&server, "ann-other").await;
    let own = bearer("ann-1");
    let headers = [
        ("Authorization", own.as_str()),
        ("Mcp-Session-Id", session.as_str()),
        ("Accept", "application/json"),
    ];
    let mut client = server.connect().await;
    client
        .send("POST", "/mcp", &headers, &legacy_call("9", "wait", ""))
        .await;
    while server.log.began().await.method != fanlight_protocol::Method::CallTool {}
    drop(client);
    tokens.revoke("ann-1");
    server.log.dropped(1).await;
}

#[tokio::test]
async fn suspended_call_ends_when_its_token_is_revoked_and_outlasts_expiry() {
    const ROOTS: &str = r#"{"ask":[[{"method":"roots/list"}]]}"#;
    const CAPABILITIES: &str = r#"{"roots":{}}"#;
    let (mut server, tokens) = start().await;
    let mut client = server.connect().await;
    for (token, is_resumed) in [("ann-soon", true), ("ann-1", false)] {
        let (own, newer) = (bearer(token), bearer("ann-newer"));
        let headers = |token| {
            [
                modern_headers("tools/call", Some("ask")),
                vec![("Authorization", token)],
            ]
            .concat()
        };
        let first = client
            .post(&headers(&own), &call(1, "ask", ROOTS, "", CAPABILITIES, ""))
            .await;
        // A busy machine may take so long that the answer becomes an event.
        let answer = first
            .body
            .lines()
            .find_map(|line| line.strip_prefix("data: "))
            .unwrap_or(&first.body);
        let state = state(&serde_json::from_str(answer).unwrap());
        if is_resumed {
            while tokens.identity(token).validity.holds_at(SystemTime::now()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } else {
            tokens.revoke(token);
            server.log.dropped(1).await;
        }
        let retry = call(
            2,
            "ask",
            ROOTS,
            &input(&state, r#"{"input-1":{"roots":[]}}"#),
            CAPABILITIES,
            "",
        );
        let denied = client.post(&headers(&own), &retry).await;
        assert_eq!(denied.status, 401, "{token}");
        let resumed = client.post(&headers(&newer), &retry).await;
        assert_eq!(
            resumed.body.contains(r#""answers""#),
            is_resumed,
            "{token}: {}",
            resumed.body
        );
    }
}

#[tokio::test]
async fn each_request_and_resumed_stream_needs_valid_credentials_of_its_principal() {
    let (server, tokens) = start().await;
    let session = open(&server, "ann-1").await;
    tokens.revoke("ann-1");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (token, status) in [
        (None, 401),
        (Some("ann-1"), 401),
        (Some("bob-1"), 404),
        (Some("ann-2"), 200),
    ] {
        let own = token.map(bearer);
        let mut headers = vec![("Mcp-Session-Id", session.as_str())];
        headers.extend(own.as_deref().map(|own| ("Authorization", own)));
        assert_eq!(
            server.connect().await.post(&headers, ping).await.status,
            status,
            "{token:?}"
        );
        headers.extend([
            ("Accept", "text/event-stream"),
            ("Last-Event-ID", "get1-0-AAAAAAAA"),
        ]);
        let mut client = server.connect().await;
        client.send("GET", "/mcp", &headers, "").await;
        assert_eq!(client.head().await.status, status, "{token:?}");
    }
}
