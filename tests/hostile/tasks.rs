//! Tasks of other clients, and requests that name many tasks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fanlight_testkit::slicer::member;

use crate::harness::Gateway;
use crate::peers::{NOISY, request_from, session_from};
use crate::raw_client::{
    LegacySession, StdioClient, legacy_request, modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const TASKS: &str = r#""tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;
const STATE: &str = r#""taskId":"secret-1","status":"working","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":600000"#;
const EXTENSION: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// A legacy server that shares its tasks among all sessions, like servers with one store.
async fn legacy_server() -> Backend {
    let server = Backend::start(Era::Legacy, Transport::Http).await;
    server.declares(&format!(r#"{{"tools":{{}},{TASKS}}}"#));
    server.offers_tools(&["t"]);
    server.on(
        "tools/call",
        Reply::result(format!(r#"{{"task":{{{STATE}}}}}"#)),
    );
    server.on("tasks/get", Reply::result(format!("{{{STATE}}}")));
    server.on("tasks/cancel", Reply::result(format!("{{{STATE}}}")));
    server.on("tasks/result", Reply::result(r#"{"content":[]}"#));
    server.on(
        "tasks/list",
        Reply::result(format!(r#"{{"tasks":[{{{STATE}}}]}}"#)),
    );
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_address_do_not_make_those_of_others_forgotten() {
    for several in [false, true] {
        let (server, other) = (
            legacy_server().await,
            Backend::start(Era::Legacy, Transport::Http).await,
        );
        let made = AtomicUsize::new(0);
        server.on(
            "tools/call",
            Reply::compute(move |_| {
                let id = made.fetch_add(1, Ordering::Relaxed) + 1;
                format!(
                    r#"{{"task":{{{}}}}}"#,
                    STATE.replace("secret-1", &format!("secret-{id}"))
                )
            }),
        );
        let mut entries = vec![server.entry("a")];
        entries.extend(several.then(|| other.entry("b")));
        let text = format!(
            r#"{{"mcpServers":{{{}}},"x-limits":"tasks=8"}}"#,
            entries.join(",")
        );
        let gateway = Gateway::start(&text).await;
        let tool = if several { "a__t" } else { "t" };
        let call = legacy_request(
            "1",
            "tools/call",
            &format!(r#""name":"{tool}","task":{{}}"#),
        );
        let ann = LegacySession::open(gateway.mcp).await;
        let own = ann.post(&call).await.messages().await.1;
        assert_eq!(
            member(&own, "result.task.taskId"),
            Some(r#""secret-1""#),
            "{own}"
        );
        let eve = session_from(NOISY, gateway.mcp).await;
        for _ in 0..40 {
            let made = request_from(NOISY, gateway.mcp, "POST /mcp", &eve, &call).await;
            assert!(made.contains("secret-"), "{made}");
        }
        // If the gateway forgot the task's owner, others could read it.
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let request = legacy_request("1", method, r#""taskId":"secret-1""#);
            let answer = request_from(NOISY, gateway.mcp, "POST /mcp", &eve, &request).await;
            assert!(answer.contains("-32602"), "{method}: {answer}");
            assert!(server.received(method).is_empty(), "{method}");
        }
        let own = ann
            .post(&legacy_request("1", "tasks/get", r#""taskId":"secret-1""#))
            .await
            .messages()
            .await
            .1;
        assert_eq!(member(&own, "result.status"), Some(r#""working""#), "{own}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_another_session_can_be_neither_read_nor_cancelled() {
    for several in [false, true] {
        let (server, other) = (
            legacy_server().await,
            Backend::start(Era::Legacy, Transport::Http).await,
        );
        let mut entries = vec![server.entry("a")];
        entries.extend(several.then(|| other.entry("b")));
        let gateway = Gateway::start(&config(&entries)).await;
        let (ann, eve) = (
            LegacySession::open(gateway.mcp).await,
            LegacySession::open(gateway.mcp).await,
        );
        let tool = if several { "a__t" } else { "t" };
        let call = legacy_request(
            "1",
            "tools/call",
            &format!(r#""name":"{tool}","task":{{}}"#),
        );
        let made = ann.post(&call).await.messages().await.1;
        assert_eq!(
            member(&made, "result.task.taskId"),
            Some(r#""secret-1""#),
            "{made}"
        );
        for id in ["secret-1", r"secret-\u0031", r"secret-1\ud800"] {
            for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
                let before = server.received(method).len();
                let request = legacy_request("1", method, &format!(r#""taskId":"{id}""#));
                let answer = eve.post(&request).await.messages().await.1;
                assert_eq!(
                    member(&answer, "error.code"),
                    Some("-32602"),
                    "{method} {id}: {answer}"
                );
                assert_eq!(server.received(method).len(), before, "{method} {id}");
            }
        }
        let listed = eve
            .post(&legacy_request("1", "tasks/list", ""))
            .await
            .messages()
            .await
            .1;
        assert_eq!(member(&listed, "result.tasks"), Some("[]"), "{listed}");
        // A client without a session counts as another client.
        let request =
            modern_request_with(EXTENSION, "1", "tasks/get", r#""taskId":"secret-1""#, "");
        let answer = post_modern(gateway.mcp, &request).await.messages().await.1;
        assert_eq!(member(&answer, "error.code"), Some("-32602"), "{answer}");
        // Its own client still has the task.
        let own = ann
            .post(&legacy_request("1", "tasks/get", r#""taskId":"secret-1""#))
            .await
            .messages()
            .await
            .1;
        assert_eq!(member(&own, "result.status"), Some(r#""working""#), "{own}");
        let own = ann
            .post(&legacy_request("1", "tasks/list", ""))
            .await
            .messages()
            .await
            .1;
        assert!(own.contains("secret-1"), "{own}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_task_and_a_foreign_one_are_refused_alike() {
    let (server, other) = (
        legacy_server().await,
        Backend::start(Era::Legacy, Transport::Http).await,
    );
    let gateway = Gateway::start(&config(&[server.entry("a"), other.entry("b")])).await;
    let (ann, eve) = (
        LegacySession::open(gateway.mcp).await,
        LegacySession::open(gateway.mcp).await,
    );
    ann.post(&legacy_request(
        "1",
        "tools/call",
        r#""name":"a__t","task":{}"#,
    ))
    .await
    .messages()
    .await;
    server.on(
        "tasks/get",
        Reply::error(r#"{"code":-32602,"message":"no such task"}"#),
    );
    let ask = async |id: &str| {
        eve.post(&legacy_request(
            "1",
            "tasks/get",
            &format!(r#""taskId":"{id}""#),
        ))
        .await
        .messages()
        .await
        .1
    };
    assert_eq!(ask("secret-1").await, ask("secret-2").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_to_invented_tasks_costs_few_requests() {
    let discovered = r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let mut servers = Vec::new();
    for _ in 0..2 {
        let server = Backend::start(Era::Modern, Transport::Http).await;
        server.declares(discovered);
        server.offers_tools(&["t"]);
        server.on(
            "tasks/get",
            Reply::error(r#"{"code":-32602,"message":"no such task"}"#),
        );
        server.on("subscriptions/listen", Reply::listening());
        servers.push(server);
    }
    let gateway = Gateway::start(&config(&[servers[0].entry("a"), servers[1].entry("b")])).await;
    let began = Instant::now();
    let ids: Vec<String> = (0..2000)
        .map(|number| format!(r#""invented-{number}""#))
        .collect();
    let params = format!(r#""notifications":{{"taskIds":[{}]}}"#, ids.join(","));
    let request = modern_request_with(EXTENSION, "1", "subscriptions/listen", &params, "");
    let mut stream = post_modern(gateway.mcp, &request).await;
    let opened = stream.event().await.unwrap().expect("an acknowledgement");
    assert!(
        !opened.contains("invented"),
        "{}",
        &opened[..200.min(opened.len())]
    );
    let asked: usize = servers
        .iter()
        .map(|server| server.received("tasks/get").len())
        .sum();
    assert!(asked <= 32, "{asked} requests");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_a_stdio_client_stays_its_own() {
    let server = legacy_server().await;
    let mut gateway = Gateway::stdio(&config(&[server.entry("a")]));
    let mut client = StdioClient::new(&mut gateway);
    client.initialize("2025-11-25").await;
    client
        .call(&legacy_request(
            "1",
            "tools/call",
            r#""name":"t","task":{}"#,
        ))
        .await;
    let (_, own) = client
        .call(&legacy_request("2", "tasks/get", r#""taskId":"secret-1""#))
        .await;
    assert_eq!(member(&own, "result.status"), Some(r#""working""#), "{own}");
}
