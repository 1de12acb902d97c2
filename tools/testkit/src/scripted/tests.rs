//! The scripted server and the raw clients, connected directly: each tool tests the other.

use std::net::SocketAddr;
use std::process::Stdio;

use crate::slicer;
use tokio::process::{Child, Command};

use super::reply::End;
use super::*;
use crate::raw_client::{
    LegacySession, MODERN, StdioClient, legacy_request, modern_request, post_modern,
};

pub(super) fn address(backend: &Backend) -> SocketAddr {
    backend.address
}

/// Starts the child as a gateway would.
pub(super) fn child(backend: &Backend) -> (StdioClient, Child) {
    let (program, arguments) = backend.command(&[]);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    (
        StdioClient::unchecked(child.stdin.take().unwrap(), child.stdout.take().unwrap()),
        child,
    )
}

const RAW: &str = r#"{"structuredContent":{"n":1.0,"e":1E400,"s":"\u0041\/"},"content":[]}"#;

#[tokio::test]
async fn http_server_keeps_bytes_in_both_directions() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.on_target("tools/call", "t", Reply::result(RAW));
    let body = modern_request(
        "\"\\u0061\"",
        "tools/call",
        r#""name":"t","arguments":{"x":-0}"#,
        "",
    );
    let mut response = post_modern(address(&backend), &body).await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.text().await,
        format!(r#"{{"jsonrpc":"2.0","id":"\u0061","result":{RAW}}}"#)
    );
    let received = backend.received("tools/call");
    assert_eq!(received[0].text, body);
    assert_eq!(received[0].header("mcp-protocol-version"), Some(MODERN));
    assert_eq!(received[0].header("mcp-name"), Some("t"));
}

#[tokio::test]
async fn http_server_streams_messages_and_waits_at_the_gate() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    let gate = Gate::new();
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token}}}"#;
    backend.on(
        "tools/call",
        Reply::result("{}").after(&[progress]).gated(&gate),
    );
    let session = LegacySession::open(address(&backend)).await;
    assert!(session.session.as_deref().unwrap().starts_with("session-"));
    let body = legacy_request(
        "1",
        "tools/call",
        r#""name":"t","_meta":{"progressToken":"p"}"#,
    );
    let mut response = session.post(&body).await;
    let first = response.event().await.unwrap().unwrap();
    assert_eq!(
        slicer::member(&first, "params.progressToken"),
        Some("\"p\"")
    );
    gate.reached(1).await;
    gate.open();
    assert_eq!(
        response.messages().await,
        (vec![], r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned())
    );
}

#[tokio::test]
async fn http_server_notices_a_client_that_disconnects() {
    for reply in [
        Reply::fault(Fault::Hang),
        Reply::fault(Fault::Hang).streamed(),
    ] {
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        let address = address(&backend);
        backend.on("tools/call", reply);
        let body = modern_request("1", "tools/call", r#""name":"t""#, "");
        let request = tokio::spawn(async move { post_modern(address, &body).await.bytes().await });
        backend.wait_for("tools/call", 1).await;
        request.abort();
        backend.wait_abandoned("tools/call").await;
    }
}

#[tokio::test]
async fn http_server_faults_reach_the_client() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let body = modern_request("1", "tools/call", r#""name":"t""#, "");
    backend.once("tools/call", Reply::fault(Fault::BreakOff));
    assert!(
        post_modern(address(&backend), &body)
            .await
            .bytes()
            .await
            .is_err()
    );
    backend.once("tools/call", Reply::fault(Fault::HalfEvent).streamed());
    assert_eq!(
        post_modern(address(&backend), &body)
            .await
            .event()
            .await
            .unwrap(),
        None
    );
    backend.once(
        "tools/call",
        Reply::fault(Fault::Status(404, "text/plain", "gone")),
    );
    let mut response = post_modern(address(&backend), &body).await;
    assert_eq!(
        (response.status, response.text().await.as_str()),
        (404, "gone")
    );
    backend.once("tools/call", Reply::fault(Fault::Huge(1 << 20)));
    assert!(
        post_modern(address(&backend), &body)
            .await
            .bytes()
            .await
            .unwrap()
            .len()
            > 1 << 20
    );
}

#[tokio::test]
async fn era_defaults_are_those_of_its_servers() {
    let legacy = Backend::start(Era::Legacy, Transport::Http).await;
    let probe = modern_request("1", "server/discover", "", "");
    assert_eq!(post_modern(address(&legacy), &probe).await.status, 400);
    let modern = Backend::start(Era::Modern, Transport::Http).await;
    let mut discovered = post_modern(address(&modern), &probe).await;
    assert_eq!(discovered.status, 200);
    assert!(slicer::member(&discovered.text().await, "result.supportedVersions").is_some());
    let unknown = modern_request("1", "no/such", "", "");
    assert_eq!(post_modern(address(&modern), &unknown).await.status, 404);
}

#[tokio::test]
async fn stdio_server_keeps_bytes_and_ends_with_its_input() {
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.on("tools/call", Reply::result(RAW));
    let (mut client, mut child) = child(&backend);
    client.initialize("2025-11-25").await;
    let (_, answer) = client
        .call(&legacy_request("1e0", "tools/call", r#""name":"t""#))
        .await;
    assert_eq!(
        answer,
        format!(r#"{{"jsonrpc":"2.0","id":1e0,"result":{RAW}}}"#)
    );
    assert_eq!(
        backend.wait_for("notifications/initialized", 1).await.len(),
        1
    );
    assert_eq!(backend.children(1).await, [child.id().unwrap()]);
    client.close_input();
    assert!(
        within("the child to end", child.wait())
            .await
            .unwrap()
            .success()
    );
}

#[tokio::test]
async fn stdio_server_faults_reach_the_client() {
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    let call = legacy_request("1", "tools/call", r#""name":"t""#);
    backend.once(
        "tools/call",
        Reply::fault(Fault::Garbage(b"not JSON\n\n{\n".to_vec(), "{}".to_owned())),
    );
    backend.once("tools/call", Reply::fault(Fault::Huge(1 << 20)));
    backend.once("tools/call", Reply::fault(Fault::Die(3)));
    let (mut client, mut child) = child(&backend);
    let (garbage, _) = client.call(&call).await;
    assert_eq!(garbage, ["not JSON", "", "{"]);
    assert!(client.call(&call).await.1.len() > 1 << 20);
    client.send(&call).await;
    assert_eq!(client.receive().await, None);
    assert_eq!(
        within("the child to end", child.wait())
            .await
            .unwrap()
            .code(),
        Some(3)
    );
}

#[test]
fn rules_apply_once_then_specific_then_newest() {
    let shared = Shared::new(Era::Legacy);
    let rule = |target: Option<&str>, once, result: &str| Rule {
        method: "tools/call".to_owned(),
        target: target.map(str::to_owned),
        once,
        reply: Reply::result(result),
    };
    shared.rules.lock().unwrap().extend([
        rule(None, false, "old"),
        rule(Some("a"), false, "a"),
        rule(None, false, "new"),
        rule(None, true, "first"),
        rule(None, true, "second"),
    ]);
    let ask = |name: &str| {
        let request = Received::message(
            legacy_request("1", "tools/call", &format!(r#""name":"{name}""#)),
            vec![],
        );
        match shared.reply(&request).unwrap().end {
            End::Result(result) => result,
            _ => panic!("a result"),
        }
    };
    assert_eq!(
        [ask("a"), ask("b"), ask("a"), ask("b")],
        ["first", "second", "a", "new"]
    );
}
