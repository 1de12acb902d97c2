//! Tasks that one replica has heard of, asked about at another.

use fanlight_testkit::slicer;

use crate::group::{Group, send};
use crate::harness::Gateway;
use crate::raw_client::modern_request_with;
use crate::scripted::{Backend, Era, Reply, Task, Transport};
use crate::signing_in::{ANN, BOB};
use crate::valkey::Valkey;

const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"ttlMs":0,"cacheScope":"public"}"#;
const TASK: Task<'_> = Task { id: "t-1", status: "working", ttl: 60_000, poll: 1000 };

/// A modern server with tasks and one tool, which knows the task.
pub(crate) async fn backend() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.on("server/discover", Reply::result(DISCOVERED));
    backend.offers_tools(&["t"]);
    backend.on("tools/call", Reply::result(TASK.created(Era::Modern)));
    backend.on("tasks/get", Reply::result(TASK.got(Era::Modern, "")));
    backend
}

/// The answer to a request of a client with tasks.
pub(crate) async fn ask(gateway: &Gateway, method: &str, params: &str, key: &str) -> String {
    let fields = [("Authorization", format!("Bearer {key}"))];
    let tasks = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    send(gateway, &modern_request_with(tasks, "1", method, params, ""), &fields).await.text().await
}

#[tokio::test]
async fn task_is_asked_of_its_own_server_at_every_replica_and_belongs_to_its_client() {
    let (valkey, first, second) = (Valkey::start().await, backend().await, backend().await);
    let entries = [first.entry("first"), second.entry("second")].join(",");
    let group = Group::new(entries, "");
    let (mut one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let made = ask(&one, "tools/call", r#""name":"second__t","arguments":{}"#, ANN).await;
    assert!(made.contains("t-1"), "{made}");
    one.kill().await;
    let asked = ask(&other, "tasks/get", r#""taskId":"t-1""#, ANN).await;
    assert!(slicer::member_at(&asked, &["result", "taskId"]).is_some(), "{asked}");
    assert!(first.received("tasks/get").is_empty() && !second.received("tasks/get").is_empty());
    // To another client it is a task of which nothing is known: all servers are asked.
    ask(&other, "tasks/get", r#""taskId":"t-1""#, BOB).await;
    assert!(!first.received("tasks/get").is_empty());
}
