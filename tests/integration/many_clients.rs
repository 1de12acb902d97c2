//! Limits for many clients: open files, and connections that streams leave to requests.

use fanlight_tests::slicer::member_at;

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request, listen};
use crate::scripted::{Backend, Era, Reply, Transport, config};

#[tokio::test]
async fn connection_limit_fits_the_limit_of_open_files() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let gateway = Gateway::start_with_files(&config(&[backend.entry("only")]), 64, 256).await;
    assert_eq!(gateway.max_files(), (256, 256));
    let lowered = gateway
        .log
        .line_with("limits.connections (16384) lowered")
        .await;
    assert!(lowered.contains("192"), "{lowered}");
    let gateway = Gateway::start_with_files(&config(&[backend.entry("only")]), 64, 256 << 10).await;
    let files = gateway.max_files();
    assert_eq!(files.0, files.1);
}

#[tokio::test]
async fn workers_serve_connections_and_end_with_the_process() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let only = backend.entry("only");
    for workers in [1, 3] {
        let config = format!(r#"{{"mcpServers":{{{only}}},"x-limits":"workers={workers}"}}"#);
        let gateway = Gateway::start(&config).await;
        // Each stream stays open, so that the next one is assigned to another worker.
        let mut streams = Vec::new();
        for id in 0..2 * workers {
            let stream = listen(gateway.mcp, &id.to_string(), r#"{"toolsListChanged":true}"#).await;
            assert_eq!(stream.status, 200);
            streams.push(stream);
        }
        assert_eq!(
            gateway.threads("worker-"),
            workers - 1,
            "the main thread is one of them"
        );
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn idle_streams_leave_connections_for_requests() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    let only = backend.entry("only");
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{only}}},"x-limits":"streams=2"}}"#
    ))
    .await;
    let session = LegacySession::open(gateway.mcp).await;
    let (get, subscription) = (
        session.stream(None).await,
        listen(gateway.mcp, "1", r#"{"toolsListChanged":true}"#).await,
    );
    assert_eq!((get.status, subscription.status), (200, 200));
    let other = LegacySession::open(gateway.mcp).await;
    let mut refused = other.stream(None).await;
    assert_eq!(refused.status, 503);
    let text = refused.text().await;
    let message = member_at(&text, &["error", "message"]).unwrap();
    assert!(message.contains("2 event streams are open"), "{text}");
    gateway.log.line_with("too many listen-only streams").await;
    let mut refused = listen(gateway.mcp, "7", r#"{"toolsListChanged":true}"#).await;
    assert_eq!(
        (refused.status, member_at(&refused.text().await, &["id"])),
        (503, Some("7"))
    );
    let answer = other
        .post(&legacy_request("2", "tools/call", r#""name":"t""#))
        .await
        .text()
        .await;
    assert!(member_at(&answer, &["result"]).is_some(), "{answer}");
}
