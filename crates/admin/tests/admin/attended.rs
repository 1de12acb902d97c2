//! Calls that an operator attends: progress, server requests, answers and cancellation.

use std::sync::Arc;

use fanlight_admin::AdminSettings;
use http::{Method, StatusCode};

use crate::events::Events;
use crate::people::{People, TOKEN, VIEWER, settings};
use crate::scene::{Answer, Scene, asking};

const JSON: (&str, &str) = ("content-type", "application/json");
const EVENTS: (&str, &str) = ("accept", "text/event-stream");

async fn scene(settings: AdminSettings) -> Scene {
    Scene::start(vec![asking("a")], settings).await
}

/// Attends a call of this tool with these credentials; returns its events and its id.
async fn attend(scene: &Scene, tool: &str, credentials: &[(&str, &str)]) -> (Events, String) {
    let headers = [&[JSON, EVENTS], credentials].concat();
    let body =
        format!(r#"{{"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#);
    let mut events = Events::begin(scene, Method::POST, "/api/call", &headers, &body).await;
    let call = events.event("call").await;
    assert_eq!(call["traceId"].as_str().unwrap().len(), 32);
    (events, call["call"].as_str().unwrap().to_owned())
}

async fn say(scene: &Scene, path: &str, body: &str, credentials: &[(&str, &str)]) -> Answer {
    let headers = [&[JSON], credentials].concat();
    scene.send(Method::POST, path, &headers, body).await
}

fn accept(call: &str, question: u64) -> String {
    format!(
        r#"{{"call":"{call}","question":{question},"result":{{"action":"accept","content":{{"n":1.0}}}}}}"#
    )
}

#[tokio::test]
async fn question_of_a_legacy_server_is_answered_with_the_bytes_of_the_operator() {
    let scene = scene(AdminSettings::default()).await;
    let (mut events, call) = attend(&scene, "legacy", &[]).await;
    let question = events.event("question").await;
    assert_eq!(
        (&question["question"], &question["params"]["message"]),
        (&1.into(), &"<b>who</b>?".into())
    );
    assert!(question["leftMs"].as_f64().unwrap() > 1000.0);
    assert_eq!(
        say(&scene, "/api/call/answer", &accept(&call, 1), &[])
            .await
            .status,
        StatusCode::OK
    );
    assert_eq!(events.event("settled").await["question"], 1);
    let answer = events.text("answer").await;
    assert!(
        answer.contains(r#""came":{"action":"accept","content":{"n":1.0}}"#),
        "{answer}"
    );
    assert!(!answer.contains("requiredCapabilities"), "{answer}");
    let again = say(&scene, "/api/call/answer", &accept(&call, 1), &[]).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    assert!(
        events.next().await.is_none(),
        "the stream ends with the answer"
    );
}

#[tokio::test]
async fn question_of_a_modern_server_is_answered_in_another_round() {
    let scene = scene(AdminSettings::default()).await;
    let (mut events, call) = attend(&scene, "modern", &[]).await;
    events.event("question").await;
    assert_eq!(
        say(&scene, "/api/call/answer", &accept(&call, 1), &[])
            .await
            .status,
        StatusCode::OK
    );
    let answer = events.text("answer").await;
    let again =
        r#""inputResponses":{"who":{"action":"accept","content":{"n":1.0}}},"requestState":"s1""#;
    assert!(answer.contains(again), "{answer}");
}

#[tokio::test]
async fn requests_that_the_page_cannot_answer_are_declined_and_named() {
    let scene = scene(AdminSettings::default()).await;
    let (mut events, _) = attend(&scene, "sampling", &[]).await;
    let answer = events.event("answer").await;
    assert_eq!(
        (&answer["requiredCapabilities"], &answer["result"]["came"]),
        (&serde_json::json!({"sampling": {}}), &().into())
    );
}

#[tokio::test]
async fn progress_is_sent_at_intervals() {
    let scene = scene(AdminSettings::default()).await;
    let (mut events, _) = attend(&scene, "progress", &[]).await;
    let mut seen = 0;
    let mut last = String::new();
    while let Some(block) = events.next().await {
        if let Some(data) = block.strip_prefix("event: progress\ndata: ") {
            (seen, last) = (seen + 1, data.to_owned());
        }
    }
    assert!((1..=10).contains(&seen), "{seen} of 50");
    assert!(
        last.contains(r#""progress":50.0"#),
        "the last is not lost: {last}"
    );
}

#[tokio::test]
async fn call_is_cancelled_as_one_of_those_that_run() {
    let scene = scene(AdminSettings::default()).await;
    let (mut events, _) = attend(&scene, "endless", &[]).await;
    let listed = scene.json("/api/calls").await;
    let call = &listed["calls"][0];
    assert_eq!(
        (&listed["callCount"], &call["name"]),
        (&1.into(), &"tools/call endless".into()),
        "{listed}"
    );
    let path = format!("/api/calls/{}/cancel", call["spanId"].as_str().unwrap());
    assert_eq!(say(&scene, &path, "", &[]).await.status, StatusCode::OK);
    events.event("cancelled").await;
    assert!(events.next().await.is_none());
    assert_eq!(scene.json("/api/calls").await["callCount"], 0);
    assert_eq!(
        say(&scene, &path, "", &[]).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        scene.json("/api/traces?outcome=cancelled").await["traces"][0]["name"],
        "tools/call endless"
    );
}

#[tokio::test]
async fn call_is_cancelled_by_its_operator_and_when_the_stream_closes() {
    let scene = scene(AdminSettings {
        max_calls: 1,
        ..AdminSettings::default()
    })
    .await;
    let (mut events, call) = attend(&scene, "endless", &[]).await;
    let body = r#"{"method":"tools/call","params":{"name":"endless"}}"#;
    let refused = scene
        .send(Method::POST, "/api/call", &[JSON, EVENTS], body)
        .await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        refused.text.contains("running calls, which is the limit"),
        "{}",
        refused.text
    );
    let cancelled = say(
        &scene,
        "/api/call/cancel",
        &format!(r#"{{"call":"{call}"}}"#),
        &[],
    )
    .await;
    assert_eq!(cancelled.status, StatusCode::OK);
    events.event("cancelled").await;
    assert!(events.next().await.is_none());
    let (events, call) = attend(&scene, "endless", &[]).await;
    drop(events);
    // The call is forgotten once the server notices.
    crate::scene::soon(async {
        let body = format!(r#"{{"call":"{call}"}}"#);
        while say(&scene, "/api/call/cancel", &body, &[]).await.status == StatusCode::OK {}
    })
    .await;
}

#[tokio::test]
async fn calls_of_an_operator_are_no_one_elses() {
    let scene = Scene::with(vec![asking("a")], settings(), Arc::new(People)).await;
    let token = format!("Bearer {TOKEN}");
    let (operator, other) = (
        ("authorization", token.as_str()),
        ("authorization", "Bearer key-of-ann"),
    );
    let (mut events, call) = attend(&scene, "legacy", &[operator]).await;
    events.event("question").await;
    let cancel = format!(r#"{{"call":"{call}"}}"#);
    for (path, body) in [
        ("/api/call/answer", accept(&call, 1)),
        ("/api/call/cancel", cancel),
    ] {
        assert_eq!(
            say(&scene, path, &body, &[other]).await.status,
            StatusCode::NOT_FOUND,
            "another operator: {path}"
        );
        let viewer = format!("Bearer {VIEWER}");
        let refused = say(&scene, path, &body, &[("authorization", &viewer)]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "a viewer: {path}");
        assert_eq!(
            say(&scene, path, &body, &[]).await.status,
            StatusCode::UNAUTHORIZED,
            "nobody: {path}"
        );
        let page = [operator, ("origin", "http://evil.example")];
        assert_eq!(
            say(&scene, path, &body, &page).await.status,
            StatusCode::FORBIDDEN,
            "another site: {path}"
        );
    }
    assert_eq!(
        say(&scene, "/api/call/answer", &accept(&call, 1), &[operator])
            .await
            .status,
        StatusCode::OK
    );
    events.event("answer").await;
}

#[tokio::test]
async fn call_ends_with_the_session_of_its_operator() {
    let scene = scene(settings()).await;
    let body = format!(r#"{{"token":"{TOKEN}"}}"#);
    let signed_in = scene
        .send(Method::POST, "/api/session", &[JSON], &body)
        .await;
    assert_eq!(signed_in.status, StatusCode::OK, "{}", signed_in.text);
    let cookie = signed_in.headers["set-cookie"]
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let origin = format!("http://{}", scene.address);
    let page = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
    let (mut events, _) = attend(&scene, "endless", &page).await;
    assert_eq!(
        say(&scene, "/api/session/end", "{}", &page).await.status,
        StatusCode::OK
    );
    events.event("cancelled").await;
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn malformed_answers_are_refused() {
    let scene = scene(AdminSettings::default()).await;
    let (mut events, call) = attend(&scene, "legacy", &[]).await;
    events.event("question").await;
    for bad in [
        "[]".to_owned(),
        format!(r#"{{"call":"{call}","question":"1","result":{{"action":"accept"}}}}"#),
        format!(r#"{{"call":"{call}","question":1,"result":{{"action":"yes"}}}}"#),
        r#"{"call":7,"question":1,"result":{"action":"accept"}}"#.to_owned(),
    ] {
        assert_eq!(
            say(&scene, "/api/call/answer", &bad, &[]).await.status,
            StatusCode::BAD_REQUEST,
            "{bad}"
        );
    }
    assert_eq!(
        say(&scene, "/api/call/answer", &accept(&call, 1), &[])
            .await
            .status,
        StatusCode::OK
    );
    events.event("answer").await;
}
