//! Calls that are suspended while a modern client collects input for a legacy server.

use std::collections::HashMap;

use fanlight_tests::slicer::{member, plain_string};
use tokio::task::JoinSet;

use super::{ASK, EVERYTHING, roots};
use crate::clients::{Client, Exchange};
use crate::faults::backend;
use crate::harness::within;
use crate::raw_client::{modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Fault, Gate, Received, Reply, Transport};

const FRONTS: [Transport; 2] = [Transport::Http, Transport::Stdio];
const BACKS: [Transport; 2] = [Transport::Http, Transport::Stdio];
const CALL: &str = r#""name":"t","arguments":{}"#;
const INPUT: &str = r#""input-1":{"roots":[]}"#;

async fn client_of(backend: &Backend, front: Transport, more: &str) -> Client {
    let text = format!(r#"{{"mcpServers":{{{}}}{more}}}"#, backend.entry("only"));
    Client::start_with(EVERYTHING, &text, Era::Modern, front).await
}

/// Requests the roots and responds with them.
pub(super) fn asks_for_roots() -> Reply {
    let got = |call: &Received, answers: &[std::sync::Arc<Received>]| {
        let (who, roots) = (
            call.member("params.arguments.who").unwrap_or("0"),
            answers[0].member("result.roots"),
        );
        let roots = roots.ok_or_else(|| answers[0].text.clone());
        format!(r#"{{"content":[],"who":{who},"roots":{}}}"#, roots.unwrap())
    };
    Reply::conclude(got).asking(&[ASK])
}

fn assert_suspended(exchange: &Exchange) {
    assert_eq!(
        exchange.inputs().map(|inputs| inputs.len()),
        Some(1),
        "{}",
        exchange.answer
    );
}

/// Waits until the server knows that the call is cancelled: by a closed connection, a notification,
/// or both.
async fn assert_cancelled(backend: &Backend) {
    let cancelled = backend.wait_for("notifications/cancelled", 1).await;
    assert_eq!(
        cancelled[0].member("params.requestId"),
        backend.received("tools/call")[0].member("id")
    );
}

#[tokio::test]
async fn suspended_call_without_a_retry_is_cancelled_and_frees_its_slot() {
    for front in FRONTS {
        for back in BACKS {
            let backend = backend(Era::Legacy, back).await;
            backend.once("tools/call", asks_for_roots());
            let limits = r#","x-limits":"clientAnswer=2s,suspendedCalls=1""#;
            let mut client = client_of(&backend, front, limits).await;
            let left = client.request("1", "tools/call", CALL, "").await;
            assert_suspended(&left);
            assert_cancelled(&backend).await;
            // The table has one entry, which is free again: the next call can be suspended and
            // resumed.
            backend.once("tools/call", asks_for_roots());
            let next = client.request("2", "tools/call", CALL, "").await;
            assert_suspended(&next);
            let done = client
                .request("3", "tools/call", &next.retry(CALL, INPUT), "")
                .await;
            assert_eq!(done.member("result.roots"), "[]");
            let late = client
                .request("4", "tools/call", &left.retry(CALL, INPUT), "")
                .await;
            assert_eq!(late.member("error.code"), "-32602", "{front:?} {back:?}");
        }
    }
}

/// If the table is full, the server gets an error that says that the client cannot be asked, and
/// the call continues.
#[tokio::test]
async fn suspended_calls_are_limited() {
    let backend = backend(Era::Legacy, Transport::Http).await;
    backend.once("tools/call", asks_for_roots());
    let refused = |_: &Received, answers: &[std::sync::Arc<Received>]| {
        format!(
            r#"{{"content":[],"got":{}}}"#,
            answers[0].member("error").expect("an error")
        )
    };
    backend.on("tools/call", Reply::conclude(refused).asking(&[ASK]));
    let mut client = client_of(
        &backend,
        Transport::Http,
        r#","x-limits":"suspendedCalls=1""#,
    )
    .await;
    let suspended = client.request("1", "tools/call", CALL, "").await;
    assert_suspended(&suspended);
    client
        .request("2", "tools/call", CALL, "")
        .await
        .member("result.got.code");
    let done = client
        .request("3", "tools/call", &suspended.retry(CALL, INPUT), "")
        .await;
    assert_eq!(done.member("result.roots"), "[]");
}

#[tokio::test]
async fn loss_of_the_backend_of_a_suspended_call_fails_the_retry() {
    for front in FRONTS {
        for back in BACKS {
            let backend = backend(Era::Legacy, back).await;
            let gate = Gate::new();
            backend.once(
                "tools/call",
                Reply::fault(Fault::Die(1)).after(&[ASK]).gated(&gate),
            );
            let mut client = client_of(&backend, front, "").await;
            let suspended = client.request("1", "tools/call", CALL, "").await;
            assert_suspended(&suspended);
            gate.reached(1).await;
            gate.open();
            let retry = client
                .request("2", "tools/call", &suspended.retry(CALL, INPUT), "")
                .await;
            let message = retry.member("error.message");
            assert!(message.contains("only"), "names the backend: {message}");
            client.call("t").await.member("result.content");
        }
    }
}

/// Two processes with the same keys, as before and after a restart: the second one recognizes the
/// state as genuine and does not repeat the call.
#[tokio::test]
async fn state_of_another_process_says_that_its_call_is_gone() {
    let backend = backend(Era::Legacy, Transport::Http).await;
    backend.on("tools/call", asks_for_roots());
    let keys = format!(r#","keys":["{}"]"#, "ab".repeat(32));
    let mut first = client_of(&backend, Transport::Http, &keys).await;
    let mut second = client_of(&backend, Transport::Http, &keys).await;
    let suspended = first.request("1", "tools/call", CALL, "").await;
    assert_suspended(&suspended);
    let lost = second
        .request("2", "tools/call", &suspended.retry(CALL, INPUT), "")
        .await;
    assert_eq!(lost.member("error.code"), "-32602");
    assert!(
        lost.member("error.message").contains("restarted"),
        "{}",
        lost.answer
    );
    let done = first
        .request("3", "tools/call", &suspended.retry(CALL, INPUT), "")
        .await;
    assert_eq!(done.member("result.roots"), "[]");
    assert_eq!(backend.received("tools/call").len(), 1);
}

/// A suspended call belongs to no connection: the client may disconnect and resume it on another
/// one.
#[tokio::test]
async fn resumed_call_can_be_cancelled() {
    for back in BACKS {
        let backend = backend(Era::Legacy, back).await;
        backend.once("tools/call", Reply::fault(Fault::Hang).asking(&[ASK]));
        let client = client_of(&backend, Transport::Http, "").await;
        let request =
            |id: &str, params: &str| modern_request_with(EVERYTHING, id, "tools/call", params, "");
        let answer = post_modern(client.address(), &request("1", CALL))
            .await
            .text()
            .await;
        let suspended = Exchange {
            before: Vec::new(),
            answer,
        };
        assert_suspended(&suspended);
        let (address, retry) = (
            client.address(),
            request("2", &suspended.retry(CALL, INPUT)),
        );
        let resumed =
            tokio::spawn(async move { post_modern(address, &retry).await.messages().await });
        let call = &backend.received("tools/call")[0];
        let id = format!(r#""ask-{}""#, call.member("id").unwrap().trim_matches('"'));
        backend.answer_to(&id, call).await;
        resumed.abort();
        assert_cancelled(&backend).await;
    }
}

#[tokio::test]
async fn suspended_calls_are_resumed_with_their_own_responses() {
    const CALLS: usize = 100;
    // HTTP only: over stdio a server request does not name its call, so it is refused if several
    // calls run.
    let backend = backend(Era::Legacy, Transport::Http).await;
    backend.on("tools/call", asks_for_roots());
    let client = client_of(&backend, Transport::Http, "").await;
    let address = client.address();
    let params = |n: usize| format!(r#""name":"t","arguments":{{"who":{n}}}"#);
    let send = move |id: String, params: String| async move {
        let request = modern_request_with(EVERYTHING, &id, "tools/call", &params, "");
        let (before, answer) = post_modern(address, &request).await.messages().await;
        Exchange { before, answer }
    };
    let mut calls = JoinSet::new();
    for n in 0..CALLS {
        calls.spawn(async move { (n, send(format!("{n}"), params(n)).await) });
    }
    let mut suspended = HashMap::new();
    while let Some(call) = within("a server request", calls.join_next()).await {
        let (n, exchange) = call.unwrap();
        assert_suspended(&exchange);
        suspended.insert(n, exchange);
    }
    // All calls are suspended at once and resumed in another order.
    let mut retries = JoinSet::new();
    for (n, exchange) in suspended {
        let retry = exchange.retry(
            &params(n),
            &format!(r#""input-1":{}"#, roots(&n.to_string())),
        );
        retries.spawn(async move { (n, send(format!("\"again-{n}\""), retry).await) });
    }
    while let Some(retry) = within("an answer", retries.join_next()).await {
        let (n, exchange) = retry.unwrap();
        assert_eq!(exchange.member("id"), format!("\"again-{n}\""));
        assert_eq!(exchange.member("result.who"), n.to_string());
        let uri = member(&exchange.answer, "result.roots.0.uri").and_then(plain_string);
        assert_eq!(uri, Some(format!("file:///{n}").as_str()));
    }
    assert_eq!(backend.received("tools/call").len(), CALLS);
}
