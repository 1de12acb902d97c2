//! Many concurrent clients at shared servers; some of the clients do not read.

use std::time::Duration;

use fanlight_tests::slicer::member;
use tokio::task::JoinSet;

use crate::clients::Client;
use crate::faults::backend;
use crate::harness::{Gateway, within};
use crate::raw_client::{Connection, LegacySession, legacy_request, modern_request, post_modern};
use crate::scripted::{Era, Fault, Gate, Reply, Transport, config};

/// Repeats its progress token twice: as the token, which the gateway translates, and in the text,
/// which identifies the caller.
const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":1,"of":{token}}}"#;

#[tokio::test]
async fn concurrent_calls_get_their_own_progress_and_responses() {
    const CALLS: usize = 200;
    for transport in [Transport::Stdio, Transport::Http] {
        let shared = backend(Era::Legacy, transport).await;
        let gate = Gate::new();
        let echo = Reply::compute(|call| {
            let (token, who) = (
                call.member("params._meta.progressToken"),
                call.member("params.arguments.who"),
            );
            format!(
                r#"{{"content":[],"of":{},"who":{}}}"#,
                token.unwrap(),
                who.unwrap()
            )
        });
        shared.on("tools/call", echo.after(&[PROGRESS, PROGRESS]).gated(&gate));
        let gateway = Gateway::start(&config(&[shared.entry("shared")])).await;
        let address = gateway.mcp;
        let mut calls = JoinSet::new();
        for n in 0..CALLS {
            calls.spawn(async move {
                let params = format!(r#""name":"t","arguments":{{"who":{n}}}"#);
                let request = modern_request(
                    &format!("\"id{n}\""),
                    "tools/call",
                    &params,
                    &format!(r#""progressToken":"p{n}""#),
                );
                (n, post_modern(address, &request).await.messages().await)
            });
        }
        // All calls run before the first response.
        gate.reached(CALLS).await;
        gate.open();
        while let Some(call) = within("a call", calls.join_next()).await {
            let (n, (progress, answer)) = call.unwrap();
            assert_eq!(
                member(&answer, "id"),
                Some(format!("\"id{n}\"").as_str()),
                "{answer}"
            );
            assert_eq!(
                member(&answer, "result.who"),
                Some(n.to_string().as_str()),
                "{answer}"
            );
            assert_eq!(progress.len(), 2, "{progress:?}");
            for event in &progress {
                assert_eq!(
                    member(event, "params.progressToken"),
                    Some(format!("\"p{n}\"").as_str()),
                    "{event}"
                );
                assert_eq!(
                    member(event, "params.of"),
                    member(&answer, "result.of"),
                    "{event}"
                );
            }
        }
    }
}

#[tokio::test]
async fn client_that_does_not_read_delays_no_other_and_uses_bounded_memory() {
    const EVENT: usize = 64 << 10;
    const EVENTS: usize = 3000;
    for transport in [Transport::Stdio, Transport::Http] {
        let shared = backend(Era::Legacy, transport).await;
        let event = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{{token}},"progress":1,"x":"{}"}}}}"#,
            "x".repeat(EVENT)
        );
        let flood = Reply::result(r#"{"content":[]}"#).after(&vec![event.as_str(); EVENTS]);
        shared.on_target("tools/call", "flood", flood);
        let gateway = Gateway::start(&format!(
            r#"{{"mcpServers":{{{}}},"x-limits":"notifications=16"}}"#,
            shared.entry("shared")
        ))
        .await;
        let session = LegacySession::open(gateway.mcp).await;
        let request = legacy_request(
            "1",
            "tools/call",
            r#""name":"flood","_meta":{"progressToken":1}"#,
        );
        let unread = session.post(&request).await;
        for n in 2..20 {
            let answer = session
                .post(&legacy_request(
                    &n.to_string(),
                    "tools/call",
                    r#""name":"t""#,
                ))
                .await
                .text()
                .await;
            assert!(member(&answer, "result").is_some(), "{answer}");
        }
        let peak = gateway.peak_memory();
        assert!(peak < (EVENT * EVENTS / 2) as u64, "{peak} bytes");
        drop(unread);
    }
}

#[tokio::test]
async fn server_that_hangs_in_lists_delays_no_call_of_another() {
    let (bad, good) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Legacy, Transport::Http).await,
    );
    for method in ["tools/list", "resources/list", "prompts/list"] {
        bad.on(method, Reply::fault(Fault::Hang));
    }
    // The time-out is longer than any test waits, so a client that waits for the list fails.
    let entries = [bad.entry("bad"), good.entry("good")].join(",");
    let text = format!(r#"{{"mcpServers":{{{entries}}},"x-limits":"list=1h"}}"#);
    for era in [Era::Modern, Era::Legacy] {
        let mut client = Client::start(&text, era, Transport::Http).await;
        client.call("good__t").await.member("result");
    }
}

#[tokio::test]
async fn readiness_survives_the_loss_of_a_server() {
    let (bad, good) = (
        backend(Era::Legacy, Transport::Http).await,
        backend(Era::Legacy, Transport::Http).await,
    );
    for method in ["server/discover", "initialize"] {
        bad.on(method, Reply::fault(Fault::Hang));
    }
    let entries = [bad.entry("bad"), good.entry("good")].join(",");
    let text = format!(r#"{{"mcpServers":{{{entries}}},"x-limits":"connect=2s,probe=2s"}}"#);
    let gateway = Gateway::start(&text).await;
    bad.wait_for("server/discover", 1).await;
    assert_eq!(
        readiness(&gateway).await,
        503,
        "the first attempt has not ended"
    );
    // The second attempt has begun and hangs like the first.
    bad.wait_for("server/discover", 2).await;
    assert_eq!(readiness(&gateway).await, 200);
}

async fn readiness(gateway: &Gateway) -> u16 {
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", "/readyz", &[], b"").await;
    tokio::time::timeout(Duration::from_secs(5), connection.response())
        .await
        .unwrap()
        .status
}
