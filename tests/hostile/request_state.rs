//! The `requestState` of a suspended call, which its client carries: forged, cut, exchanged and replayed.

use std::time::Duration;

use fanlight_testkit::slicer::{member, plain_string};

use crate::raw_client::{modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::target::{Bounds, Target};

const CLIENT: &str = r#"{"roots":{}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
const ANSWERS: &str = r#""inputResponses":{"input-1":{"roots":[{"uri":"file:///forged"}]}}"#;

/// A target whose tool `transfer` asks its client first.
async fn asking() -> Target {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["t", "transfer", "other"]);
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    for tool in ["transfer", "other"] {
        let done = Reply::conclude(|_, answers| format!(r#"{{"content":[],"got":{}}}"#, answers[0].text));
        backend.on_target("tools/call", tool, done.asking(&[ASK]));
    }
    Target::of(backend, "").await
}

async fn call(target: &Target, params: &str) -> String {
    let body = modern_request_with(CLIENT, "7", "tools/call", params, "");
    post_modern(target.gateway.mcp, &body).await.messages().await.1
}

/// Begins a call of this tool, and returns its state.
async fn suspend(target: &Target, tool: &str, arguments: &str) -> String {
    let answer = call(target, &format!(r#""name":"{tool}","arguments":{arguments}"#)).await;
    let state = member(&answer, "result.requestState").and_then(plain_string);
    state.unwrap_or_else(|| panic!("not suspended: {answer}")).to_owned()
}

/// Answers with this state, and returns the response.
async fn resume(target: &Target, tool: &str, arguments: &str, state: &str) -> String {
    call(target, &format!(r#""name":"{tool}","arguments":{arguments},{ANSWERS},"requestState":"{state}""#)).await
}

/// The answers to server requests that the server has received.
fn answers(target: &Target) -> usize {
    target.backend.received("").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_states_reach_no_server() {
    let target = asking().await;
    let arguments = r#"{"to":"ann"}"#;
    let state = suspend(&target, "transfer", arguments).await;
    let mut forged: Vec<String> = (0..state.len())
        .flat_map(|position| [b'A', b'Q', b'_'].map(|byte| (position, byte)))
        .map(|(position, byte)| {
            let mut forged = state.clone().into_bytes();
            forged[position] = if forged[position] == byte { b'B' } else { byte };
            String::from_utf8(forged).unwrap()
        })
        .collect();
    forged.extend((0..state.len()).map(|length| state[..length].to_owned()));
    forged.extend([format!("{state}="), format!("{state}{state}"), "A".repeat(1 << 20), state.to_ascii_lowercase()]);
    for forged in forged.iter().filter(|forged| **forged != state) {
        let answer = resume(&target, "transfer", arguments, forged).await;
        assert_eq!(member(&answer, "error.code"), Some("-32602"), "{forged}: {answer}");
    }
    assert_eq!(answers(&target), 0, "a forged state reached the server");
    let answer = resume(&target, "transfer", arguments, &state).await;
    assert!(member(&answer, "result.got").is_some(), "the true one still works: {answer}");
    let bounds = Bounds { processor: Duration::from_secs(8), time: Duration::from_secs(30), ..Bounds::SMALL };
    target.withstood(bounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanged_and_replayed_states_reach_no_server() {
    let target = asking().await;
    let elsewhere = asking().await;
    let ann = suspend(&target, "transfer", r#"{"to":"ann"}"#).await;
    let bob = suspend(&target, "transfer", r#"{"to":"bob"}"#).await;
    let other = suspend(&target, "other", r#"{"to":"ann"}"#).await;
    let foreign = suspend(&elsewhere, "transfer", r#"{"to":"ann"}"#).await;
    for (tool, arguments, state) in [
        ("transfer", r#"{"to":"ann"}"#, &bob),
        ("transfer", r#"{"to":"bob"}"#, &ann),
        ("transfer", r#"{"to":"ann"}"#, &other),
        ("other", r#"{"to":"ann"}"#, &ann),
        ("t", r#"{"to":"ann"}"#, &ann),
        ("transfer", r#"{"to":"ann","to":"bob"}"#, &ann),
        ("transfer", r#"{"to":"ann"}"#, &foreign),
    ] {
        let answer = resume(&target, tool, arguments, state).await;
        assert!(member(&answer, "error.code").is_some(), "{tool} {arguments}: {answer}");
    }
    assert_eq!(answers(&target), 0);
    let first = resume(&target, "transfer", r#"{"to":"ann"}"#, &ann).await;
    assert!(member(&first, "result.got").is_some(), "{first}");
    for _ in 0..20 {
        let replayed = resume(&target, "transfer", r#"{"to":"ann"}"#, &ann).await;
        assert_eq!(member(&replayed, "error.code"), Some("-32602"), "{replayed}");
    }
    assert_eq!(answers(&target), 1, "the call was answered once");
    target.withstood(Bounds::SMALL).await;
    elsewhere.withstood(Bounds::SMALL).await;
}
