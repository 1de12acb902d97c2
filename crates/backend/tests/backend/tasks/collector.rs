//! Server requests of a legacy server's task, for clients with the extension.

use std::sync::Arc;
use std::time::Duration;

use fanlight_backend::Backend;
use fanlight_protocol::Json;
use tokio::sync::Notify;

use super::servers::{Tasks, answer_event};
use super::{extension, get};
use crate::support::server::{Reply, Seen, event};
use crate::support::{json, settings, start};

const T1: &str = r#"{"taskId":"t1"}"#;
const ASKING: &str = r#"{"taskId":"t1","status":"input_required","ttl":null,"pollInterval":1}"#;
const ELICIT: &str = r#"{"elicitation":{}}"#;
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{ "message":"\u0041","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}"#;
const OTHER: &str = r#"{"jsonrpc":"2.0","id":"q2","method":"roots/list"}"#;
const ACKNOWLEDGED: &str = r#"{"resultType":"complete"}"#;

/// A server whose task sends these server requests on the stream of `tasks/result`.
async fn asking(questions: &'static [&'static str]) -> Tasks {
    let gate = Arc::new(Notify::new());
    Tasks::legacy(&[ASKING], move |seen: &Seen| {
        let first = questions.iter().map(|question| event(question)).collect();
        let answer = answer_event(seen, "{}");
        (seen.method() == "tasks/result").then(|| Reply::Gated(first, Arc::clone(&gate), answer))
    })
    .await
}

async fn requests(backend: &Backend, capabilities: &str) -> Json {
    let task = json(&get(backend, extension(capabilities), "tasks/get", T1).await);
    assert_eq!(task.get("status").unwrap().as_text(), r#""input_required""#);
    task.get("inputRequests").unwrap()
}

fn keys(requests: &Json) -> Vec<String> {
    requests
        .members()
        .map(|member| member.name(requests).unwrap())
        .collect()
}

async fn update(backend: &Backend, responses: &str) {
    let params = format!(r#"{{"taskId":"t1","inputResponses":{responses}}}"#);
    assert_eq!(
        get(backend, extension(ELICIT), "tasks/update", &params).await,
        ACKNOWLEDGED
    );
}

#[tokio::test]
async fn server_requests_are_shown_until_answered() {
    let mut tasks = asking(&[QUESTION, OTHER]).await;
    let backend = start(settings(tasks.server.transport()));
    let both = r#"{"elicitation":{},"roots":{}}"#;
    let shown = requests(&backend, both).await;
    // The second may come a moment later.
    let shown = if keys(&shown).len() == 2 {
        shown
    } else {
        requests(&backend, both).await
    };
    let key = keys(&shown);
    assert_eq!(
        shown.get(&key[0]).unwrap().as_text(),
        r#"{"method":"elicitation/create","params":{ "message":"\u0041","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}"#
    );
    assert_eq!(
        shown.get(&key[1]).unwrap().as_text(),
        r#"{"method":"roots/list"}"#
    );
    assert_eq!(keys(&requests(&backend, both).await), key);

    let responses = format!(
        r#"{{"unknown":{{}},"{}":7,"{}":{{ "n":1E400}}}}"#,
        key[1], key[0]
    );
    update(&backend, &responses).await;
    let answered = loop {
        let seen = tasks.server.next().await;
        if seen.method().is_empty() && seen.verb == "POST" {
            break seen.body;
        }
    };
    assert_eq!(
        answered,
        r#"{"jsonrpc":"2.0","id":"q1","result":{ "n":1E400}}"#
    );
    // An invalid answer leaves the request open, and a second answer is ignored.
    tasks.is(ASKING);
    update(&backend, &responses).await;
    assert_eq!(keys(&requests(&backend, both).await), key[1..]);
    assert_eq!(tasks.server.count("tasks/result"), 0, "one for all of it");
}

#[tokio::test]
async fn server_request_is_refused_if_the_client_lacks_the_capability() {
    let mut tasks = asking(&[QUESTION]).await;
    let backend = start(settings(tasks.server.transport()));
    // This call's client has the capability.
    get(
        &backend,
        extension(ELICIT),
        "tools/call",
        r#"{"name":"needs"}"#,
    )
    .await;
    assert_eq!(requests(&backend, r#"{"roots":{}}"#).await.as_text(), "{}");
    let refused = loop {
        let seen = tasks.server.next().await;
        if seen.method().is_empty() && seen.verb == "POST" {
            break seen.body;
        }
    };
    assert!(
        refused.contains(r#""id":"q1""#) && refused.contains("-32601"),
        "{refused}"
    );
}

#[tokio::test]
async fn server_request_is_hidden_from_a_client_without_the_capability() {
    let tasks = asking(&[QUESTION]).await;
    let backend = start(settings(tasks.server.transport()));
    get(
        &backend,
        extension(ELICIT),
        "tools/call",
        r#"{"name":"needs"}"#,
    )
    .await;
    assert_eq!(keys(&requests(&backend, ELICIT).await).len(), 1);
    assert!(keys(&requests(&backend, "{}").await).is_empty());
    assert_eq!(keys(&requests(&backend, ELICIT).await).len(), 1);
}

#[tokio::test]
async fn collector_ends_when_the_client_asks_no_more() {
    let mut tasks = Tasks::legacy(&[ASKING], |seen| {
        (seen.method() == "tasks/result").then(|| Reply::Open(event(QUESTION)))
    })
    .await;
    let mut settings = settings(tasks.server.transport());
    settings.timeouts.question = Duration::from_millis(300);
    let backend = start(settings);
    assert_eq!(keys(&requests(&backend, ELICIT).await).len(), 1);
    tasks.server.next_of("closed").await;
    // It begins again when a client asks.
    let before = keys(&requests(&backend, ELICIT).await);
    assert_eq!(before.len(), 1);
    tasks.server.next_of("closed").await;
}

#[tokio::test]
async fn collector_ends_with_the_task_and_with_the_backend() {
    let mut tasks = Tasks::legacy(&[ASKING], |seen| {
        (seen.method() == "tasks/result").then(|| Reply::Open(event(QUESTION)))
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    requests(&backend, ELICIT).await;
    assert_eq!(
        get(&backend, extension(ELICIT), "tasks/cancel", T1).await,
        ACKNOWLEDGED
    );
    tasks.server.next_of("closed").await;
    tasks.is(ASKING);
    requests(&backend, ELICIT).await;
    backend.stop().await;
    tasks.server.next_of("closed").await;
}

#[tokio::test]
async fn answer_waits_only_briefly_for_the_first_server_request() {
    let tasks = Tasks::legacy(&[ASKING], |seen| {
        (seen.method() == "tasks/result").then(|| Reply::Open(": \n\n".into()))
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    let began = std::time::Instant::now();
    assert_eq!(requests(&backend, ELICIT).await.as_text(), "{}");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    // If the task has ended meanwhile, there is no wait at all.
    let tasks = Tasks::legacy(&[ASKING], |seen| {
        (seen.method() == "tasks/result").then(|| seen.result("{}"))
    })
    .await;
    let backend = start(settings(tasks.server.transport()));
    assert_eq!(requests(&backend, ELICIT).await.as_text(), "{}");
}
