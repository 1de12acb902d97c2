//! Batches of 2025-03-26, whose messages each work as if they were alone.

use fanlight_frontend::FrontendSettings;
use serde_json::{Value, json};

use crate::client::{Server, legacy_call};
use crate::streams::Stdio;

const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-03-26"}}"#;

fn batch(messages: &[&str]) -> String {
    format!("[{}]", messages.join(","))
}

#[tokio::test]
async fn batch_answer_is_sent_as_soon_as_it_is_ready() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let id = client.open("2025-03-26").await;
    let session = [("Mcp-Session-Id", id.as_str())];
    let (slow, quick) = (
        legacy_call("1", "wait", ""),
        legacy_call("2", "notify-and-wait", "7"),
    );
    client
        .send(
            "POST",
            "/mcp",
            &session,
            &batch(&[&slow, PING, NOTE, &quick, "7"]),
        )
        .await;
    assert_eq!(
        client.head().await.header("content-type"),
        Some("text/event-stream")
    );
    let mut first = Vec::new();
    for _ in 0..3 {
        first.push(client.event().await.unwrap());
    }
    assert!(first[0].contains("-32600"), "{first:?}");
    assert!(
        first
            .iter()
            .any(|text| text == r#"{"jsonrpc":"2.0","id":"p","result":{}}"#),
        "{first:?}"
    );
    assert!(
        first
            .iter()
            .any(|text| text.contains(r#""progressToken":7,"progress":1"#)),
        "{first:?}"
    );
    // Both calls are running already.
    for _ in 0..3 {
        server.log.began().await;
    }
    server.core.release.add_permits(2);
    let mut rest = Vec::new();
    while let Some(event) = client.event().await {
        rest.push(serde_json::from_str::<Value>(&event).unwrap()["id"].clone());
    }
    rest.retain(|id| !id.is_null());
    rest.sort_by_key(|id| id.as_i64());
    assert_eq!(rest, [json!(1), json!(2)]);
}

#[tokio::test]
async fn batch_is_answered_by_an_array_without_event_streams() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let id = client.open("2025-03-26").await;
    let session = [
        ("Mcp-Session-Id", id.as_str()),
        ("Accept", "application/json"),
    ];
    let response = client
        .post(&session, &batch(&[&legacy_call("1", "echo", ""), PING]))
        .await;
    let mut answers: Vec<Value> = serde_json::from_str(&response.body).unwrap();
    answers.sort_by_key(|answer| answer["id"].to_string());
    assert_eq!(answers[0], json!({"jsonrpc":"2.0","id":"p","result":{}}));
    assert!(
        response
            .body
            .contains(r#"{ "content":[],"structuredContent":{"a":1.0}, "n": 1.0 }"#),
        "{}",
        response.body
    );
    for quiet in [
        batch(&[NOTE, NOTE]),
        batch(&[r#"{"jsonrpc":"2.0","id":1,"result":{}}"#]),
    ] {
        let response = client.post(&session, &quiet).await;
        assert_eq!((response.status, response.body.as_str()), (202, ""));
    }
}

#[tokio::test]
async fn batch_with_initialize_or_modern_requests_is_refused() {
    let server = Server::with(FrontendSettings {
        max_batch: 2,
        ..FrontendSettings::default()
    })
    .await;
    let mut client = server.connect().await;
    let id = client.open("2025-03-26").await;
    let session = [
        ("Mcp-Session-Id", id.as_str()),
        ("Accept", "application/json"),
    ];
    for whole in ["[]".to_owned(), batch(&[PING, PING, PING])] {
        let response = client.post(&session, &whole).await;
        assert_eq!((response.status, response.code()), (400, -32600), "{whole}");
    }
    let modern = r#"{"jsonrpc":"2.0","id":"m","method":"server/discover"}"#;
    let answers = client
        .post(&session, &batch(&[INITIALIZE, modern]))
        .await
        .json();
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    assert_eq!(answers.as_array().unwrap().len(), 2);
    // Other revisions, and clients without a session, have no batches.
    let newer = client.open("2025-06-18").await;
    for headers in [vec![("Mcp-Session-Id", newer.as_str())], vec![]] {
        let response = client.post(&headers, &batch(&[PING])).await;
        assert_eq!((response.status, response.code()), (400, -32600));
        assert!(
            response.body.contains("only protocol version 2025-03-26"),
            "{}",
            response.body
        );
    }
}

#[tokio::test]
async fn batch_is_served_on_stdio() {
    let mut stdio = Stdio::start();
    stdio.send(&batch(&[PING])).await;
    assert_eq!(stdio.message().await["error"]["code"], -32600);
    assert!(stdio.ask(INITIALIZE).await.get("result").is_some());
    stdio.send(&batch(&[PING, NOTE, INITIALIZE, "7"])).await;
    let mut messages = [
        stdio.message().await,
        stdio.message().await,
        stdio.message().await,
    ];
    messages.sort_by_key(|message| message["id"].as_str().unwrap_or_default().to_owned());
    let ids_and_codes = messages
        .each_ref()
        .map(|message| (&message["id"], &message["error"]["code"]));
    let invalid = &json!(-32600);
    assert_eq!(
        ids_and_codes,
        [
            (&json!(null), invalid),
            (&json!("i"), invalid),
            (&json!("p"), &json!(null))
        ]
    );
    stdio.send("[]").await;
    assert_eq!(stdio.message().await["error"]["code"], -32600);
    assert!(stdio.end().await.is_empty());
}
