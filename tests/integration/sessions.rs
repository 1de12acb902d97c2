//! Sessions, at servers and at clients, that end while requests run.

use std::time::Duration;

use crate::clients::Client;
use crate::faults::backend;
use crate::harness::{Gateway, within};
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Era, Fault, Gate, Received, Reply, Transport, config};

/// 2025-11-25 transports, Session Management: after a 404 the gateway opens a new session and sends
/// the request again, which has not run.
#[tokio::test]
async fn lost_backend_session_is_reopened_and_the_request_is_repeated() {
    for (era, front) in [
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Stdio),
    ] {
        let backend = backend(Era::Legacy, Transport::Http).await;
        let mut client = Client::start(&config(&[backend.entry("only")]), era, front).await;
        client.call("t").await.member("result.content");
        let sessions = backend.received("initialize").len();
        backend.forget_session_of("tools/call");
        client.call("t").await.member("result.content");
        assert_eq!(backend.received("initialize").len(), sessions + 1);
        let calls = backend.received("tools/call");
        let session = |call: &Received| call.header("mcp-session-id").map(str::to_owned);
        assert_eq!(calls.len(), 3);
        assert_eq!(session(&calls[0]), session(&calls[1]));
        assert_ne!(session(&calls[1]), session(&calls[2]));
        assert_eq!(calls[1].member("params"), calls[2].member("params"));
    }
}

/// A second consecutive 404 is an error.
#[tokio::test]
async fn backend_that_loses_every_session_fails_the_call() {
    let backend = backend(Era::Legacy, Transport::Http).await;
    let mut client = Client::start(
        &config(&[backend.entry("only")]),
        Era::Legacy,
        Transport::Http,
    )
    .await;
    client.call("t").await.member("result.content");
    backend.on(
        "tools/call",
        Reply::fault(Fault::Status(404, "text/plain", "no such session")),
    );
    let message = client.call("t").await.member("error.message").to_owned();
    assert!(message.contains("only"), "{message}");
    assert!(backend.received("tools/call").len() <= 4);
}

#[tokio::test]
async fn running_call_survives_the_loss_of_the_backend_session() {
    let backend = backend(Era::Legacy, Transport::Http).await;
    let gate = Gate::new();
    let slow = Reply::result(r#"{"content":[],"slow":true}"#)
        .streamed()
        .gated(&gate);
    backend.on_target("tools/call", "slow", slow);
    let gateway = Gateway::start(&config(&[backend.entry("only")])).await;
    let session = std::sync::Arc::new(LegacySession::open(gateway.mcp).await);
    let running = {
        let session = std::sync::Arc::clone(&session);
        let request = legacy_request("1", "tools/call", r#""name":"slow""#);
        tokio::spawn(async move { session.post(&request).await.messages().await.1 })
    };
    gate.reached(1).await;
    backend.forget_session_of("tools/call");
    let other = session
        .post(&legacy_request("2", "tools/call", r#""name":"t""#))
        .await
        .text()
        .await;
    assert!(other.contains(r#""content":[]"#), "{other}");
    gate.open();
    let answer = within("the slow call", running).await.unwrap();
    assert!(answer.contains(r#""slow":true"#), "{answer}");
    assert_eq!(
        backend.received("tools/call").len(),
        3,
        "the running call was not sent again"
    );
}

/// The idle time begins at the end of the last request.
#[tokio::test]
async fn session_with_a_running_call_is_not_idle() {
    const IDLE: Duration = Duration::from_secs(1);
    let backend = backend(Era::Legacy, Transport::Http).await;
    let gate = Gate::new();
    backend.on_target(
        "tools/call",
        "slow",
        Reply::result(r#"{"content":[]}"#).gated(&gate),
    );
    let timeouts = format!(r#""timeouts":{{"sessionIdle":"{}ms"}}"#, IDLE.as_millis());
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{}}},{timeouts}}}"#,
        backend.entry("only")
    ))
    .await;
    let session = std::sync::Arc::new(LegacySession::open(gateway.mcp).await);
    let running = {
        let session = std::sync::Arc::clone(&session);
        let request = legacy_request("1", "tools/call", r#""name":"slow""#);
        tokio::spawn(async move { session.post(&request).await.messages().await.1 })
    };
    gate.reached(1).await;
    // Time itself is under test. The wait is long enough for an idle session to end, as the last
    // lines show.
    tokio::time::sleep(2 * IDLE).await;
    gate.open();
    let answer = within("the slow call", running).await.unwrap();
    assert!(answer.contains(r#""content":[]"#), "{answer}");
    let list = legacy_request("2", "tools/list", "");
    assert_eq!(
        session.post(&list).await.status,
        200,
        "the session has not ended"
    );
    tokio::time::sleep(2 * IDLE).await;
    assert_eq!(session.post(&list).await.status, 404);
    let again = LegacySession::open(gateway.mcp).await;
    assert_eq!(again.post(&list).await.status, 200);
}
