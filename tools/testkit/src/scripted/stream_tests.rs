//! Longer exchanges of the scripted server with the raw clients, without a gateway: server requests
//! during a call, streams that a test writes, resumed streams, subscriptions and tasks.

use crate::slicer::member;

use super::tests::{address, child};
use super::*;
use crate::raw_client::{
    LegacySession, NEWEST_LEGACY, legacy_request, listen, modern_request, post_modern,
};

const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn answered(call: &Received, answers: &[Arc<Received>]) -> String {
    let roots: Vec<&str> = answers
        .iter()
        .map(|answer| answer.member("result.roots").unwrap())
        .collect();
    format!(
        r#"{{"content":[],"name":{},"roots":[{}]}}"#,
        call.member("params.name").unwrap(),
        roots.join(",")
    )
}

fn roots(id: &str, uri: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[{{"uri":"file:///{uri}"}}]}}}}"#)
}

#[tokio::test]
async fn call_is_concluded_with_the_responses_of_its_own_session() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.on("tools/call", Reply::conclude(answered).asking(&[ASK]));
    let (one, other) = (
        LegacySession::open(address(&backend)).await,
        LegacySession::open(address(&backend)).await,
    );
    let mut calls = Vec::new();
    for session in [&one, &other] {
        let mut call = session
            .post(&legacy_request("7", "tools/call", r#""name":"t""#))
            .await;
        let request = call.event().await.unwrap().unwrap();
        assert_eq!(request, ASK.replace("{call}", "7"));
        calls.push(call);
    }
    for (session, uri) in [(&other, "other"), (&one, "one")] {
        assert_eq!(session.post(&roots(r#""ask-7""#, uri)).await.status, 202);
    }
    for (mut call, uri) in calls.into_iter().zip(["one", "other"]) {
        let (_, answer) = call.messages().await;
        assert_eq!(
            member(&answer, "result.roots.0.0.uri"),
            Some(format!(r#""file:///{uri}""#).as_str())
        );
    }
    let call = &backend.received("tools/call")[1];
    let answer = backend.answer_to(r#""ask-7""#, call).await;
    assert_eq!(
        answer.member("result.roots.0.uri"),
        Some(r#""file:///other""#)
    );
}

#[tokio::test]
async fn call_sends_requests_over_stdio() {
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.on(
        "tools/call",
        Reply::conclude(answered)
            .asking(&[ASK])
            .asking(&[&ASK.replace("ask", "again")]),
    );
    let (mut client, _child) = child(&backend);
    client.initialize(NEWEST_LEGACY).await;
    client
        .send(&legacy_request("7", "tools/call", r#""name":"t""#))
        .await;
    for (id, uri) in [("ask-7", "a"), ("again-7", "b")] {
        let request = client.receive().await.unwrap();
        assert_eq!(member(&request, "id"), Some(format!("\"{id}\"").as_str()));
        client.send(&roots(&format!("\"{id}\""), uri)).await;
    }
    let answer = client.receive().await.unwrap();
    assert_eq!(
        member(&answer, "result.roots"),
        Some(r#"[[{"uri":"file:///a"}],[{"uri":"file:///b"}]]"#)
    );
}

#[tokio::test]
async fn get_stream_is_driven_by_the_test_and_resumed() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.declares(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#);
    let session = LegacySession::open(address(&backend)).await;
    assert!(session.initialize_result.contains(r#""subscribe":true"#));
    assert_eq!(session.stream(None).await.status, 405);
    backend.serves_get();
    let mut received = session.stream(None).await;
    assert!(received.is_event_stream());
    let stream = backend.stream(0).await;
    assert_eq!(stream.resumes_after(), None);
    assert_eq!(
        stream.request.header("mcp-session-id"),
        session.session.as_deref()
    );
    stream.raw(": alive\nid: a\nretry: 20\ndata:\n\n").await;
    stream.event("b", CHANGED).await;
    let priming = received.whole_event().await.unwrap().unwrap();
    assert_eq!(
        (priming.id.as_deref(), priming.retry, priming.data.as_str()),
        (Some("a"), Some(20), "")
    );
    assert_eq!(priming.comments, ["alive"]);
    let event = received.whole_event().await.unwrap().unwrap();
    assert_eq!(
        (event.id.as_deref(), event.data.as_str()),
        (Some("b"), CHANGED)
    );
    stream.cut().await;
    assert!(received.whole_event().await.is_err());

    let mut resumed = session.stream(Some("b")).await;
    let stream = backend.stream(1).await;
    assert_eq!(stream.resumes_after(), Some("b"));
    stream.message(CHANGED).await;
    assert_eq!(resumed.event().await.unwrap().as_deref(), Some(CHANGED));
    stream.end().await;
    assert_eq!(resumed.event().await.unwrap(), None);

    let left = session.stream(None).await;
    let stream = backend.stream(2).await;
    drop(left);
    stream.closed().await;
    assert_eq!(
        session
            .post(&legacy_request(
                "1",
                "resources/subscribe",
                r#""uri":"test://r""#
            ))
            .await
            .status,
        200
    );
    assert_eq!(session.delete().await.status, 200);
}

#[tokio::test]
async fn response_stream_ends_early_and_is_resumed() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.on("tools/call", Reply::driven());
    backend.serves_get();
    let session = LegacySession::open(address(&backend)).await;
    let mut first = session
        .post(&legacy_request("1", "tools/call", r#""name":"t""#))
        .await;
    let call = backend.stream(0).await;
    call.raw("id: 1\nretry: 5\ndata:\n\n").await;
    call.end().await;
    let priming = first.whole_event().await.unwrap().unwrap();
    assert_eq!(first.whole_event().await.unwrap(), None);
    let mut rest = session.stream(priming.id.as_deref()).await;
    let poll = backend.stream(1).await;
    assert_eq!(poll.resumes_after(), Some("1"));
    poll.event("2", r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#)
        .await;
    assert_eq!(
        rest.event().await.unwrap().unwrap(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#
    );
}

const FILTER: &str = r#"{"toolsListChanged":true,"resourceSubscriptions":["test://r"]}"#;

#[tokio::test]
async fn subscription_is_acknowledged_and_notified_over_http() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.declares(r#"{"tools":{"listChanged":true}}"#);
    backend.on("subscriptions/listen", Reply::driven());
    let mut received = listen(address(&backend), r#""sub""#, FILTER).await;
    let stream = backend.stream(0).await;
    assert_eq!(stream.filter(), Some(FILTER));
    stream.acknowledge(FILTER).await;
    stream
        .notify("notifications/resources/updated", r#""uri":"test://r""#)
        .await;
    stream
        .result(
            r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"sub"}}"#,
        )
        .await;
    stream.end().await;
    let (before, last) = received.messages().await;
    assert_eq!(before.len(), 2);
    assert_eq!(member(&before[0], "params.notifications"), Some(FILTER));
    for message in &before {
        let id = crate::slicer::member_at(message, &["params", "_meta", SUBSCRIPTION_ID]);
        assert_eq!(id, Some(r#""sub""#), "{message}");
    }
    assert_eq!(member(&last, "id"), Some(r#""sub""#));
}

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

#[tokio::test]
async fn subscription_is_served_over_stdio() {
    let backend = Backend::start(Era::Modern, Transport::Stdio).await;
    backend.on("subscriptions/listen", Reply::driven());
    let (mut client, _child) = child(&backend);
    client
        .send(&modern_request(
            "1",
            "subscriptions/listen",
            &format!(r#""notifications":{FILTER}"#),
            "",
        ))
        .await;
    let stream = backend.stream(0).await;
    stream.acknowledge("{}").await;
    stream.notify("notifications/tools/list_changed", "").await;
    for method in [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ] {
        let line = client.receive().await.unwrap();
        assert_eq!(
            member(&line, "method"),
            Some(format!("\"{method}\"").as_str())
        );
    }
}

/// The raw results of both dialects. The schema checks need a gateway, so this test checks the
/// shape of tasks.
#[tokio::test]
async fn tasks_are_served_in_both_dialects() {
    let working = Task {
        id: "t-1",
        status: "working",
        ttl: 60_000,
        poll: 100,
    };
    let done = Task {
        status: "completed",
        ..working
    };
    for era in [Era::Legacy, Era::Modern] {
        let backend = Backend::start(era, Transport::Http).await;
        backend.on(
            "tools/call",
            Reply::result(working.created(era)).after(&[&working.notification(era, "")]),
        );
        backend.once("tasks/get", Reply::result(working.got(era, "")));
        backend.on(
            "tasks/get",
            Reply::result(done.got(era, r#""result":{"content":[]}"#)),
        );
        let session = (era == Era::Legacy).then(|| LegacySession::open(address(&backend)));
        let session = match session {
            Some(opening) => Some(opening.await),
            None => None,
        };
        let ask = async |method: &str, params: &str| match &session {
            Some(session) => {
                session
                    .post(&legacy_request("1", method, params))
                    .await
                    .messages()
                    .await
            }
            None => {
                post_modern(address(&backend), &modern_request("1", method, params, ""))
                    .await
                    .messages()
                    .await
            }
        };
        let (status, created) = ask("tools/call", r#""name":"t","task":{"ttl":60000}"#).await;
        let (task, ttl) = if era == Era::Legacy {
            ("result.task", "ttl")
        } else {
            ("result", "ttlMs")
        };
        assert_eq!(
            member(&created, &format!("{task}.taskId")),
            Some(r#""t-1""#)
        );
        assert_eq!(member(&created, &format!("{task}.{ttl}")), Some("60000"));
        assert_eq!(member(&status[0], "params.status"), Some(r#""working""#));
        for expected in [r#""working""#, r#""completed""#] {
            let (_, got) = ask("tasks/get", r#""taskId":"t-1""#).await;
            assert_eq!(member(&got, "result.status"), Some(expected));
        }
    }
}
