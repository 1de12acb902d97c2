//! Nothing changes if client and server have the same dialect, or the server has no tasks.

use super::servers::Tasks;
use super::{by, extension, get, requested};
use crate::support::server::{Reply, Server, event, legacy};
use crate::support::{PATIENCE, send, settings, start};

const T1: &str = r#"{ "taskId":"t1","x":1.0}"#;

#[tokio::test]
async fn requests_in_the_same_dialect_are_unchanged() {
    let mut tasks = Tasks::legacy(&[r#"{ "ttl":1.0}"#], |seen| {
        matches!(seen.method().as_str(), "tasks/list" | "tasks/result")
            .then(|| seen.result(r#"{ "n":1.0}"#))
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    let called = r#"{ "name":"needs","task":{"ttl":1.0}}"#;
    let created = get(&backend, requested(1), "tools/call", called).await;
    assert!(
        created.starts_with(r#"{ "task":{"taskId":"t\u0031""#),
        "{created}"
    );
    assert_eq!(
        tasks.server.next_of("tools/call").await.params().as_text(),
        called
    );
    for (method, answer) in [
        ("tasks/get", r#"{ "ttl":1.0}"#),
        ("tasks/list", r#"{ "n":1.0}"#),
        ("tasks/result", r#"{ "n":1.0}"#),
    ] {
        assert_eq!(
            get(&backend, requested(1), method, T1).await,
            answer,
            "{method}"
        );
        assert_eq!(
            tasks.server.next_of(method).await.params().as_text(),
            T1,
            "{method}"
        );
    }
    assert_eq!(tasks.server.count("tools/list"), 0);

    let tasks = Tasks::modern(
        &[r#"{ "ttlMs":1.0,"status":"input_required","inputRequests":{"a":1.0}}"#],
        "{}",
    )
    .await;
    let backend = start(settings(tasks.server.transport()));
    let client = || extension(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
    let created = get(&backend, client(), "tools/call", r#"{"name":"needs"}"#).await;
    assert!(
        created.starts_with(r#"{"resultType":"task", "taskId":"t\u0031""#),
        "{created}"
    );
    assert_eq!(
        get(&backend, client(), "tasks/get", T1).await,
        r#"{ "ttlMs":1.0,"status":"input_required","inputRequests":{"a":1.0}}"#
    );
}

#[tokio::test]
async fn requests_to_a_server_without_tasks_are_unchanged() {
    let mut server =
        Server::start(|seen| legacy(seen, "s").unwrap_or_else(|| seen.result("{}"))).await;
    let backend = start(settings(server.transport()));
    for (method, params) in [
        ("tools/call", r#"{"name":"a","task":{"ttl":1.0}}"#),
        ("tasks/get", T1),
        ("tasks/list", T1),
    ] {
        assert_eq!(get(&backend, requested(1), method, params).await, "{}");
        assert_eq!(server.next_of(method).await.params().as_text(), params);
        get(&backend, extension("{}"), method, params).await;
        assert_eq!(server.next_of(method).await.params().as_text(), params);
    }
    assert_eq!(server.count("tools/list"), 0);
}

#[tokio::test]
async fn server_request_about_a_task_of_the_client_is_unchanged() {
    const ASKED: &str = r#"{"jsonrpc":"2.0","id":5,"method":"tasks/get","params":{ "taskId":"c"}}"#;
    let server = Server::start(|seen| {
        legacy(seen, "s").unwrap_or_else(|| match seen.method().as_str() {
            "tools/call" => {
                let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, seen.id());
                Reply::Stream(event(ASKED) + &event(&answer))
            }
            _ => Reply::Whole(202, String::new(), "text/plain", String::new()),
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    let client = crate::support::of_session(
        1,
        r#"{"tasks":{"requests":{"sampling":{"createMessage":{}}}}}"#,
    );
    let (call, mut inbox) = by(client, "tools/call", r#"{"name":"a"}"#);
    let (outcome, question) = tokio::join!(
        send(&backend, call),
        tokio::time::timeout(PATIENCE, inbox.question())
    );
    outcome.unwrap();
    let question = question.unwrap();
    assert_eq!(
        (question.method.as_str(), question.params.unwrap().as_text()),
        ("tasks/get", r#"{ "taskId":"c"}"#)
    );
}
