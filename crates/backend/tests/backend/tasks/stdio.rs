//! Tasks of a child process, which may end and be started again while they run.

use super::{extension, get, plain};
use crate::support::child::Child;
use crate::support::{PATIENCE, json, settings, start};

const INITIALIZE: &str = r#"
    *'"method":"initialize"'*) result '{"protocolVersion":"2025-11-25","capabilities":{"tasks":{"requests":{"tools":{"call":{}}}}}}';;
    *'"method":"tools/list"'*) result '{"tools":[{"name":"needs","execution":{"taskSupport":"required"}}]}';;
    *'"method":"tools/call"'*'"task":{}'*) result '{"task":{"taskId":"t1","status":"working","ttl":null,"pollInterval":1}}';;
"#;

#[tokio::test]
async fn legacy_task_survives_the_restart_of_its_server() {
    // The first process exits on the request for the result; the task is kept.
    let child = Child::legacy(&format!(
        r#"{INITIALIZE}
    *'"method":"tasks/get"'*) result '{{"taskId":"t1","status":"working","ttl":null,"pollInterval":1}}';;
    *'"method":"tasks/result"'*) if [ -e "$STATE/died" ]; then result '{{ "n":1.0}}'; else : > "$STATE/died"; exit 1; fi;;
"#
    ));
    let backend = start(settings(child.transport()));
    assert_eq!(get(&backend, plain(1), "tools/call", r#"{"name":"needs"}"#).await, r#"{ "n":1.0}"#);
    assert!(child.has("died"));
}

#[tokio::test]
async fn modern_task_survives_the_restart_of_its_server() {
    let child = Child::new(
        r#"
    *'"method":"server/discover"'*) result '{"supportedVersions":["2026-07-28"],"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}';;
    *'"method":"tools/call"'*) result '{"resultType":"task","taskId":"t1","status":"working","ttlMs":null,"pollIntervalMs":1}';;
    *'"method":"tasks/get"'*) if [ -e "$STATE/died" ]; then result '{"taskId":"t1","status":"completed","ttlMs":null,"result":{ "n":1.0}}'; else : > "$STATE/died"; exit 1; fi;;
"#,
    );
    let backend = start(settings(child.transport()));
    let client = crate::support::of_session(1, "{}");
    assert_eq!(get(&backend, client, "tools/call", r#"{"name":"needs"}"#).await, r#"{ "n":1.0}"#);
    assert_eq!(child.starts().len(), 2);
}

#[tokio::test]
async fn server_request_of_a_task_reaches_the_client_that_waits_for_it() {
    let child = Child::legacy(&format!(
        r#"{INITIALIZE}
    *'"method":"tasks/get"'*) result '{{"taskId":"t1","status":"input_required","ttl":null}}';;
    *'"method":"tasks/result"'*) say '{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{{"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"t1"}}}}}}}}';;
    *'"id":"q"'*) printf '%s' "$line" > "$STATE/answer";;
"#
    ));
    let backend = start(settings(child.transport()));
    let capabilities = r#"{"elicitation":{}}"#;
    let of = |key: u64| {
        move |context: &mut fanlight_canonical::CallContext| {
            extension(capabilities)(context);
            context.caller = crate::support::client(key);
        }
    };
    get(&backend, of(1), "tools/call", r#"{"name":"needs"}"#).await;
    // Later requests about the task, which have callers of their own, reach the process that has it.
    let task = json(&get(&backend, of(3), "tasks/get", r#"{"taskId":"t1"}"#).await);
    let requests = task.get("inputRequests").unwrap();
    let key = requests.members().next().unwrap().name(&requests).unwrap();
    let update = format!(r#"{{"taskId":"t1","inputResponses":{{"{key}":{{"action":"accept"}}}}}}"#);
    get(&backend, of(4), "tasks/update", &update).await;
    let answered = async {
        while !child.has("answer") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap();
    assert_eq!(child.file("answer"), r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#);
}
