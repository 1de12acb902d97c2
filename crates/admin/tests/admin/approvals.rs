//! Calls that wait for approval: their visibility, and the permitted approvers.

use std::sync::Arc;

use fanlight_canonical::identity::Principal;
use fanlight_gateway::approvals::{ApproverRule, Asked, CallToApprove, Question, Waiting};
use fanlight_protocol::Json;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::people::{People, TOKEN, VIEWER, settings};
use crate::scene::{Scene, fake};

const ARGUMENTS: &str = r#"{ "path": "/a\u202e", "n": 1.0 }"#;

async fn scene() -> Scene {
    Scene::with(vec![fake("a", &[])], settings(), Arc::new(People)).await
}

/// A waiting call of the operator `sue`.
async fn ask(scene: &Scene, approver: ApproverRule) -> Waiting {
    let call = CallToApprove {
        principal: Principal::new("key", "sue"),
        endpoint: "/mcp".into(),
        server: "files".into(),
        tool: "delete".into(),
        arguments: Some(Json::literal(ARGUMENTS)),
        own: Some(Json::literal(r#"{"own":1}"#)),
        more: Some(Json::literal(r#"{"task":{"ttl":1}}"#)),
        rules: 1,
    };
    let question = Question {
        text: "Really delete?".into(),
        client: "sue".into(),
        approver,
    };
    match scene.approvals.ask(call, question).await {
        Ok(Asked::Waiting(waiting)) => waiting,
        other => panic!("{other:?}"),
    }
}

async fn answer(scene: &Scene, id: &str, word: &str, token: &str) -> (StatusCode, String) {
    let bearer = format!("Bearer {token}");
    let path = format!("/api/approvals/{id}/{word}");
    let answer = scene
        .send(Method::POST, &path, &[("authorization", &bearer)], "")
        .await;
    (answer.status, answer.text)
}

#[tokio::test]
async fn call_is_shown_with_the_text_of_its_arguments_and_approved_once() {
    let scene = scene().await;
    let mut call = ask(&scene, ApproverRule::Any).await;
    let bearer = format!("Bearer {VIEWER}");
    let list = scene
        .send(
            Method::GET,
            "/api/approvals",
            &[("authorization", &bearer)],
            "",
        )
        .await;
    let list: Value = serde_json::from_str(&list.text).unwrap();
    let shown = &list["approvals"][0];
    assert_eq!(
        (&shown["arguments"], &shown["status"]),
        (&r#"{"own":1}"#.into(), &"open".into())
    );
    let to_approver = scene
        .send(
            Method::GET,
            "/api/approvals",
            &[("authorization", "Bearer key-of-sue")],
            "",
        )
        .await;
    let to_approver: Value = serde_json::from_str(&to_approver.text).unwrap();
    assert_eq!(
        to_approver["approvals"][0]["arguments"], ARGUMENTS,
        "with what the configuration adds"
    );
    assert_eq!(
        (&shown["server"], &shown["tool"], &shown["client"]),
        (&"files".into(), &"delete".into(), &"sue".into())
    );
    assert_eq!(
        (&shown["waiting"], &shown["id"]),
        (&true.into(), &call.id().into())
    );
    let id = call.id().to_owned();
    for (token, status) in [
        (VIEWER, StatusCode::FORBIDDEN),
        ("key-of-bob", StatusCode::FORBIDDEN),
        ("key-of-eve", StatusCode::FORBIDDEN),
        ("wrong", StatusCode::UNAUTHORIZED),
    ] {
        assert_eq!(
            answer(&scene, &id, "approve", token).await.0,
            status,
            "{token}"
        );
    }
    assert_eq!(
        answer(&scene, &id, "maybe", "key-of-sue").await.0,
        StatusCode::NOT_FOUND
    );
    let (status, text) = answer(&scene, &id, "approve", "key-of-sue").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let text: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&text["call"], &text["waiting"]),
        (&"files/delete".into(), &true.into())
    );
    assert_eq!(call.answer().await, Ok(()));
    assert_eq!(
        answer(&scene, &id, "approve", TOKEN).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn second_approver_is_told_who_was_first() {
    let scene = scene().await;
    let call = ask(&scene, ApproverRule::Any).await;
    assert_eq!(
        answer(&scene, call.id(), "refuse", "key-of-ann").await.0,
        StatusCode::OK
    );
    let (status, text) = answer(&scene, call.id(), "approve", "key-of-sue").await;
    assert!(
        status == StatusCode::CONFLICT && text.contains("decided already, by ann"),
        "{status} {text}"
    );
}

#[tokio::test]
async fn own_call_cannot_be_approved_where_the_rule_wants_another_person() {
    let scene = scene().await;
    let call = ask(&scene, ApproverRule::Other).await;
    // The token of all operators does not identify a person.
    for token in ["key-of-sue", TOKEN] {
        let (status, text) = answer(&scene, call.id(), "approve", token).await;
        assert!(
            status == StatusCode::FORBIDDEN && text.contains("another person"),
            "{token}: {status} {text}"
        );
    }
    assert_eq!(
        answer(&scene, call.id(), "approve", "key-of-ann").await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn approver_changes_nothing_else() {
    let scene = scene().await;
    let bearer = "Bearer key-of-sue";
    for path in [
        "/api/reload",
        "/api/servers/a/restart",
        "/api/sessions/abc/end",
    ] {
        let answer = scene
            .send(Method::POST, path, &[("authorization", bearer)], "")
            .await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert!(scene.operations.asked().is_empty());
}
