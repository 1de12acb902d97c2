//! Batches of millions of elements, each of which would become a message.

use std::time::Duration;

use fanlight_testkit::slicer::member;

use crate::raw_client::{Connection, JSON_HEADERS, LegacySession, StdioClient, legacy_request};
use crate::scripted::{Backend, Era, Transport, config};
use crate::target::{Bounds, Target};

/// Just below `limits.requestBody`.
const LARGEST: usize = 15 << 20;

fn batch_of(element: &str, size: usize) -> String {
    let mut text = String::with_capacity(size + element.len());
    text.push('[');
    while text.len() + element.len() + 2 < size {
        text.push_str(element);
        text.push(',');
    }
    text.push_str(element);
    text.push(']');
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly"]
async fn batch_of_millions_is_counted_before_it_is_built() {
    let target = Target::start().await;
    let session = LegacySession::open_as(target.gateway.mcp, "2025-03-26").await;
    let ping = legacy_request("1", "ping", "");
    for element in [
        "1",
        "[]",
        "{}",
        r#""""#,
        &ping,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
    ] {
        let body = batch_of(element, LARGEST);
        // The test writes the request by hand: the raw client checks what it sends, which would
        // exceed the time for a head.
        let mut connection = Connection::open(target.gateway.mcp).await;
        let length = body.len().to_string();
        let own = [
            ("Mcp-Session-Id", session.session.as_deref().unwrap()),
            ("Content-Length", &length),
        ];
        let head = connection.head("POST", "/mcp", &[&JSON_HEADERS[..], &own].concat());
        connection
            .send(&[&head, body.as_bytes()].concat())
            .await
            .unwrap();
        let mut response = connection.response().await;
        let answer = response.text().await;
        assert_eq!(
            (response.status, member(&answer, "error.code")),
            (400, Some("-32600")),
            "{element}: {answer}"
        );
        assert!(answer.contains("more than 100 messages"), "{answer}");
    }
    // At most two bodies of 15 MiB are in memory at once. A debug build reads JSON slowly.
    let bounds = Bounds {
        memory: 56 << 20,
        processor: Duration::from_secs(20),
        time: Duration::from_secs(40),
        ..Bounds::SMALL
    };
    target.withstood(bounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_at_the_limit_is_served_and_one_above_is_not() {
    let target = Target::with(r#""x-limits":"batch=3""#).await;
    let session = LegacySession::open_as(target.gateway.mcp, "2025-03-26").await;
    let ping = |id: usize| legacy_request(&id.to_string(), "ping", "");
    let batch = |messages: usize| {
        format!(
            "[{}]",
            (0..messages).map(ping).collect::<Vec<_>>().join(", ")
        )
    };
    assert_eq!(session.post(&batch(3)).await.status, 200);
    assert_eq!(session.post(&batch(4)).await.status, 400);
    assert_eq!(session.post("[]").await.status, 400);
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_of_millions_on_stdio_leaves_the_client_served() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    let mut gateway = crate::harness::Gateway::stdio(&config(&[backend.entry("a")]));
    // 2025-03-26 requires an id in each error, but a batch has none.
    for definition in ["JSONRPCMessage", "JSONRPCError"] {
        gateway
            .checks
            .excuse(definition, "", "an error about a whole batch has no id");
    }
    let mut client = StdioClient::new(&mut gateway);
    client.initialize("2025-03-26").await;
    client.send(&batch_of("1", 4 << 20)).await;
    let refusal = client.receive().await.expect("an answer");
    assert_eq!(member(&refusal, "error.code"), Some("-32600"), "{refusal}");
    let (_, answer) = client.call(&legacy_request("5", "ping", "")).await;
    assert_eq!(member(&answer, "result"), Some("{}"));
}
