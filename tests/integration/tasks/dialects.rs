//! Tasks in mixed dialects: requested tasks (2025-11-25) at a server with the extension, the
//! extension at a server of 2025-11-25, and clients without tasks at both; with a server request in
//! the middle.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{DISCOVERED, INITIALIZED, NOT_FOUND, ask, ask_modern, extended, requested, task};
use crate::clients::Client;
use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};
use fanlight_tests::slicer::member;

const PEERS: [Transport; 2] = [Transport::Http, Transport::Stdio];
const ROOTS: &str = r#"{"roots":[{"uri":"file:\/\/\/r"}],"y":-0}"#;
const RESULT: &str = r#"{"content":[],"n":1.0,"s":"\u0041"}"#;
/// The number of polls before a task's state changes.
const POLLS: usize = 12;

/// Adds the shortest permitted poll intervals.
fn hurried(members: &str) -> String {
    format!(r#"{members},"pollInterval":1,"pollIntervalMs":1"#)
}

/// A modern server whose tool `t` becomes the task `slow`: it works, requires the roots, works
/// again, and ends with [`RESULT`].
async fn modern_server(transport: Transport) -> Backend {
    let server = Backend::start(Era::Modern, transport).await;
    server.on("server/discover", Reply::result(DISCOVERED));
    server.offers_tools(&["t"]);
    let made = format!(
        r#"{{"resultType":"task",{}}}"#,
        hurried(&extended("slow", "working"))
    );
    server.on("tools/call", Reply::result(made));
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        server.on(method, Reply::error(NOT_FOUND));
    }
    let answered = std::sync::Arc::new(AtomicUsize::new(0));
    let (polls, answered_by_client) = (AtomicUsize::new(0), std::sync::Arc::clone(&answered));
    let state = move |_: &Received| {
        let poll = polls.fetch_add(1, Ordering::Relaxed);
        let (status, more) = match answered_by_client.load(Ordering::Relaxed) {
            0 if poll < POLLS => ("working", String::new()),
            0 => (
                "input_required",
                r#","inputRequests":{"k\u0031":{"method":"roots/list"}}"#.to_owned(),
            ),
            _ => ("completed", format!(r#","result":{RESULT}"#)),
        };
        format!(
            r#"{{"resultType":"complete",{}{more}}}"#,
            hurried(&extended("slow", status))
        )
    };
    server.on_target("tasks/get", "slow", Reply::compute(state));
    let update = move |_: &Received| {
        answered.fetch_add(1, Ordering::Relaxed);
        r#"{"resultType":"complete"}"#.to_owned()
    };
    server.on_target("tasks/update", "slow", Reply::compute(update));
    server
}

/// A server of 2025-11-25 with the task `slow`, which sends its server request during
/// `tasks/result`.
async fn legacy_server(transport: Transport) -> Backend {
    let server = Backend::start(Era::Legacy, transport).await;
    server.on("initialize", Reply::result(INITIALIZED));
    let tool =
        r#"{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}"#;
    server.on("tools/list", server.list("tools", tool));
    let made = format!(
        r#"{{"task":{{{}}}}}"#,
        hurried(&requested("slow", "working"))
    );
    server.on("tools/call", Reply::result(made));
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        server.on(method, Reply::error(NOT_FOUND));
    }
    let answered = std::sync::Arc::new(AtomicUsize::new(0));
    let (polls, answered_by_client) = (AtomicUsize::new(0), std::sync::Arc::clone(&answered));
    let state = move |_: &Received| {
        let poll = polls.fetch_add(1, Ordering::Relaxed);
        let status = match answered_by_client.load(Ordering::Relaxed) {
            0 if poll < POLLS => "working",
            0 => "input_required",
            _ => "completed",
        };
        format!("{{{}}}", hurried(&requested("slow", status)))
    };
    server.on_target("tasks/get", "slow", Reply::compute(state));
    let server_request = r#"{"jsonrpc":"2.0","id":"q-{call}","method":"roots/list","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"slow"}}}}"#;
    let conclude = move |_: &Received, answers: &[std::sync::Arc<Received>]| {
        assert_eq!(answers[0].member("result"), Some(ROOTS));
        answered.fetch_add(1, Ordering::Relaxed);
        RESULT.to_owned()
    };
    server.on_target(
        "tasks/result",
        "slow",
        Reply::conclude(conclude).asking(&[server_request]),
    );
    server
}

/// The configuration of the server alone, and together with another one that has no tasks.
async fn configs(server: &Backend) -> Vec<(String, &'static str, Backend)> {
    let other = || async {
        let other = Backend::start(Era::Legacy, Transport::Http).await;
        other.offers_tools(&["other"]);
        other
    };
    let (one, two) = (other().await, other().await);
    vec![
        (config(&[server.entry("a")]), "t", one),
        (config(&[two.entry("b"), server.entry("a")]), "a__t", two),
    ]
}

#[tokio::test]
async fn requested_task_of_an_extension_server_survives_a_restart() {
    for transport in PEERS {
        for several in [0, 1] {
            let server = modern_server(transport).await;
            let (config, tool, _other) = configs(&server).await.remove(several);
            let gateway = Gateway::start(&config).await;
            let session =
                LegacySession::open_with(gateway.mcp, "2025-11-25", r#"{"roots":{}}"#).await;
            let call =
                format!(r#""name":"{tool}","arguments":{{"n":1.0}},"task":{{"ttl":600000}}"#);
            let made = ask(&session, "tools/call", &call).await;
            assert_eq!(member(&made, "task.taskId"), Some(r#""slow""#), "{made}");
            for _ in 0..3 {
                let state = ask(&session, "tasks/get", &task("slow")).await;
                assert_eq!(member(&state, "status"), Some(r#""working""#));
                assert_eq!(
                    (member(&state, "ttl"), member(&state, "x")),
                    (Some("600000"), Some("1E400"))
                );
            }
            assert!(gateway.terminate().await.success());
            let gateway = Gateway::start(&config).await;
            let session =
                LegacySession::open_with(gateway.mcp, "2025-11-25", r#"{"roots":{}}"#).await;
            let request = legacy_request("9", "tasks/result", &task("slow"));
            let mut stream = session.post(&request).await;
            let relayed = stream.event().await.unwrap().expect("a server request");
            assert_eq!(
                member(&relayed, "method"),
                Some(r#""roots/list""#),
                "{relayed}"
            );
            let id = member(&relayed, "id").unwrap();
            session
                .post(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{ROOTS}}}"#
                ))
                .await;
            let (_, answer) = stream.messages().await;
            assert!(
                answer.contains(r#""content":[],"n":1.0,"s":"\u0041""#),
                "{answer}"
            );
            let update = &server.received("tasks/update")[0];
            assert_eq!(
                update.member("params.inputResponses"),
                Some(format!(r#"{{"k\u0031":{ROOTS}}}"#).as_str())
            );
            let listed = ask(&session, "tasks/list", "").await;
            assert!(
                listed.contains(r#""taskId":"slow""#) && listed.contains("completed"),
                "{listed}"
            );
            let unknown = ask(&session, "tasks/get", &task("unknown")).await;
            assert_eq!(member(&unknown, "code"), Some("-32602"), "{unknown}");
            assert_eq!(server.received("tools/call").len(), 1);
        }
    }
}

#[tokio::test]
async fn task_of_2025_11_25_survives_a_restart_for_an_extension_client() {
    for transport in PEERS {
        for several in [0, 1] {
            let server = legacy_server(transport).await;
            let (config, tool, _other) = configs(&server).await.remove(several);
            let gateway = Gateway::start(&config).await;
            let made = ask_modern(
                &gateway,
                "tools/call",
                &format!(r#""name":"{tool}","arguments":{{}}"#),
            )
            .await;
            assert_eq!(member(&made, "resultType"), Some(r#""task""#), "{made}");
            let state = ask_modern(&gateway, "tasks/get", &task("slow")).await;
            assert_eq!(
                (member(&state, "status"), member(&state, "ttlMs")),
                (Some(r#""working""#), Some("600000"))
            );
            assert!(gateway.terminate().await.success());
            let gateway = Gateway::start(&config).await;
            let unknown = ask_modern(&gateway, "tasks/get", &task("unknown")).await;
            assert_eq!(member(&unknown, "code"), Some("-32602"), "{unknown}");
            let mut key = None;
            let mut last = String::new();
            for _ in 0..20 * POLLS {
                last = poll(&gateway).await;
                if let Some(inputs) = member(&last, "inputRequests").filter(|_| key.is_none()) {
                    let inputs = fanlight_tests::slicer::members(inputs).unwrap();
                    let Some((name, input)) = inputs.first() else {
                        continue;
                    };
                    assert_eq!(member(input, "method"), Some(r#""roots/list""#));
                    let update =
                        format!(r#"{},"inputResponses":{{"{name}":{ROOTS}}}"#, task("slow"));
                    let done = ask_roots(&gateway, "tasks/update", &update).await;
                    assert_eq!(member(&done, "resultType"), Some(r#""complete""#), "{done}");
                    key = Some((*name).to_owned());
                    // The pending `tasks/result` has ended; from now on the server's state counts.
                    server.wait_for("", 1).await;
                    server.on_target("tasks/result", "slow", Reply::result(RESULT));
                    let state = format!("{{{}}}", requested("slow", "completed"));
                    server.on_target("tasks/get", "slow", Reply::result(state));
                }
                if member(&last, "status") == Some(r#""completed""#) {
                    break;
                }
            }
            assert_eq!(member(&last, "result"), Some(RESULT), "{last}");
            assert_eq!(server.received("tools/call").len(), 1);
        }
    }
}

async fn poll(gateway: &Gateway) -> String {
    ask_roots(gateway, "tasks/get", &task("slow")).await
}

/// Sends a request as a client with roots and the extension.
async fn ask_roots(gateway: &Gateway, method: &str, params: &str) -> String {
    let knows = r#"{"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let request = crate::raw_client::modern_request_with(knows, "1", method, params, "");
    let (_, answer) = crate::raw_client::post_modern(gateway.mcp, &request)
        .await
        .messages()
        .await;
    let body = member(&answer, "result").or_else(|| member(&answer, "error"));
    body.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// The gateway awaits the task, and the input is requested during the call.
#[tokio::test]
async fn client_without_tasks_gets_the_final_result() {
    for (client, front) in [
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Stdio),
    ] {
        // A modern server refuses a modern client: see below.
        for server_era in [Era::Legacy, Era::Modern]
            .into_iter()
            .filter(|server| (client, *server) != (Era::Modern, Era::Modern))
        {
            for several in [0, 1] {
                let server = match server_era {
                    Era::Legacy => legacy_server(Transport::Stdio).await,
                    Era::Modern => needing_the_extension().await,
                };
                let (config, tool, _other) = configs(&server).await.remove(several);
                let mut client =
                    Client::start_with(r#"{"roots":{}}"#, &config, client, front).await;
                let mut requests = 0;
                let params = format!(r#""name":"{tool}","arguments":{{}}"#);
                let exchange = client
                    .converse("1", "tools/call", &params, |method, _| {
                        assert_eq!(method, "roots/list");
                        requests += 1;
                        ROOTS.to_owned()
                    })
                    .await;
                assert_eq!(exchange.member("result.n"), "1.0", "{}", exchange.answer);
                assert_eq!(requests, 1, "{front:?} {server_era:?}");
            }
        }
    }
}

/// Between a modern client and a modern server, the server states its requirement and the client
/// must declare it.
#[tokio::test]
async fn modern_client_without_tasks_gets_the_refusal_of_a_modern_server() {
    for several in [0, 1] {
        let server = needing_the_extension().await;
        let (config, tool, _other) = configs(&server).await.remove(several);
        let mut client =
            Client::start_with(r#"{"roots":{}}"#, &config, Era::Modern, Transport::Http).await;
        let exchange = client
            .request(
                "1",
                "tools/call",
                &format!(r#""name":"{tool}","arguments":{{}}"#),
                "",
            )
            .await;
        assert_eq!(
            exchange.member("error.code"),
            "-32021",
            "{}",
            exchange.answer
        );
        let required = exchange.member("error.data.requiredCapabilities");
        assert_eq!(
            required,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#
        );
        assert_eq!(
            server.received("tools/call").len(),
            1,
            "called once, as the client is"
        );
    }
}

/// A server that responds with -32021 to clients without tasks.
async fn needing_the_extension() -> Backend {
    let server = modern_server(Transport::Http).await;
    let missing = r#"{"code":-32021,"message":"tasks only","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}"#;
    server.once("tools/call", Reply::error(missing));
    server
}
