//! Servers that send more than clients read: memory keeps their messages only up to a bound in
//! bytes, and only their own calls suffer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fanlight_testkit::slicer::member;
use tokio::task::JoinSet;

use crate::harness::within;
use crate::raw_client::{
    Connection, JSON_HEADERS, Response, modern_headers, modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Reply, Stream, Transport};
use crate::target::{Bounds, Target};

const MIB: usize = 1 << 20;
/// 64 MiB are for messages of servers, and as much for answers that wait for clients.
const LIMITS: &str = r#""limits":{"memory":"128MiB"}"#;
/// A quarter of [`LIMITS`], for tests whose clients read much.
const TIGHT: &str = r#""limits":{"memory":"32MiB"}"#;
/// The size of a notification or an answer.
const LARGE: usize = 4 * MIB;
/// The attacks send a multiple of this. Growing buffers take up to twice their contents.
const BOUNDS: Bounds = Bounds {
    memory: 220 << 20,
    processor: Duration::from_secs(60),
    time: Duration::from_secs(90),
    slowest_call: Duration::from_secs(5),
};
const CAN_BE_ASKED: &str = r#"{"roots":{},"elicitation":{"form":{}}}"#;

fn call(more: &str) -> String {
    let params = format!(r#""name":"hostile__flood"{more}"#);
    modern_request_with(
        CAN_BE_ASKED,
        "1",
        "tools/call",
        &params,
        r#""progressToken":"p""#,
    )
}

/// A server with a tool whose calls the test answers, and a gateway in front of it and of a good
/// server.
async fn hostile(era: Era, transport: Transport) -> (Backend, Target) {
    hostile_with(era, transport, LIMITS).await
}

async fn hostile_with(era: Era, transport: Transport, limits: &str) -> (Backend, Target) {
    let server = Backend::start(era, transport).await;
    server.offers_tools(&["flood"]);
    server.on_target("tools/call", "flood", Reply::driven());
    let target = Target::beside_with(&server.entry("hostile"), limits).await;
    (server, target)
}

/// The event that carries a message.
fn event(message: &str) -> String {
    format!("data: {message}\n\n")
}

/// Calls the tool and reads only the head of the response.
async fn begin(gateway: SocketAddr) -> Response {
    let (body, mut connection) = (call(""), Connection::open(gateway).await);
    let own = modern_headers(&body);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<(&str, &str)> = JSON_HEADERS.into_iter().chain(own).collect();
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    connection.response().await
}

/// Begins `count` calls, and reads their answers as far as they come.
fn calls(gateway: SocketAddr, count: usize) -> JoinSet<String> {
    (0..count)
        .map(|_| async move { post_modern(gateway, &call("")).await.messages().await.1 })
        .collect()
}

/// The last message of a body.
fn text(body: Vec<u8>) -> String {
    let body = String::from_utf8(body).unwrap();
    body.lines()
        .rev()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap_or(&body)
        .to_owned()
}

/// Whether the answer says which server has sent too much.
fn is_refused(answer: &str) -> bool {
    let message = member(answer, "error.message").unwrap_or_default();
    message.contains("hostile") && message.contains("limits.memory")
}

/// Repeats the text until the gateway has closed the stream, at most `most` times.
async fn flood(stream: &Stream, text: &str, most: usize) {
    for _ in 0..most {
        stream.raw(text).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly"]
async fn progress_of_a_suspended_call_is_bounded() {
    let (server, target) = hostile(Era::Legacy, Transport::Http).await;
    let mut calls = calls(target.gateway.mcp, 1);
    let stream = server.stream(0).await;
    stream
        .raw(&event(
            r#"{"jsonrpc":"2.0","id":"ask","method":"roots/list"}"#,
        ))
        .await;
    let suspended = within("the question", calls.join_next())
        .await
        .unwrap()
        .unwrap();
    let state = member(&suspended, "result.requestState")
        .unwrap_or_else(|| panic!("not suspended: {suspended}"));
    let token = stream.request.member("params._meta.progressToken").unwrap();
    let text = "x".repeat(LARGE);
    let params = format!(r#""progressToken":{token},"progress":1,"message":"{text}""#);
    let progress = event(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}"#
    ));
    flood(&stream, &progress, 150).await;
    let key = member(&suspended, "result.inputRequests")
        .and_then(|inputs| inputs.split('"').nth(1))
        .unwrap();
    let retry = call(&format!(
        r#","requestState":{state},"inputResponses":{{"{key}":{{"roots":[]}}}}"#
    ));
    let (progress, answer) = post_modern(target.gateway.mcp, &retry)
        .await
        .messages()
        .await;
    assert!(is_refused(&answer), "{answer}");
    assert!(
        (1..16).contains(&progress.len()),
        "what had arrived before is delivered: {}",
        progress.len()
    );
    target.withstood(BOUNDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_of_a_server_are_bounded() {
    let (server, target) = hostile_with(Era::Legacy, Transport::Http, TIGHT).await;
    let gateway = target.gateway.mcp;
    let mut calls: JoinSet<String> = (0..4)
        .map(|_| async move {
            begin(gateway)
                .await
                .bytes()
                .await
                .map_or_else(|_| String::new(), text)
        })
        .collect();
    let text = Arc::new("x".repeat(2 * MIB));
    let mut floods = JoinSet::new();
    for number in 0..4 {
        let (stream, text) = (server.stream(number).await, Arc::clone(&text));
        floods.spawn(async move {
            let schema = r#""requestedSchema":{"type":"object","properties":{}}"#;
            for id in 0..16 {
                let question = format!(
                    r#"{{"jsonrpc":"2.0","id":"{number}-{id}","method":"elicitation/create","params":{{"message":"{text}",{schema}}}}}"#
                );
                stream.raw(&event(&question)).await;
            }
        });
    }
    floods.join_all().await;
    // Calls that asked before the memory was used up are suspended, but even the message about that
    // may be too much: the client is told so, or its connection ends.
    let mut answers = Vec::new();
    while let Some(answer) = within("the answers", calls.join_next()).await {
        answers.push(answer.unwrap());
    }
    let is_dropped = |answer: &str| {
        let message = member(answer, "error.message").unwrap_or_default();
        message.contains("the memory for answers is in use")
    };
    let unexpected: Vec<&str> = answers
        .iter()
        .map(String::as_str)
        .filter(|answer| !answer.is_empty() && !is_refused(answer) && !is_dropped(answer))
        .filter(|answer| member(answer, "result.requestState").is_none())
        .map(|answer| answer.get(..200).unwrap_or(answer))
        .collect();
    assert!(
        answers.len() == 4 && unexpected.is_empty(),
        "{unexpected:?}"
    );
    target
        .withstood(Bounds {
            memory: 100 << 20,
            ..BOUNDS
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_never_end_are_bounded() {
    const CALLS: usize = 24;
    let (server, target) = hostile(Era::Modern, Transport::Http).await;
    let mut calls = calls(target.gateway.mcp, CALLS);
    let part = Arc::new("x".repeat(MIB));
    let mut floods = JoinSet::new();
    for number in 0..CALLS {
        let (stream, part) = (server.stream(number).await, Arc::clone(&part));
        floods.spawn(async move {
            stream
                .raw(r#"data: {"jsonrpc":"2.0","id":1,"result":{"text":""#)
                .await;
            flood(&stream, &part, 40).await;
        });
    }
    // Calls within the server's share of memory go on.
    for _ in 0..CALLS - 2 {
        let answer = within("an answer", calls.join_next())
            .await
            .unwrap()
            .unwrap();
        assert!(is_refused(&answer), "{answer}");
    }
    calls.shutdown().await;
    floods.join_all().await;
    target.withstood(BOUNDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_for_clients_that_do_not_read_are_bounded() {
    const CALLS: usize = 32;
    let (server, target) = hostile_with(Era::Modern, Transport::Http, TIGHT).await;
    let gateway = target.gateway.mcp;
    let mut calls: JoinSet<Response> = (0..CALLS).map(|_| begin(gateway)).collect();
    let text = "x".repeat(LARGE);
    let mut sent = JoinSet::new();
    for number in 0..CALLS {
        let stream = server.stream(number).await;
        let (id, result) = (
            stream.request.member("id").unwrap(),
            Era::Modern.complete(&format!(r#""text":"{text}""#)),
        );
        let answer = event(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ));
        sent.spawn(async move { stream.raw(&answer).await });
    }
    sent.join_all().await;
    let mut unread = Vec::new();
    while let Some(response) = within("the head of an answer", calls.join_next()).await {
        unread.push(response.unwrap());
    }
    assert_eq!(unread.len(), CALLS);
    let gateway = target
        .withstood(Bounds {
            memory: 100 << 20,
            ..BOUNDS
        })
        .await;
    // Once the messages are released, the server can be called as before.
    drop(unread);
    server.on_target(
        "tools/call",
        "flood",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let answer = post_modern(gateway.mcp, &call("")).await.messages().await.1;
    assert!(answer.contains("\"result\""), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly"]
async fn lines_of_a_process_are_bounded() {
    let (server, target) = hostile(Era::Legacy, Transport::Stdio).await;
    let mut calls = calls(target.gateway.mcp, 1);
    let stream = server.stream(0).await;
    stream
        .message(r#"{"jsonrpc":"2.0","id":"ask","method":"roots/list"}"#)
        .await;
    let suspended = within("the question", calls.join_next())
        .await
        .unwrap()
        .unwrap();
    let state = member(&suspended, "result.requestState")
        .unwrap_or_else(|| panic!("not suspended: {suspended}"));
    let token = stream.request.member("params._meta.progressToken").unwrap();
    let text = "x".repeat(LARGE);
    let params = format!(r#""progressToken":{token},"progress":1,"message":"{text}""#);
    let progress =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}"#);
    for _ in 0..80 {
        stream.message(&progress).await;
    }
    let key = member(&suspended, "result.inputRequests")
        .and_then(|inputs| inputs.split('"').nth(1))
        .unwrap();
    let retry = call(&format!(
        r#","requestState":{state},"inputResponses":{{"{key}":{{"roots":[]}}}}"#
    ));
    let (_, answer) = post_modern(target.gateway.mcp, &retry)
        .await
        .messages()
        .await;
    assert!(is_refused(&answer), "{answer}");
    target.withstood(BOUNDS).await;
}
