//! SIGTERM while calls run longer than the drain time: each client gets an error that says whether
//! its call may have run, and streams end properly.

use std::net::SocketAddr;

use fanlight_tests::slicer::member;
use tokio::task::JoinHandle;

use crate::faults::backend;
use crate::harness::{Gateway, within};
use crate::raw_client::{
    Connection, INITIALIZED, LegacySession, Response, StdioClient, initialize, legacy_request,
    modern_request, post_modern,
};
use crate::scripted::{Backend, Era, Fault, Reply, Transport};

const BRIEF: &str = r#""timeouts":{"drain":"500ms"},"x-limits":"stream=200ms"#;

fn config(backend: &Backend, limits: &str) -> String {
    format!(
        r#"{{"mcpServers":{{{}}},{BRIEF}{limits}"}}"#,
        backend.entry("only")
    )
}

fn assert_interrupted(text: &str, may_have_run: bool) {
    assert_eq!(member(text, "id"), Some("1"), "{text}");
    let expected = if may_have_run { "true" } else { "false" };
    assert_eq!(
        member(text, "error.data.mayHaveRun"),
        Some(expected),
        "{text}"
    );
}

fn reading(response: impl Future<Output = Response> + Send + 'static) -> JoinHandle<String> {
    tokio::spawn(async move { response.await.messages().await.1 })
}

#[tokio::test]
async fn calls_over_http_that_outlast_the_drain_end_with_an_error() {
    for (era, transport) in [
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Stdio),
        (Era::Legacy, Transport::Stdio),
    ] {
        let server = backend(era, transport).await;
        server.on("tools/call", Reply::fault(Fault::Hang));
        let gateway = Gateway::start(&config(&server, ",concurrency=2")).await;
        let address = gateway.mcp;
        let session = LegacySession::open(address).await;
        let modern = modern_request("1", "tools/call", r#""name":"t""#, "");
        let first = reading(async move { post_modern(address, &modern).await });
        let legacy = reading(async move {
            session
                .post(&legacy_request("1", "tools/call", r#""name":"t""#))
                .await
        });
        server.wait_for("tools/call", 2).await;
        // The call gets no permit, so it waits.
        let waiting = modern_request("1", "tools/call", r#""name":"waits""#, "");
        // The event stream of the waiting call begins after a while.
        let mut waiting = post_modern(address, &waiting).await;
        let ended = gateway.terminate().await;
        assert!(ended.success(), "{ended:?}");
        for running in [first, legacy] {
            assert_interrupted(&within("an error", running).await.unwrap(), true);
        }
        assert_interrupted(&waiting.messages().await.1, false);
        assert_eq!(server.received("tools/call").len(), 2);
    }
}

#[tokio::test]
async fn call_over_stdio_that_outlasts_the_drain_ends_with_an_error() {
    for era in [Era::Modern, Era::Legacy] {
        let server = backend(Era::Legacy, Transport::Http).await;
        server.on("tools/call", Reply::fault(Fault::Hang));
        let mut gateway = Gateway::stdio(&config(&server, ""));
        let mut client = StdioClient::new(&mut gateway);
        let request = match era {
            Era::Modern => modern_request("1", "tools/call", r#""name":"t""#, ""),
            Era::Legacy => {
                client.call(&initialize("2025-11-25", "{}")).await;
                client.send(INITIALIZED).await;
                legacy_request("1", "tools/call", r#""name":"t""#)
            }
        };
        client.send(&request).await;
        server.wait_for("tools/call", 1).await;
        client.close_input();
        assert_interrupted(&client.receive().await.expect("an error"), true);
        assert_eq!(client.receive().await, None);
        assert!(gateway.ended().await.success());
    }
}

#[tokio::test]
async fn call_over_the_sse_transport_that_outlasts_the_drain_ends_with_an_error() {
    let server = backend(Era::Legacy, Transport::Http).await;
    server.on("tools/call", Reply::fault(Fault::Hang));
    let gateway = Gateway::start(&config(&server, "")).await;
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("GET", "/sse", &[("Accept", "text/event-stream")], b"")
        .await;
    let mut stream = connection.response().await;
    let endpoint = stream.event().await.unwrap().expect("the endpoint");
    let send = async |address: SocketAddr, message: &str| {
        let mut connection = Connection::open(address).await;
        let headers = [("Content-Type", "application/json")];
        connection
            .request("POST", &endpoint, &headers, message.as_bytes())
            .await;
        assert_eq!(connection.response().await.status, 202);
    };
    send(gateway.mcp, &initialize("2024-11-05", "{}")).await;
    stream
        .event()
        .await
        .unwrap()
        .expect("the answer to initialize");
    send(gateway.mcp, INITIALIZED).await;
    send(
        gateway.mcp,
        &legacy_request("1", "tools/call", r#""name":"t""#),
    )
    .await;
    server.wait_for("tools/call", 1).await;
    let ending = tokio::spawn(gateway.terminate());
    assert_interrupted(&stream.event().await.unwrap().expect("an error"), true);
    assert_eq!(stream.event().await.expect("a whole stream"), None);
    assert!(ending.await.unwrap().success());
}

#[tokio::test]
async fn call_that_waits_for_its_clients_input_ends_with_an_error() {
    let server = backend(Era::Modern, Transport::Http).await;
    let input = r#"{"method":"roots/list"}"#;
    let required = format!(
        r#"{{"resultType":"input_required","inputRequests":{{"a":{input}}},"requestState":"s"}}"#
    );
    server.on("tools/call", Reply::result(required));
    let gateway = Gateway::start(&config(&server, "")).await;
    let session = LegacySession::open_with(gateway.mcp, "2025-11-25", r#"{"roots":{}}"#).await;
    let mut response = session
        .post(&legacy_request("1", "tools/call", r#""name":"t""#))
        .await;
    let asked = response
        .event()
        .await
        .unwrap()
        .expect("a request of the server");
    assert_eq!(member(&asked, "method"), Some(r#""roots/list""#), "{asked}");
    let ending = tokio::spawn(gateway.terminate());
    let answer = response.messages().await.1;
    assert!(
        member(&answer, "error").is_some() && answer.contains("was shut down"),
        "{answer}"
    );
    assert!(ending.await.unwrap().success());
}
