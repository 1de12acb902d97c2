//! Tasks of a child process that may end and restart while they run.

use fanlight_testkit::scripted::{Era, Fault, Reply, Task};

use super::{extension, get, plain};
use crate::support::child::Child;
use crate::support::{json, settings, start};

const ASK: &str = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}"#;
const NEEDS: &str = r#"{"tools":[{"name":"needs","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}"#;

/// A legacy server whose tool `needs` always runs as the task `t1`.
async fn legacy() -> Child {
    let child = Child::legacy().await;
    child.declares(r#"{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}"#);
    child.on("tools/list", Reply::result(NEEDS));
    child.on(
        "tools/call",
        Reply::result(task("working").created(Era::Legacy)),
    );
    child
}

fn task(status: &str) -> Task<'_> {
    Task {
        id: "t1",
        status,
        ttl: 60_000,
        poll: 1,
    }
}

#[tokio::test]
async fn legacy_task_survives_the_restart_of_its_server() {
    // The first process exits on the request for the result; the task is kept.
    let child = legacy().await;
    child.on(
        "tasks/get",
        Reply::result(task("working").got(Era::Legacy, "")),
    );
    child.once("tasks/result", Reply::fault(Fault::Die(1)));
    child.on("tasks/result", Reply::result(r#"{ "content":[],"n":1.0}"#));
    let backend = start(settings(child.transport()));
    let answer = get(&backend, plain(1), "tools/call", r#"{"name":"needs"}"#).await;
    assert_eq!(answer, r#"{ "content":[],"n":1.0}"#);
    assert_eq!(child.count("tasks/result"), 2);
}

#[tokio::test]
async fn modern_task_survives_the_restart_of_its_server() {
    let child = Child::modern().await;
    child.declares(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
    child.on(
        "tools/call",
        Reply::result(task("working").created(Era::Modern)),
    );
    child.once("tasks/get", Reply::fault(Fault::Die(1)));
    child.on(
        "tasks/get",
        Reply::result(task("completed").got(Era::Modern, r#""result":{ "content":[],"n":1.0}"#)),
    );
    let backend = start(settings(child.transport()));
    // The client cannot be asked, so it shares the modern process.
    let client = crate::support::of_session(1, "{}");
    let answer = get(&backend, client, "tools/call", r#"{"name":"needs"}"#).await;
    assert_eq!(answer, r#"{ "content":[],"n":1.0}"#);
    assert_eq!(child.started().len(), 2);
}

#[tokio::test]
async fn server_request_of_a_task_reaches_the_client_that_waits_for_it() {
    let child = legacy().await;
    child.on(
        "tasks/get",
        Reply::result(task("input_required").got(Era::Legacy, "")),
    );
    child.on("tasks/result", Reply::fault(Fault::Hang).after(&[ASK]));
    let backend = start(settings(child.transport()));
    let capabilities = r#"{"elicitation":{}}"#;
    let of = |key: u64| {
        move |context: &mut fanlight_canonical::CallContext| {
            extension(capabilities)(context);
            context.caller = crate::support::client(key);
        }
    };
    get(&backend, of(1), "tools/call", r#"{"name":"needs"}"#).await;
    // Later requests about the task have their own callers, and reach the process that has it.
    let task = json(&get(&backend, of(3), "tasks/get", r#"{"taskId":"t1"}"#).await);
    let requests = task.get("inputRequests").unwrap();
    let key = requests.members().next().unwrap().name(&requests).unwrap();
    let update = format!(r#"{{"taskId":"t1","inputResponses":{{"{key}":{{"action":"accept"}}}}}}"#);
    get(&backend, of(4), "tasks/update", &update).await;
    let waiting = child.wait_for("tasks/result", 1).await;
    let answer = child.answer_to(r#""q""#, &waiting[0]).await;
    assert_eq!(
        answer.text,
        r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#
    );
}
