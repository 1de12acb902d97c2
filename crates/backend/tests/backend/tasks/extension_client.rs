//! Modern clients with the tasks extension at a legacy server.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::servers::{Tasks, initialized, name};
use super::{code, extension, get, hurried};
use crate::support::{settings, start};

const T1: &str = r#"{"taskId":"t1"}"#;

fn working(status: &str) -> String {
    format!(r#"{{ "taskId":"t1","status":"{status}","ttl":6e4,"pollInterval":1,"x":1.0}}"#)
}

#[tokio::test]
async fn tool_that_requires_a_task_is_called_as_one() {
    let mut tasks = Tasks::legacy(&[&working("working")], |_| None).await;
    let backend = start(settings(tasks.server.transport()));
    let client = || extension("{}");
    for _ in 0..2 {
        let created = get(
            &backend,
            client(),
            "tools/call",
            r#"{ "name":"needs","arguments":{"n":1.0}}"#,
        )
        .await;
        assert_eq!(
            created,
            r#"{"_meta":{"m":1.0},"resultType":"task","taskId":"t\u0031","status":"working","ttlMs":6e4,"x":1.0,"pollIntervalMs":1}"#
        );
        let sent = tasks.server.next_of("tools/call").await.params();
        assert_eq!(
            sent.as_text(),
            r#"{ "name":"needs","arguments":{"n":1.0},"task":{}}"#
        );
    }
    for name in ["may", "unlisted"] {
        let result = get(
            &backend,
            client(),
            "tools/call",
            &format!(r#"{{"name":"{name}"}}"#),
        )
        .await;
        assert_eq!(result, r#"{"plain":1.0}"#);
        assert_eq!(tasks.server.next().await.method(), "tools/call");
    }
    assert_eq!(tasks.server.count("tools/list"), 0);
}

#[tokio::test]
async fn tool_that_turns_out_to_require_a_task_is_called_again_as_one() {
    let lists = AtomicUsize::new(0);
    let tasks = Tasks::legacy(&[&working("working")], move |seen| {
        let first_list =
            seen.method() == "tools/list" && lists.fetch_add(1, Ordering::Relaxed) == 0;
        if first_list {
            return Some(seen.result(r#"{"tools":[{"name":"needs"}]}"#));
        }
        (name(seen) == "broken").then(|| seen.error(200, r#"{"code":-32601,"message":"never"}"#))
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    let created = get(
        &backend,
        extension("{}"),
        "tools/call",
        r#"{"name":"needs"}"#,
    )
    .await;
    assert!(created.contains(r#""resultType":"task""#), "{created}");
    // The same error for another reason is the answer.
    let error = get(
        &backend,
        extension("{}"),
        "tools/call",
        r#"{"name":"broken"}"#,
    )
    .await;
    assert_eq!(error, r#"{"code":-32601,"message":"never"}"#);
}

#[tokio::test]
async fn task_outcome_is_inlined() {
    let results = [r#"{ "n" : 1.0 }"#, r#"{"isError":true}"#];
    let asked = AtomicUsize::new(0);
    let tasks = Tasks::legacy(&["{}"], move |seen| {
        (seen.method() == "tasks/result").then(|| {
            match results.get(asked.fetch_add(1, Ordering::Relaxed)) {
                Some(result) => seen.result(result),
                None => seen.error(200, r#"{ "code":-7,"message":"\u0041"}"#),
            }
        })
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    let ask = async |status: &str| {
        tasks.is(&working(status));
        get(&backend, extension("{}"), "tasks/get", T1).await
    };
    let detailed = |status: &str, inlined: &str| {
        let middle = r#""ttlMs":6e4,"pollIntervalMs":1,"x":1.0"#;
        format!(
            r#"{{ "taskId":"t1","status":"{status}",{middle}{inlined},"resultType":"complete"}}"#
        )
    };
    assert_eq!(ask("working").await, detailed("working", ""));
    assert_eq!(ask("cancelled").await, detailed("cancelled", ""));
    assert_eq!(
        ask("completed").await,
        detailed("completed", r#","result":{ "n" : 1.0 }"#)
    );
    // A tool's error is a result there, and a task's failure here.
    assert_eq!(
        ask("failed").await,
        detailed("completed", r#","result":{"isError":true}"#)
    );
    assert_eq!(
        ask("failed").await,
        detailed("failed", r#","error":{ "code":-7,"message":"\u0041"}"#)
    );
    assert_eq!(ask("completed").await, r#"{ "code":-7,"message":"\u0041"}"#);
    tasks.is(r##"#{"code":-32602,"message":"gone"}"##);
    assert_eq!(
        get(&backend, extension("{}"), "tasks/get", T1).await,
        r#"{"code":-32602,"message":"gone"}"#
    );
    assert_eq!(
        get(&backend, extension("{}"), "tasks/update", T1).await,
        r#"{"code":-32602,"message":"gone"}"#
    );
}

#[tokio::test]
async fn cancellation_is_acknowledged_also_after_the_end() {
    let refuses = AtomicUsize::new(0);
    let tasks = Tasks::legacy(&["{}"], move |seen| {
        let refused =
            seen.method() == "tasks/cancel" && refuses.fetch_add(1, Ordering::Relaxed) > 0;
        refused.then(|| seen.error(200, r#"{"code":-32602,"message":"no"}"#))
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    let cancel = || get(&backend, extension("{}"), "tasks/cancel", T1);
    let acknowledged = r#"{"resultType":"complete"}"#;
    assert_eq!(cancel().await, acknowledged);
    tasks.is(&working("completed"));
    assert_eq!(cancel().await, acknowledged);
    tasks.is(&working("working"));
    assert_eq!(cancel().await, r#"{"code":-32602,"message":"no"}"#);
    tasks.is(r##"#{"code":-32602,"message":"gone"}"##);
    assert_eq!(cancel().await, r#"{"code":-32602,"message":"gone"}"#);
}

#[tokio::test]
async fn methods_that_the_extension_lacks_are_refused() {
    let mut tasks = Tasks::legacy(&["{}"], |_| None).await;
    let backend = hurried(&tasks);
    for method in ["tasks/list", "tasks/result"] {
        assert_eq!(
            code(&get(&backend, extension("{}"), method, T1).await),
            -32601,
            "{method}"
        );
    }
    // A client without a session also does not see tasks of others in the shared session.
    assert_eq!(code(&get(&backend, |_| {}, "tasks/list", "").await), -32601);
    assert_eq!(
        tasks.server.count("tasks/list") + tasks.server.count("tasks/result"),
        0
    );
}

#[tokio::test]
async fn task_is_read_in_the_session_that_made_it() {
    let sessions = AtomicUsize::new(0);
    let mut tasks = Tasks::legacy(&[&working("working")], move |seen| {
        let number =
            (seen.method() == "initialize").then(|| sessions.fetch_add(1, Ordering::Relaxed));
        number.map(|number| initialized(seen, &format!("s{number}")))
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    get(
        &backend,
        extension(r#"{"roots":{}}"#),
        "tools/call",
        r#"{"name":"needs"}"#,
    )
    .await;
    assert_eq!(
        tasks
            .server
            .next_of("tools/call")
            .await
            .header("mcp-session-id"),
        Some("s1")
    );
    for (id, session) in [("t1", "s1"), ("t2", "s2")] {
        let params = format!(r#"{{"taskId":"{id}"}}"#);
        get(
            &backend,
            extension(r#"{"sampling":{}}"#),
            "tasks/get",
            &params,
        )
        .await;
        assert_eq!(
            tasks
                .server
                .next_of("tasks/get")
                .await
                .header("mcp-session-id"),
            Some(session),
            "{id}"
        );
    }
}
