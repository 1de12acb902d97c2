//! Tasks of several servers in the client's dialect: their owners, also after a restart of the
//! gateway, and the merged list.

mod dialects;
mod offered;
mod progress;

use fanlight_tests::slicer::{elements, member, plain_string};

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request, modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"s","version":"1"}}"#;
const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"ttlMs":0,"cacheScope":"private"}"#;
const NOT_FOUND: &str = r#"{"code":-32602,"message":"not here"}"#;
const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Stdio];

/// The members of a task of 2025-11-25.
fn requested(id: &str, status: &str) -> String {
    format!(
        r#""taskId":"{id}","status":"{status}","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":600000,"x":1E400"#
    )
}

/// The members of a task of the extension.
fn extended(id: &str, status: &str) -> String {
    format!(
        r#""taskId":"{id}","status":"{status}","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttlMs":600000,"x":1E400"#
    )
}

/// A server whose tool `t` runs as the task `id` for ten minutes.
async fn legacy_server(id: &str, transport: Transport) -> Backend {
    let server = Backend::start(Era::Legacy, transport).await;
    server.on("initialize", Reply::result(INITIALIZED));
    server.offers_tools(&["t"]);
    let working = requested(id, "working");
    server.on(
        "tools/call",
        Reply::result(format!(r#"{{"task":{{ {working} }}}}"#)),
    );
    server.on(
        "tasks/list",
        Reply::result(format!(r#"{{"tasks":[{{ {working} }}]}}"#)),
    );
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        server.on(method, Reply::error(NOT_FOUND));
    }
    server.on_target("tasks/get", id, Reply::result(format!("{{ {working} }}")));
    let related = format!(r#"{{"io.modelcontextprotocol/related-task":{{ "taskId":"{id}" }}}}"#);
    server.on_target(
        "tasks/result",
        id,
        Reply::result(format!(r#"{{"content":[],"_meta":{related}}}"#)),
    );
    server.on_target(
        "tasks/cancel",
        id,
        Reply::result(format!("{{ {} }}", requested(id, "cancelled"))),
    );
    server
}

async fn modern_server(id: &str, transport: Transport) -> Backend {
    let server = Backend::start(Era::Modern, transport).await;
    server.on("server/discover", Reply::result(DISCOVERED));
    server.offers_tools(&["t"]);
    server.on(
        "tools/call",
        Reply::result(format!(
            r#"{{"resultType":"task",{}}}"#,
            extended(id, "working")
        )),
    );
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        server.on(method, Reply::error(NOT_FOUND));
        server.on_target(method, id, Reply::result(r#"{"resultType":"complete"}"#));
    }
    let get = format!(r#"{{"resultType":"complete",{}}}"#, extended(id, "working"));
    server.on_target("tasks/get", id, Reply::result(get));
    server
}

/// The raw result or error of a request in a session.
async fn ask(session: &LegacySession, method: &str, params: &str) -> String {
    let (_, answer) = session
        .post(&legacy_request("1", method, params))
        .await
        .messages()
        .await;
    let body = member(&answer, "result").or_else(|| member(&answer, "error"));
    body.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// The raw result or error of a request of a modern client with tasks.
async fn ask_modern(gateway: &Gateway, method: &str, params: &str) -> String {
    let request = modern_request("1", method, params, "");
    let knows = r#"clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let request = request.replace(r#"clientCapabilities":{}"#, knows);
    let (_, answer) = post_modern(gateway.mcp, &request).await.messages().await;
    let body = member(&answer, "result").or_else(|| member(&answer, "error"));
    body.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn task(id: &str) -> String {
    format!(r#""taskId":"{id}""#)
}

#[tokio::test]
async fn task_of_a_legacy_server_survives_a_restart_of_the_gateway() {
    for transport in TRANSPORTS {
        let (a, b) = (
            legacy_server("task-a", transport).await,
            legacy_server("task-b", transport).await,
        );
        let config = config(&[a.entry("a"), b.entry("b")]);
        let gateway = Gateway::start(&config).await;
        let session = LegacySession::open(gateway.mcp).await;
        let expected = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;
        assert_eq!(
            member(&session.initialize_result, "capabilities.tasks"),
            Some(expected)
        );
        let made = ask(
            &session,
            "tools/call",
            r#""name":"b__t","task":{"ttl":600000}"#,
        )
        .await;
        assert_eq!(
            made,
            format!(r#"{{"task":{{ {} }}}}"#, requested("task-b", "working"))
        );
        assert_eq!(
            b.received("tools/call")[0].member("params.task"),
            Some(r#"{"ttl":600000}"#)
        );
        let working = format!("{{ {} }}", requested("task-b", "working"));
        assert_eq!(ask(&session, "tasks/get", &task("task-b")).await, working);
        assert!(
            a.received("tasks/get").is_empty(),
            "its owner is known from when it was made"
        );
        assert!(gateway.terminate().await.success());

        let gateway = Gateway::start(&config).await;
        let session = LegacySession::open(gateway.mcp).await;
        assert_eq!(ask(&session, "tasks/get", &task("task-b")).await, working);
        assert_eq!(a.received("tasks/get").len(), 1, "the owner was unknown");
        // Ten minutes pass.
        b.on_target(
            "tasks/get",
            "task-b",
            Reply::result(format!("{{ {} }}", requested("task-b", "completed"))),
        );
        assert!(
            ask(&session, "tasks/get", &task("task-b"))
                .await
                .contains("completed")
        );
        let result = ask(&session, "tasks/result", &task("task-b")).await;
        let related = r#"{"io.modelcontextprotocol/related-task":{ "taskId":"task-b" }}"#;
        assert_eq!(result, format!(r#"{{"content":[],"_meta":{related}}}"#));
        let cancelled = ask(&session, "tasks/cancel", &task("task-a")).await;
        assert_eq!(
            cancelled,
            format!("{{ {} }}", requested("task-a", "cancelled"))
        );
        assert_eq!(
            (
                a.received("tasks/result").len(),
                b.received("tasks/cancel").len()
            ),
            (0, 0)
        );
        let unknown = ask(&session, "tasks/result", &task("task-c")).await;
        assert_eq!(
            unknown,
            r#"{"code":-32602,"message":"Failed to retrieve task: Task not found"}"#
        );
    }
}

#[tokio::test]
async fn task_of_a_modern_server_survives_a_restart_of_the_gateway() {
    for transport in TRANSPORTS {
        let (a, b) = (
            modern_server("task-a", transport).await,
            modern_server("task-b", transport).await,
        );
        let config = config(&[a.entry("a"), b.entry("b")]);
        let gateway = Gateway::start(&config).await;
        let made = ask_modern(&gateway, "tools/call", r#""name":"b__t""#).await;
        assert_eq!(
            made,
            format!(
                r#"{{"resultType":"task",{}}}"#,
                extended("task-b", "working")
            )
        );
        let working = format!(
            r#"{{"resultType":"complete",{}}}"#,
            extended("task-b", "working")
        );
        assert_eq!(
            ask_modern(&gateway, "tasks/get", &task("task-b")).await,
            working
        );
        assert!(a.received("tasks/get").is_empty());
        if transport == Transport::Http {
            assert_eq!(
                b.received("tasks/get")[0].header("mcp-name"),
                Some("task-b")
            );
        }
        assert!(gateway.terminate().await.success());

        let gateway = Gateway::start(&config).await;
        let update = format!(
            r#"{},"inputResponses":{{"\u0061":{{"action":"decline","y":1.0}}}}"#,
            task("task-b")
        );
        assert_eq!(
            ask_modern(&gateway, "tasks/update", &update).await,
            r#"{"resultType":"complete"}"#
        );
        let responses = r#"{"\u0061":{"action":"decline","y":1.0}}"#;
        assert_eq!(
            b.received("tasks/update")[0].member("params.inputResponses"),
            Some(responses)
        );
        assert_eq!(
            (
                a.received("tasks/get").len(),
                a.received("tasks/update").len()
            ),
            (1, 0)
        );
        assert_eq!(
            ask_modern(&gateway, "tasks/get", &task("task-b")).await,
            working
        );
        assert_eq!(
            ask_modern(&gateway, "tasks/cancel", &task("task-b")).await,
            r#"{"resultType":"complete"}"#
        );
        assert_eq!(a.received("tasks/get").len(), 1, "now it is known");
    }
}

#[tokio::test]
async fn task_list_merges_several_servers() {
    let (a, b) = (
        legacy_server("task-a", Transport::Http).await,
        legacy_server("task-b", Transport::Stdio).await,
    );
    let first = format!(
        r#"{{"tasks":[{{ {} }}],"nextCursor":"\u0061"}}"#,
        requested("task-0", "working")
    );
    a.once("tasks/list", Reply::result(first));
    let gateway = Gateway::start(&config(&[a.entry("a"), b.entry("b")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    let page = ask(&session, "tasks/list", "").await;
    assert_eq!(
        member(&page, "tasks"),
        Some(&*format!("[{{ {} }}]", requested("task-0", "working")))
    );
    let cursor = member(&page, "nextCursor").and_then(plain_string).unwrap();
    let rest = ask(&session, "tasks/list", &format!(r#""cursor":"{cursor}""#)).await;
    let ids: Vec<_> = elements(member(&rest, "tasks").unwrap())
        .unwrap()
        .iter()
        .map(|task| member(task, "taskId").unwrap())
        .collect();
    assert_eq!(
        (ids, member(&rest, "nextCursor")),
        (vec![r#""task-a""#, r#""task-b""#], None)
    );
    assert_eq!(
        a.received("tasks/list")[1].member("params.cursor"),
        Some(r#""\u0061""#)
    );
}
