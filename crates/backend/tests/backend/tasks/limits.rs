//! The limits of every wait and table.

use std::time::Duration;

use fanlight_canonical::BackendError;

use super::servers::Tasks;
use super::{by, code, extension, get, plain, requested};
use crate::support::server::Reply;
use crate::support::{json, send, settings, start};

const NEEDS: &str = r#"{"name":"needs"}"#;
const T1: &str = r#"{"taskId":"t1"}"#;
const WORKING: &str = r#"{"taskId":"t1","status":"working","ttlMs":null,"pollIntervalMs":1}"#;
const LEGACY_WORKING: &str = r#"{"taskId":"t1","status":"working","ttl":null,"pollInterval":1}"#;

#[tokio::test]
async fn wait_ends_in_time_and_cancels_a_task_that_its_client_does_not_know() {
    let legacy = Tasks::legacy(&[LEGACY_WORKING], |seen| {
        (seen.method() == "tasks/result").then_some(Reply::Hang)
    })
    .await;
    for mut tasks in [legacy, Tasks::modern(&[WORKING], "{}").await] {
        let mut settings = settings(tasks.server.transport());
        settings.timeouts.task = Duration::from_millis(300);
        let limit = settings.timeouts.task;
        let backend = start(settings);
        let (call, _inbox) = by(plain(1), "tools/call", NEEDS);
        assert_eq!(
            send(&backend, call).await.unwrap_err(),
            BackendError::Timeout {
                after: limit,
                sent: true
            }
        );
        tasks.server.next_of("tasks/cancel").await;
    }
    // A task that its client knows is not cancelled.
    let mut tasks = Tasks::modern(&[WORKING], "{}").await;
    let mut settings = settings(tasks.server.transport());
    settings.timeouts.task = Duration::from_millis(300);
    let backend = start(settings);
    let (call, _inbox) = by(requested(1), "tasks/result", T1);
    assert!(matches!(
        send(&backend, call).await,
        Err(BackendError::Timeout { .. })
    ));
    backend.stop().await;
    assert_eq!(tasks.server.count("tasks/cancel"), 0);
}

#[tokio::test]
async fn wait_ends_with_the_backend() {
    let mut tasks = Tasks::modern(&[WORKING], "{}").await;
    let backend = start(settings(tasks.server.transport()));
    let (call, _inbox) = by(requested(1), "tasks/result", T1);
    let waiting = send(&backend, call);
    let gone = async {
        tasks.server.next_of("tasks/get").await;
        backend.stop().await;
    };
    let (outcome, ()) = tokio::join!(waiting, gone);
    assert!(
        matches!(
            outcome,
            Err(BackendError::ShuttingDown | BackendError::Interrupted)
        ),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn number_of_waits_is_bounded() {
    let mut tasks = Tasks::modern(&[WORKING], "{}").await;
    let mut settings = settings(tasks.server.transport());
    settings.limits.tasks = 1;
    let backend = start(settings);
    let (first, _inbox) = by(plain(1), "tools/call", NEEDS);
    let others = async {
        tasks.server.next_of("tasks/get").await;
        // The first client's task belongs to another client.
        for (method, params) in [
            ("tools/call", NEEDS),
            ("tasks/result", r#"{"taskId":"t2"}"#),
        ] {
            let (call, _inbox) = by(requested(2), method, params);
            assert_eq!(
                send(&backend, call).await.unwrap_err(),
                BackendError::Busy { limit: 1 },
                "{method}"
            );
        }
    };
    tokio::select! {
        outcome = send(&backend, first) => panic!("{outcome:?}"),
        () = others => {}
    }
}

#[tokio::test]
async fn immediate_tasks_are_bounded_and_expire() {
    let tasks = Tasks::modern(
        &[WORKING],
        r#"{"content":["0123456789012345678901234567890123456789"]}"#,
    )
    .await;
    let mut settings = settings(tasks.server.transport());
    settings.limits.task_bytes = 350;
    let backend = start(settings.clone());
    let create = async |ttl: &str| {
        let params = format!(r#"{{"name":"never","task":{{"ttl":{ttl}}}}}"#);
        let created = json(&get(&backend, requested(1), "tools/call", &params).await);
        format!(
            r#"{{"taskId":{}}}"#,
            created.get("task").unwrap().get("taskId").unwrap()
        )
    };
    let (first, second, third) = (
        create("60000").await,
        create("60000").await,
        create("60000").await,
    );
    assert_eq!(
        code(&get(&backend, requested(1), "tasks/get", &first).await),
        -32602
    );
    for kept in [second, third] {
        assert!(
            get(&backend, requested(1), "tasks/get", &kept)
                .await
                .contains("completed")
        );
    }
    let brief = create("1").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(
        code(&get(&backend, requested(1), "tasks/result", &brief).await),
        -32602
    );
    // A result that is too large to be kept becomes the answer itself.
    settings.limits.task_bytes = 50;
    let backend = start(settings);
    let result = get(
        &backend,
        requested(1),
        "tools/call",
        r#"{"name":"never","task":{}}"#,
    )
    .await;
    assert!(result.starts_with(r#"{"content":"#), "{result}");
}

#[tokio::test]
async fn number_of_collectors_is_bounded() {
    const ASKING: &str = r#"{"taskId":"t1","status":"input_required","ttl":null}"#;
    let tasks = Tasks::legacy(&[ASKING], |seen| {
        (seen.method() == "tasks/result").then(|| Reply::Open(": \n\n".into()))
    })
    .await;
    let mut settings = settings(tasks.server.transport());
    settings.limits.tasks = 1;
    let backend = start(settings);
    assert!(
        get(&backend, extension("{}"), "tasks/get", T1)
            .await
            .contains("inputRequests")
    );
    let (call, _inbox) = by(extension("{}"), "tasks/get", r#"{"taskId":"t2"}"#);
    assert_eq!(
        send(&backend, call).await.unwrap_err(),
        BackendError::Busy { limit: 1 }
    );
}
