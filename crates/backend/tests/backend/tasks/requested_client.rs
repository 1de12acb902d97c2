//! Clients of 2025-11-25 with tasks at a modern server.

use fanlight_canonical::BackendClient;
use fanlight_protocol::{Json, Response, RpcError};

use super::servers::{EXTENSION, Tasks};
use super::{by, code, get, hurried, requested};
use crate::support::{json, send, settings, start};

const WORKING: &str =
    r#"{"resultType":"complete","taskId":"t1","status":"working","ttlMs":6e4,"pollIntervalMs":1}"#;
const DONE: &str = r#"{"resultType":"complete","taskId":"t1","status":"completed","ttlMs":6e4,"result":{ "n" : 1.0 },"y":2.0}"#;
const ASKING: &str = r#"{"taskId":"t1","status":"input_required","ttlMs":6e4,"pollIntervalMs":1,"inputRequests":{"k\u0031":{"method":"elicitation/create","params":{ "message":"\u0042"}},"k2":{"method":"roots/list"}}}"#;
const RELATED: &str = r#""io.modelcontextprotocol/related-task":{"taskId":"t1"}"#;
const T1: &str = r#"{"taskId":"t1"}"#;

#[tokio::test]
async fn call_becomes_a_task() {
    let mut tasks = Tasks::modern(&[WORKING], "{}").await;
    let backend = start(settings(tasks.server.transport()));
    let params = r#"{ "name":"may","task":{"ttl":5},"arguments":{"n":1.0}}"#;
    let created = get(&backend, requested(1), "tools/call", params).await;
    assert_eq!(
        created,
        r#"{"task":{ "taskId":"t\u0031","status":"working","ttl":6e4,"x":1.0,"pollInterval":1},"_meta":{"m":1.0}}"#
    );
    let sent = tasks.server.next_of("tools/call").await.params();
    assert!(sent.get("task").is_none());
    assert_eq!(sent.get("arguments").unwrap().as_text(), r#"{"n":1.0}"#);
    let declared = sent
        .get("_meta")
        .unwrap()
        .get("io.modelcontextprotocol/clientCapabilities")
        .unwrap();
    assert_eq!(
        declared.as_text(),
        format!(r#"{{"elicitation":{{}},"roots":{{}},"extensions":{{"{EXTENSION}":{{}}}}}}"#)
    );
    assert_eq!(
        get(&backend, requested(1), "tasks/get", T1).await,
        r#"{"taskId":"t1","status":"working","ttl":6e4,"pollInterval":1}"#
    );
    let asked = tasks.server.next_of("tasks/get").await;
    assert_eq!(
        (asked.header("mcp-method"), asked.header("mcp-name")),
        (Some("tasks/get"), Some("t1"))
    );
    // The client side handles input that the server wants before it begins.
    let asks = get(
        &backend,
        requested(1),
        "tools/call",
        r#"{"name":"asks","task":{}}"#,
    )
    .await;
    assert_eq!(
        asks,
        r#"{"resultType":"input_required","requestState":"s"}"#
    );
}

#[tokio::test]
async fn result_is_awaited_beyond_the_time_of_a_call() {
    // Some 30 polls of 50 ms, and a server that is gone for two of them.
    let mut states = vec![WORKING; 30];
    states.extend(["!", "!", DONE]);
    let tasks = Tasks::modern(&states, "{}").await;
    let backend = hurried(&tasks);
    let result = get(&backend, requested(1), "tasks/result", T1).await;
    assert_eq!(result, format!(r#"{{ "n" : 1.0,"_meta":{{{RELATED}}}}}"#));
}

#[tokio::test]
async fn input_requests_reach_the_client_and_answers_the_server() {
    let mut tasks = Tasks::modern(&[WORKING, ASKING, WORKING, DONE], "{}").await;
    let backend = hurried(&tasks);
    let (call, mut inbox) = by(requested(1), "tasks/result", T1);
    let client = async {
        let (first, second) = (inbox.question().await, inbox.question().await);
        assert_eq!(first.method.as_str(), "elicitation/create");
        assert_eq!(
            first.params.unwrap().as_text(),
            format!(r#"{{ "message":"\u0042","_meta":{{{RELATED}}}}}"#)
        );
        assert_eq!(second.method.as_str(), "roots/list");
        assert_eq!(
            second.params.unwrap().as_text(),
            format!(r#"{{"_meta":{{{RELATED}}}}}"#)
        );
        second
            .answer
            .send(Response::from_result(&Json::literal(r#"{"roots":[]}"#)))
            .unwrap();
        // The task is polled while a person may be thinking.
        tasks.server.next_of("tasks/get").await;
        tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
        first
            .answer
            .send(Response::from_result(&Json::literal(
                r#"{ "action":"accept","n":1E400}"#,
            )))
            .unwrap();
        tasks.server.next_of("tasks/update").await
    };
    let (result, update) = tokio::join!(send(&backend, call), client);
    assert!(result.unwrap().contains(RELATED));
    let params = update.params();
    assert_eq!(
        params.get("inputResponses").unwrap().as_text(),
        r#"{"k2":{"roots":[]},"k\u0031":{ "action":"accept","n":1E400}}"#
    );
    assert_eq!(update.header("mcp-name"), Some("t1"));
    assert_eq!(tasks.server.count("tasks/update"), 0);
}

#[tokio::test]
async fn client_error_names_the_missing_input() {
    let tasks = Tasks::modern(&[ASKING], "{}").await;
    let backend = hurried(&tasks);
    let (call, mut inbox) = by(requested(1), "tasks/result", T1);
    let client = async {
        let (first, _second) = (inbox.question().await, inbox.question().await);
        first
            .answer
            .send(Response::from_error(&RpcError::new(-1, "no")))
            .unwrap();
    };
    let (error, ()) = tokio::join!(send(&backend, call), client);
    let error = json(&error.unwrap());
    assert_eq!(error.get("code").unwrap().as_i64(), Some(-32603));
    assert_eq!(
        error.get("data").unwrap().as_text(),
        r#"{"key":"k\u0031","error":{"code":-1,"message":"no"}}"#
    );
    // The client knows the task, so it is not cancelled.
    let asks = r#"{"taskId":"t1","status":"input_required","ttlMs":1,"inputRequests":{"k":{"method":"sampling/createMessage"}}}"#;
    tasks.is(asks);
    let error = get(&backend, requested(1), "tasks/result", T1).await;
    assert!(
        code(&error) == -32603 && error.contains("sampling"),
        "{error}"
    );
}

#[tokio::test]
async fn failure_is_unchanged_and_cancellation_is_an_error() {
    let tasks = Tasks::modern(&[WORKING], "{}").await;
    let backend = hurried(&tasks);
    tasks.is(r#"{"taskId":"t1","status":"failed","ttlMs":1,"error":{ "code":-7,"message":"\u0041","data":1.0}}"#);
    let error = get(&backend, requested(1), "tasks/result", T1).await;
    assert_eq!(error, r#"{ "code":-7,"message":"\u0041","data":1.0}"#);
    tasks.is(r#"{"taskId":"t1","status":"cancelled","ttlMs":1,"statusMessage":"by somebody"}"#);
    let error = get(&backend, requested(1), "tasks/result", T1).await;
    assert!(
        code(&error) == -32603 && error.contains("cancelled: by somebody"),
        "{error}"
    );
    tasks.is(r##"#{"code":-32602,"message":"no such task"}"##);
    for method in ["tasks/result", "tasks/get", "tasks/cancel"] {
        let error = get(&backend, requested(1), method, T1).await;
        assert_eq!(
            error, r#"{"code":-32602,"message":"no such task"}"#,
            "{method}"
        );
    }
    assert_eq!(
        code(&get(&backend, requested(1), "tasks/get", "{}").await),
        -32602
    );
}

#[tokio::test]
async fn cancellation_returns_the_task() {
    let cancelled = r#"{"taskId":"t1","status":"cancelled","ttlMs":1}"#;
    let tasks = Tasks::modern(&[WORKING, WORKING, WORKING, cancelled], "{}").await;
    let backend = hurried(&tasks);
    let told = get(&backend, requested(1), "tasks/cancel", T1).await;
    assert_eq!(told, r#"{"taskId":"t1","status":"cancelled","ttl":1}"#);
    assert_eq!(
        code(&get(&backend, requested(1), "tasks/cancel", T1).await),
        -32602
    );
}

#[tokio::test]
async fn immediate_result_is_kept_as_a_task() {
    let result = r#"{ "resultType":"complete","content":[],"n":1.0}"#;
    let mut tasks = Tasks::modern(&[WORKING], result).await;
    let backend = start(settings(tasks.server.transport()));
    let created = json(
        &get(
            &backend,
            requested(1),
            "tools/call",
            r#"{"name":"never","task":{"ttl":7000}}"#,
        )
        .await,
    );
    let task = created.get("task").unwrap();
    assert_eq!(task.get("status").unwrap().as_text(), r#""working""#);
    assert_eq!(task.get("ttl").unwrap().as_text(), "7000");
    assert!(
        task.get("createdAt")
            .unwrap()
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    let id = task.get("taskId").unwrap();
    let params = format!(r#"{{"taskId":{id}}}"#);
    assert_eq!(
        code(&get(&backend, requested(2), "tasks/get", &params).await),
        -32602,
        "another client"
    );
    let now = json(&get(&backend, requested(1), "tasks/get", &params).await);
    assert_eq!(now.get("status").unwrap().as_text(), r#""completed""#);
    assert_eq!(
        get(&backend, requested(1), "tasks/result", &params).await,
        format!(
            r#"{{ "resultType":"complete","content":[],"n":1.0,"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":{id}}}}}}}"#
        )
    );
    assert_eq!(
        code(&get(&backend, requested(1), "tasks/cancel", &params).await),
        -32602
    );
    assert_eq!(
        code(
            &get(
                &backend,
                requested(1),
                "tasks/get",
                r#"{"taskId":"fanlight-task-x"}"#
            )
            .await
        ),
        -32602
    );
    assert_eq!(tasks.server.count("tasks/get"), 0);
    let other = json(
        &get(
            &backend,
            requested(1),
            "tools/call",
            r#"{"name":"never","task":{}}"#,
        )
        .await,
    );
    assert_ne!(other.get("task").unwrap().get("taskId").unwrap(), id);
    backend.stop().await;
    assert_eq!(backend.name(), "tested");
}

#[tokio::test]
async fn immediate_error_of_a_tool_is_a_failed_task() {
    let tasks = Tasks::modern(&[WORKING], r#"{"isError":true,"content":[]}"#).await;
    let backend = start(settings(tasks.server.transport()));
    let created = json(
        &get(
            &backend,
            requested(1),
            "tools/call",
            r#"{"name":"never","task":{}}"#,
        )
        .await,
    );
    let id = created.get("task").unwrap().get("taskId").unwrap();
    let now = json(
        &get(
            &backend,
            requested(1),
            "tasks/get",
            &format!(r#"{{"taskId":{id}}}"#),
        )
        .await,
    );
    assert_eq!(now.get("status").unwrap().as_text(), r#""failed""#);
}

#[tokio::test]
async fn list_has_the_tasks_of_this_client() {
    let tasks = Tasks::modern(&[WORKING], "{}").await;
    let mut settings = settings(tasks.server.transport());
    settings.limits.tasks = 100;
    let backend = start(settings);
    for name in ["may", "never"] {
        get(
            &backend,
            requested(1),
            "tools/call",
            &format!(r#"{{"name":"{name}","task":{{}}}}"#),
        )
        .await;
    }
    let list = json(&get(&backend, requested(1), "tasks/list", "").await)
        .get("tasks")
        .unwrap();
    let listed: Vec<_> = list.elements().map(|element| list.slice(element)).collect();
    assert_eq!(
        listed[0].as_text(),
        r#"{"taskId":"t1","status":"working","ttl":6e4,"pollInterval":1}"#
    );
    assert_eq!(listed[1].get("status").unwrap().as_text(), r#""completed""#);
    assert_eq!(listed.len(), 2);
    assert_eq!(
        get(&backend, requested(2), "tasks/list", "{}").await,
        r#"{"tasks":[]}"#
    );
    // A task that the server no longer knows is no longer listed.
    tasks.is(r##"#{"code":-32602,"message":"gone"}"##);
    let list = json(&get(&backend, requested(1), "tasks/list", "").await)
        .get("tasks")
        .unwrap();
    assert_eq!(list.elements().count(), 1);

    for _ in 0..20 {
        get(
            &backend,
            requested(1),
            "tools/call",
            r#"{"name":"never","task":{}}"#,
        )
        .await;
    }
    let page = json(&get(&backend, requested(1), "tasks/list", "").await);
    assert_eq!(page.get("tasks").unwrap().elements().count(), 20);
    let cursor = page.get("nextCursor").unwrap();
    let rest = json(
        &get(
            &backend,
            requested(1),
            "tasks/list",
            &format!(r#"{{"cursor":{cursor}}}"#),
        )
        .await,
    );
    assert_eq!(rest.get("tasks").unwrap().elements().count(), 1);
    assert!(rest.get("nextCursor").is_none());
    for first in [r#"{"cursor":""}"#, r#"{"cursor":null}"#] {
        assert_eq!(
            json(&get(&backend, requested(1), "tasks/list", first).await),
            page
        );
    }
    assert_eq!(
        code(&get(&backend, requested(1), "tasks/list", r#"{"cursor":"x"}"#).await),
        -32602
    );
}

#[tokio::test]
async fn server_requests_reach_one_of_two_waiting_clients() {
    let tasks = Tasks::modern(&[ASKING, DONE], "{}").await;
    let backend = hurried(&tasks);
    let (first, mut inbox) = by(requested(1), "tasks/result", T1);
    let (second, mut other) = by(requested(1), "tasks/result", T1);
    let mut waiting = Box::pin(send(&backend, first));
    let client = async { [inbox.question().await, inbox.question().await] };
    let questions = tokio::select! {
        outcome = &mut waiting => panic!("{outcome:?}"),
        questions = client => questions,
    };
    // The other call sees the same task again and again.
    let mut later = Box::pin(send(&backend, second));
    let looked = tokio::time::timeout(std::time::Duration::from_millis(300), async {
        tokio::select! {
            outcome = &mut waiting => panic!("{outcome:?}"),
            outcome = &mut later => panic!("{outcome:?}"),
        }
    });
    assert!(looked.await.is_err() && other.is_empty());
    // After the end of the first call, its server requests go to the other client.
    drop((waiting, questions));
    let client = async {
        for _ in 0..2 {
            other
                .question()
                .await
                .answer
                .send(Response::from_result(&Json::literal("{}")))
                .unwrap();
        }
    };
    let (result, ()) = tokio::join!(later, client);
    assert!(result.unwrap().contains(RELATED));
}
