//! Clients without tasks: a call that needs a task runs as one, and the client gets its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_protocol::{Json, Response};
use tokio::sync::Notify;

use super::servers::{Tasks, answer_event};
use super::{by, code, extension, get, hurried, plain, requested};
use crate::support::server::{Reply, Seen, event};
use crate::support::{send, settings, start};

const NEEDS: &str = r#"{"name":"needs","arguments":{"n":1.0}}"#;
const RESULT: &str =
    r#"{ "n" : 1.0,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}"#;
const LEGACY_WORKING: &str = r#"{"taskId":"t1","status":"working","ttl":null,"pollInterval":1}"#;
const WORKING: &str = r#"{"taskId":"t1","status":"working","ttlMs":null,"pollIntervalMs":1}"#;
const DONE: &str = r#"{"taskId":"t1","status":"completed","ttlMs":6e4,"result":{ "n" : 1.0 }}"#;
const ASKING: &str = r#"{"taskId":"t1","status":"input_required","ttlMs":6e4,"inputRequests":{"k":{"method":"elicitation/create","params":{ "n":1.0}}}}"#;

#[tokio::test]
async fn legacy_task_is_awaited_with_server_requests_and_progress() {
    const QUESTION: &str =
        r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{ "n":1.0}}"#;
    let (gate, token) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let answered = Arc::clone(&gate);
    let mut tasks = Tasks::legacy(&[LEGACY_WORKING, "!", LEGACY_WORKING], move |seen: &Seen| {
        match seen.method().as_str() {
            "tools/call" => {
                let given = seen.params().get("_meta").and_then(|meta| meta.get("progressToken"));
                token.store(given.map_or(0, |token| token.as_i64().unwrap()) as usize, Ordering::Relaxed);
                None
            }
            "tasks/result" => {
                assert!(!seen.params().as_text().contains("progressToken"), "the first token stays valid");
                let token = token.load(Ordering::Relaxed);
                let progress = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
                );
                let first = event(&progress) + &event(QUESTION);
                Some(Reply::Gated(first, Arc::clone(&answered), answer_event(seen, RESULT)))
            }
            _ => None,
        }
    })
    .await;
    let backend = hurried(&tasks);
    let (call, mut inbox) = by(
        |context| {
            plain(1)(context);
            context.wants_progress = true;
        },
        "tools/call",
        NEEDS,
    );
    let client = async {
        assert_eq!(
            inbox.recv().await.unwrap().method.as_str(),
            "notifications/progress"
        );
        let question = inbox.question().await;
        assert_eq!(question.params.unwrap().as_text(), r#"{ "n":1.0}"#);
        question
            .answer
            .send(Response::from_result(&Json::literal(
                r#"{"action":"accept"}"#,
            )))
            .unwrap();
        // Longer than a call may take.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        gate.notify_one();
    };
    let (result, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(result.unwrap(), RESULT);
    let sent = tasks.server.next_of("tools/call").await.params();
    assert_eq!(sent.get("task").unwrap().as_text(), "{}");
    assert!(
        tasks.server.count("tasks/get") > 5,
        "it is asked after meanwhile"
    );
}

#[tokio::test]
async fn client_of_another_dialect_cannot_ask_for_a_task() {
    let mut tasks = Tasks::legacy(&[], |_| None).await;
    let backend = start(settings(tasks.server.transport()));
    let may = r#"{"name":"may","task":{"ttl":1.0}, "arguments":{"task":1.0}}"#;
    for result in [
        get(&backend, plain(1), "tools/call", may).await,
        get(&backend, extension("{}"), "tools/call", may).await,
    ] {
        assert_eq!(result, r#"{"plain":1.0}"#);
        let sent = tasks.server.next_of("tools/call").await.params();
        assert_eq!(
            sent.as_text(),
            r#"{"name":"may", "arguments":{"task":1.0}}"#
        );
    }
}

#[tokio::test]
async fn wait_for_a_legacy_task_survives_lost_connections() {
    let results = AtomicUsize::new(0);
    let tasks = Tasks::legacy(&[LEGACY_WORKING, "!", "!", LEGACY_WORKING], move |seen| {
        (seen.method() == "tasks/result").then(|| match results.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Reply::Close,
            _ => seen.result(RESULT),
        })
    })
    .await;
    let backend = hurried(&tasks);
    assert_eq!(get(&backend, plain(1), "tools/call", NEEDS).await, RESULT);
}

#[tokio::test]
async fn wait_for_a_lost_or_failed_legacy_task_ends_with_its_error() {
    let tasks = Tasks::legacy(&[r##"#{"code":-32602,"message":"gone"}"##], |seen| {
        (seen.method() == "tasks/result").then_some(Reply::Hang)
    })
    .await;
    let backend = hurried(&tasks);
    assert_eq!(
        get(&backend, plain(1), "tools/call", NEEDS).await,
        r#"{"code":-32602,"message":"gone"}"#
    );

    let tasks = Tasks::legacy(&[LEGACY_WORKING], |seen| {
        (seen.method() == "tasks/result")
            .then(|| seen.error(200, r#"{ "code":-7,"message":"\u0041"}"#))
    })
    .await;
    let backend = hurried(&tasks);
    assert_eq!(
        get(&backend, plain(1), "tools/call", NEEDS).await,
        r#"{ "code":-7,"message":"\u0041"}"#
    );
}

#[tokio::test]
async fn call_without_task_request_is_awaited_for_a_client_with_tasks() {
    let tasks = Tasks::legacy(&[LEGACY_WORKING], |seen| {
        (seen.method() == "tasks/result").then(|| seen.result(RESULT))
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    assert_eq!(
        get(&backend, requested(1), "tools/call", NEEDS).await,
        RESULT
    );
    assert_eq!(
        get(&backend, requested(1), "tools/call", r#"{"name":"may"}"#).await,
        r#"{"plain":1.0}"#
    );
    let tasks = Tasks::modern(&[DONE], r#"{"plain":1.0}"#).await;
    let backend = start(settings(tasks.server.transport()));
    assert_eq!(
        get(&backend, requested(1), "tools/call", NEEDS).await,
        r#"{ "n" : 1.0 }"#
    );
    assert_eq!(
        get(&backend, requested(1), "tools/call", r#"{"name":"may"}"#).await,
        r#"{"plain":1.0}"#
    );
}

#[tokio::test]
async fn modern_task_is_awaited_with_server_requests() {
    // Far more polls than fit into the time of a call.
    let mut states = vec![WORKING; 25];
    states.extend([ASKING, "!", WORKING, DONE]);
    let mut tasks = Tasks::modern(&states, "{}").await;
    let backend = hurried(&tasks);
    let (call, mut inbox) = by(plain(1), "tools/call", NEEDS);
    let client = async {
        let question = inbox.question().await;
        assert_eq!(
            question.params.unwrap().as_text(),
            r#"{ "n":1.0}"#,
            "the client knows of no task"
        );
        question
            .answer
            .send(Response::from_result(&Json::literal(
                r#"{"action":"accept"}"#,
            )))
            .unwrap();
    };
    let (result, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(result.unwrap(), r#"{ "n" : 1.0 }"#);
    let (first, second) = (
        tasks.server.next_of("tools/call").await,
        tasks.server.next_of("tools/call").await,
    );
    let declares = |seen: &Seen| {
        seen.params()
            .as_text()
            .contains("io.modelcontextprotocol/tasks")
    };
    assert_eq!((declares(&first), declares(&second)), (false, true));
    let update = tasks.server.next_of("tasks/update").await.params();
    assert_eq!(
        update.get("inputResponses").unwrap().as_text(),
        r#"{"k":{"action":"accept"}}"#
    );
}

#[tokio::test]
async fn client_without_tasks_gets_no_task() {
    let tasks = Tasks::modern(&[WORKING, DONE], r#"{"plain":1.0}"#).await;
    let backend = hurried(&tasks);
    assert_eq!(
        get(&backend, plain(1), "tools/call", r#"{"name":"may"}"#).await,
        r#"{"plain":1.0}"#
    );
    // Not even a task that the server should not have made.
    assert_eq!(
        get(&backend, plain(1), "tools/call", r#"{"name":"unasked"}"#).await,
        r#"{ "n" : 1.0 }"#
    );
    // Fanlight must not declare other missing capabilities.
    assert_eq!(
        code(&get(&backend, plain(1), "tools/call", r#"{"name":"picky"}"#).await),
        -32021
    );
    let asks = get(&backend, plain(1), "tools/call", r#"{"name":"asks"}"#).await;
    assert!(asks.contains("input_required"), "{asks}");
}

#[tokio::test]
async fn task_is_cancelled_when_its_client_has_gone() {
    let legacy = Tasks::legacy(&[LEGACY_WORKING], |seen| {
        (seen.method() == "tasks/result").then_some(Reply::Hang)
    })
    .await;
    for mut tasks in [legacy, Tasks::modern(&[WORKING], "{}").await] {
        let backend = hurried(&tasks);
        let (call, _inbox) = by(plain(1), "tools/call", NEEDS);
        tokio::select! {
            outcome = send(&backend, call) => panic!("{outcome:?}"),
            seen = tasks.server.next_of("tasks/get") => assert_eq!(seen.params().get("taskId").unwrap().as_str().unwrap(), "t1"),
        }
        let cancelled = tasks.server.next_of("tasks/cancel").await;
        assert_eq!(
            cancelled.params().get("taskId").unwrap().as_str().unwrap(),
            "t1"
        );
    }
}

#[tokio::test]
async fn task_is_cancelled_when_its_client_cannot_be_asked() {
    let mut tasks = Tasks::modern(&[ASKING], "{}").await;
    let backend = hurried(&tasks);
    let (mut call, _) = by(plain(1), "tools/call", NEEDS);
    call.messages = fanlight_canonical::ServerMessages::discard();
    assert_eq!(code(&send(&backend, call).await.unwrap()), -32603);
    tasks.server.next_of("tasks/cancel").await;
}
