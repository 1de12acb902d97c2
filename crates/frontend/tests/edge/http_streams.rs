//! Event streams that answer requests: when a response becomes a stream, its events, and its end.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;

use crate::client::{Server, legacy_call, modern_call, modern_headers, modern_request, soon};
use crate::core::Happened;

const ONLY_EVENTS: (&str, &str) = ("Accept", "text/event-stream");
const ONLY_JSON: (&str, &str) = ("Accept", "application/json");

#[tokio::test]
async fn notifications_precede_the_response_with_the_progress_token_of_the_client() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let headers = modern_headers("tools/call", Some("notify"));
    let meta = r#""progressToken":"t\u006f","io.modelcontextprotocol/logLevel":"warning""#;
    let response = client
        .post(&headers, &modern_call("1", "notify", meta))
        .await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    assert_eq!(response.header("x-accel-buffering"), Some("no"));
    let events = response.events();
    for (count, event) in events.iter().take(50).enumerate() {
        let expected = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"t\u006f","progress":{}}}}}"#,
            count + 1
        );
        assert_eq!(*event, expected);
    }
    let levels: Vec<_> = events[50..52]
        .iter()
        .map(|event| event.contains(r#""level":"debug""#))
        .collect();
    assert_eq!((events.len(), levels.as_slice()), (53, &[false, false][..]));
    assert!(
        events[52].contains(r#""id":1,"result":{"resultType":"complete","#),
        "{}",
        events[52]
    );
    // The connection can be reused.
    assert_eq!(
        client
            .post(&headers, &modern_call("2", "notify", ""))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn modern_call_without_token_and_level_is_answered_in_json() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let headers = modern_headers("tools/call", Some("notify"));
    let response = client.post(&headers, &modern_call("1", "notify", "")).await;
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert!(response.json().get("result").is_some());
}

#[tokio::test]
async fn response_has_a_media_type_that_the_client_accepts() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let call = async |client: &mut crate::client::Client, accept, tool: &str, meta: &str| {
        let mut headers = modern_headers("tools/call", Some(tool));
        headers.push(accept);
        client.post(&headers, &modern_call("1", tool, meta)).await
    };
    let token = r#""progressToken":1"#;
    let json = call(&mut client, ONLY_JSON, "notify", token).await;
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert!(!server.log.began().await.context.wants_progress);
    let events = call(&mut client, ONLY_EVENTS, "echo", "").await.events();
    assert!(events.len() == 1 && events[0].contains("structuredContent"));
    assert_eq!(
        call(&mut client, ONLY_EVENTS, "notify", token)
            .await
            .events()
            .len(),
        51
    );
    let large = call(&mut client, ONLY_EVENTS, "large", "").await.events();
    assert!(large.len() == 1 && large[0].len() > 1 << 20);
    // A line break in the text becomes a line of its own.
    let mut headers = modern_headers("tools/list", None);
    headers.push(ONLY_EVENTS);
    let list = client
        .post(&headers, &modern_request("1", "tools/list", "", ""))
        .await
        .events();
    assert!(list[0].contains(",\n\"tools\":[]"), "{}", list[0]);
    // An error with an HTTP status of its own is JSON in any case.
    let mut headers = modern_headers("x/y", None);
    headers.push(ONLY_EVENTS);
    assert_eq!(
        client
            .post(&headers, &modern_request("1", "x/y", "", ""))
            .await
            .code(),
        -32601
    );
}

#[tokio::test]
async fn events_are_sent_when_they_happen() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let headers = modern_headers("tools/call", Some("notify-and-wait"));
    client
        .send(
            "POST",
            "/mcp",
            &headers,
            &modern_call("1", "notify-and-wait", r#""progressToken":1"#),
        )
        .await;
    assert_eq!(client.head().await.status, 200);
    let first = String::from_utf8(client.chunk().await.unwrap()).unwrap();
    assert!(first.contains(r#""progress":1"#), "{first}");
    server.core.release.add_permits(1);
    // Events that are ready at the same time are sent in one chunk.
    let rest = String::from_utf8(client.chunk().await.unwrap()).unwrap();
    let events: Vec<_> = rest.split_terminator("\n\n").collect();
    assert!(
        events.len() == 2 && events[0].contains(r#""progress":2"#) && events[1].contains("result"),
        "{rest}"
    );
    assert_eq!(client.chunk().await, None);
}

#[tokio::test]
async fn modern_request_is_cancelled_when_its_connection_closes() {
    let mut server = Server::start().await;
    for tool in ["wait", "notify-and-wait"] {
        let mut client = server.connect().await;
        let headers = modern_headers("tools/call", Some(tool));
        client
            .send(
                "POST",
                "/mcp",
                &headers,
                &modern_call("1", tool, r#""progressToken":1"#),
            )
            .await;
        server.log.began().await;
        if tool == "notify-and-wait" {
            client.head().await;
        }
        drop(client);
        assert!(
            matches!(server.log.ended().await, Happened::Dropped),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn shutdown_waits_for_running_requests() {
    let mut server = Server::start().await;
    let (mut modern, mut legacy, idle) = (
        server.connect().await,
        server.connect().await,
        server.connect().await,
    );
    let id = server.session(&mut legacy).await;
    server.log.began().await;
    modern
        .send(
            "POST",
            "/mcp",
            &modern_headers("tools/call", Some("wait")),
            &modern_call("1", "wait", ""),
        )
        .await;
    server.log.began().await;
    let call = legacy_call("2", "notify-and-wait", "7");
    legacy
        .send("POST", "/mcp", &[("Mcp-Session-Id", &id)], &call)
        .await;
    assert_eq!(legacy.head().await.status, 200);
    server.shutdown.cancel();
    let mut idle = idle;
    assert!(idle.is_closed().await);
    server.core.release.add_permits(2);
    assert_eq!(modern.response().await.status, 200);
    assert!(modern.is_closed().await);
    while legacy.chunk().await.is_some() {}
    soon(server.served).await.unwrap().unwrap();
    assert!(
        tokio::net::TcpStream::connect(server.address)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn shutdown_ends_requests_after_the_drain_time() {
    let settings = FrontendSettings {
        drain: Duration::from_millis(50),
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let (mut client, mut gone) = (server.connect().await, server.connect().await);
    let id = server.session(&mut gone).await;
    server.log.began().await;
    let session = [("Mcp-Session-Id", id.as_str())];
    client
        .send("POST", "/mcp", &session, &legacy_call("1", "wait", ""))
        .await;
    server.log.began().await;
    gone.send("POST", "/mcp", &session, &legacy_call("2", "wait", ""))
        .await;
    server.log.began().await;
    drop(gone);
    server.shutdown.cancel();
    soon(server.served).await.unwrap().unwrap();
    assert!(matches!(server.log.ended().await, Happened::Dropped));
    assert!(matches!(server.log.ended().await, Happened::Dropped));
    assert!(client.is_closed().await);
}
