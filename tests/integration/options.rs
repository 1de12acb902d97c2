//! Options whose effect clients and operators observe, set to values other than their defaults.

use std::time::Duration;

use crate::harness::Gateway;
use crate::raw_client::{Connection, LegacySession, legacy_request, modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Reply, Transport};

const CALL: &str = r#""name":"t""#;

/// The newest revision whose clients' streams stay open while a server makes Fanlight poll.
const REVISION: &str = "2025-06-18";

/// A legacy server with a tool `t`; the test writes the stream of its response.
async fn server() -> Backend {
    let server = Backend::start(Era::Legacy, Transport::Http).await;
    server.offers_tools(&["t"]);
    server.on("tools/call", Reply::driven());
    server.serves_get();
    server
}

fn config(server: &Backend, more: &str) -> String {
    format!(r#"{{"mcpServers":{{{}}}{more}}}"#, server.entry("only"))
}

/// The server wants an hour. By default the gateway cuts it to a minute, which is longer than any
/// wait of a test.
#[tokio::test]
async fn longest_retry_of_a_server_is_limited() {
    let server = server().await;
    let limits = r#","x-limits":"sseRetryMin=10ms,sseRetryMax=50ms""#;
    let gateway = Gateway::start(&config(&server, limits)).await;
    let session = LegacySession::open_as(gateway.mcp, REVISION).await;
    let answer = async {
        session
            .post(&legacy_request("1", "tools/call", CALL))
            .await
            .messages()
            .await
            .1
    };
    let resumed = async {
        let call = server.stream(0).await;
        call.raw("id: 1\nretry: 3600000\ndata:\n\n").await;
        call.end().await;
        let rest = server.stream(1).await;
        assert_eq!(rest.resumes_after(), Some("1"));
        let id = call.request.member("id").unwrap();
        rest.message(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#
        ))
        .await;
    };
    let (answer, ()) = tokio::join!(answer, resumed);
    assert!(answer.contains("result"), "{answer}");
}

#[tokio::test]
async fn broken_stream_is_given_up_after_as_many_attempts_as_configured() {
    for attempts in [1, 3] {
        let server = server().await;
        server.on(
            "HTTP GET",
            Reply::fault(Fault::Status(503, "text/plain", "")),
        );
        let more = format!(
            r#","x-limits":"streamAttempts={attempts},backendResume=1ms,backendResumeMax=1ms,stream=100ms""#
        );
        let gateway = Gateway::start(&config(&server, &more)).await;
        let session = LegacySession::open_as(gateway.mcp, REVISION).await;
        let answer = async {
            session
                .post(&legacy_request("1", "tools/call", CALL))
                .await
                .messages()
                .await
                .1
        };
        let broken = async {
            let call = server.stream(0).await;
            call.raw("id: 1\ndata:\n\n").await;
            call.end().await;
        };
        let (answer, ()) = tokio::join!(answer, broken);
        assert!(answer.contains("error"), "{answer}");
        let gets = server.received("HTTP GET");
        assert_eq!(
            gets.iter()
                .filter(|get| get.header("last-event-id").is_some())
                .count(),
            attempts
        );
    }
}

/// By default a refused client waits two seconds for the answer.
#[tokio::test]
async fn wait_after_a_refused_request_is_as_configured() {
    let server = Backend::start(Era::Modern, Transport::Http).await;
    server.offers_tools(&["t"]);
    server.on("tools/call", Reply::driven());
    let gateway = Gateway::start(&config(&server, r#","x-limits":"refusedRequest=3s""#)).await;
    let request = modern_request("1", "tools/call", CALL, "");
    let answer = async { post_modern(gateway.mcp, &request).await.messages().await.1 };
    let asking = async {
        let call = server.stream(0).await;
        call.message(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#)
            .await;
        tokio::time::Instant::now()
    };
    let (answer, asked) = tokio::join!(answer, asking);
    assert!(answer.contains("error"), "{answer}");
    assert!(
        asked.elapsed() >= Duration::from_secs(3),
        "{:?}",
        asked.elapsed()
    );
}

#[tokio::test]
async fn page_learns_its_intervals_from_the_overview() {
    let server = server().await;
    let gateway = Gateway::start(&config(&server, "")).await;
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", "/api/overview", &[], b"").await;
    let overview = connection.response().await.text().await;
    let overview: serde_json::Value = serde_json::from_str(&overview).unwrap();
    assert_eq!(
        overview["page"],
        serde_json::json!({ "refreshMs": 2000, "listsMs": 5000 })
    );
}
