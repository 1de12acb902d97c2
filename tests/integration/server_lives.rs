//! The lives of stdio servers: their output, starts and ends, and the operators' view of them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::{assert_gone, backend};
use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{
    Connection, LegacySession, NEWEST_LEGACY, legacy_request, listen, modern_request,
    modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Gate, Reply, Task, Transport};

const TOKEN: &str = "0123456789abcdef-s3cret";

/// A configuration whose only server runs this shell script.
fn script(script: &str) -> Value {
    json!({ "mcpServers": { "only": { "command": "sh", "args": ["-c", script] } }, "x-limits": "processStop=1s" })
}

pub(crate) async fn get(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", path, headers, b"").await;
    let mut response = connection.response().await;
    (response.status, response.text().await)
}

pub(crate) async fn text_at(gateway: &Gateway, path: &str) -> String {
    get(gateway, path, &[]).await.1
}

pub(crate) async fn api(gateway: &Gateway, path: &str) -> Value {
    let (status, text) = get(gateway, path, &[]).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Waits until the only server in the overview satisfies `is_right`.
async fn server_when(gateway: &Gateway, is_right: impl Fn(&Value) -> bool) -> Value {
    within("the state of the server", async {
        loop {
            let server = api(gateway, "/api/overview").await["backends"][0].clone();
            if is_right(&server) {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

async fn call(gateway: &Gateway) -> Value {
    let body = modern_request("1", "tools/call", r#""name":"t""#, "");
    serde_json::from_str(&post_modern(gateway.mcp, &body).await.messages().await.1).unwrap()
}

#[tokio::test]
async fn failed_start_shows_operators_what_the_process_wrote_and_clients_nothing() {
    let said =
        "printf 'first\\nno such table: \\033[31musers\\n\\n' >&2; echo 'not a message'; exit 3";
    let gateway = Gateway::start(&script(said).to_string()).await;
    let server = server_when(&gateway, |server| !server["error"].is_null()).await;
    let error = server["error"].as_str().unwrap();
    for part in [
        "exit status: 3",
        "first | no such table: \\u001b[31musers",
        "not a message",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    let answer = call(&gateway).await.to_string();
    assert!(
        answer.contains("error") && !answer.contains("users") && !answer.contains("first"),
        "{answer}"
    );
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn process_that_never_answers_shows_operators_what_it_wrote() {
    let mut config = script("echo 'downloading the rest of the internet' >&2; exec sleep 1000");
    config["mcpServers"]["only"]["startTimeout"] = json!("300ms");
    let gateway = Gateway::start(&config.to_string()).await;
    let server = server_when(&gateway, |server| !server["error"].is_null()).await;
    assert!(
        server["error"]
            .as_str()
            .unwrap()
            .contains("downloading the rest"),
        "{server}"
    );
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn log_of_a_server_is_kept_within_its_bound_and_needs_the_token() {
    // The output is far more than Fanlight keeps and has an overlong line. Its last line shows that
    // everything was read.
    let said = "i=0; while [ $i -lt 20000 ]; do echo \"line $i\"; i=$((i+1)); done >&2
        head -c 100000 /dev/zero | tr '\\0' x >&2; printf '\\n\\033]0;title\\007 \\342\\200\\256 end\\n' >&2; exec sleep 1000";
    let mut config = script(said);
    config["admin"] = json!({ "token": TOKEN });
    config["x-limits"] = json!("processStop=1s,processLogKept=64KiB,processLog=64MiB");
    let gateway = Gateway::start(&config.to_string()).await;
    let path = "/api/servers/only/log";
    assert_eq!(get(&gateway, path, &[]).await.0, 401);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Authorization", bearer.as_str())];
    assert_eq!(
        get(&gateway, "/api/servers/other/log", &headers).await.0,
        404
    );
    let text = within("the last line", async {
        loop {
            let (status, text) = get(&gateway, path, &headers).await;
            assert_eq!(status, 200, "{text}");
            if text.contains(" end") {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let log: Value = serde_json::from_str(&text).unwrap();
    let lines = log["lines"].as_array().unwrap();
    let texts: Vec<&str> = lines
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    let bytes: usize = texts.iter().map(|text| text.len() + 64).sum();
    assert!((40 << 10..=64 << 10).contains(&bytes), "{bytes}");
    assert_eq!(
        log["droppedLines"].as_u64().unwrap() as usize + lines.len(),
        20_002
    );
    assert_eq!(
        texts.last().copied(),
        Some("\\u001b]0;title\\u0007 \\u202e end")
    );
    assert!(texts[texts.len() - 2].ends_with("(100000 bytes)"));
    assert!(lines.iter().all(|line| line["process"] == 1
        && line["stream"] == "stderr"
        && line["atMs"].is_number()));
    assert!(gateway.terminate().await.success());
}

/// A configuration with these entries and a short time-out for lists.
fn with(entries: &[String]) -> String {
    format!(
        r#"{{"mcpServers":{{{}}},"x-limits":"processStop=1s,list=5s"}}"#,
        entries.join(",")
    )
}

pub(crate) async fn ask(gateway: &Gateway, method: &str, params: &str) -> String {
    post_modern(gateway.mcp, &modern_request("1", method, params, ""))
        .await
        .messages()
        .await
        .1
}

#[tokio::test]
async fn unused_process_is_ended_and_its_lists_are_served_until_a_call_starts_it() {
    for era in [Era::Legacy, Era::Modern] {
        for is_alone in [true, false] {
            let (server, other) = (
                backend(era, Transport::Stdio).await,
                backend(Era::Modern, Transport::Http).await,
            );
            other.offers_tools(&["u"]);
            let mut entries = vec![server.entry_with("only", r#""idle":"200ms""#)];
            entries.extend((!is_alone).then(|| other.entry("other")));
            let gateway = Gateway::start(&with(&entries)).await;
            let tool = if is_alone {
                r#""name":"t""#
            } else {
                r#""name":"only__t""#
            };
            assert!(
                ask(&gateway, "tools/call", tool)
                    .await
                    .contains("\"result\"")
            );
            assert!(ask(&gateway, "tools/list", "").await.contains("\"t\"") == is_alone);
            server_when(&gateway, |server| server["state"] == "idle").await;
            let started = server.started();
            for pid in &started {
                assert_gone(*pid).await;
            }
            // Neither lists nor new clients need the process.
            let listed = ask(&gateway, "tools/list", "").await;
            assert!(listed.contains(tool.split('"').nth(3).unwrap()), "{listed}");
            assert!(!listed.contains("unreachable"), "{listed}");
            let session = LegacySession::open(gateway.mcp).await;
            let listed = session
                .post(&legacy_request("2", "tools/list", ""))
                .await
                .messages()
                .await
                .1;
            assert!(listed.contains(tool.split('"').nth(3).unwrap()), "{listed}");
            let unknown = ask(&gateway, "tools/call", r#""name":"nothing""#).await;
            assert!(unknown.contains("\"error\""), "{unknown}");
            assert_eq!(server.started(), started, "{era:?} {is_alone}");
            assert_eq!(get(&gateway, "/readyz", &[]).await.0, 200);
            assert!(
                get(&gateway, "/metrics", &[])
                    .await
                    .1
                    .contains("fanlight_backend_up{fanlight_backend_name=\"only\"} 1")
            );
            let answer = ask(&gateway, "tools/call", tool).await;
            assert!(
                answer.contains("\"result\""),
                "{era:?} {is_alone}: {answer}"
            );
            assert_eq!(server.received("tools/call").len(), 2);
            let server = server_when(&gateway, |_| true).await;
            assert_eq!(
                (&server["restarts"], &server["reconnects"]),
                (&json!(0), &json!(0)),
                "{server}"
            );
            assert!(gateway.terminate().await.success());
        }
    }
}

#[tokio::test]
async fn calls_while_a_process_is_ended_run_once_each() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    let gateway = Gateway::start(&with(&[server.entry_with("only", r#""idle":"10ms""#)])).await;
    for number in 0..60_u64 {
        let answer = ask(&gateway, "tools/call", r#""name":"t""#).await;
        assert!(answer.contains("\"result\""), "{number}: {answer}");
        // The pauses vary around the time at which the process is ended.
        tokio::time::sleep(Duration::from_millis(number % 30)).await;
    }
    assert_eq!(server.received("tools/call").len(), 60);
    assert!(server.started().len() > 1);
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn process_in_use_is_not_ended_as_unused() {
    let (server, other) = (
        backend(Era::Modern, Transport::Stdio).await,
        backend(Era::Modern, Transport::Stdio).await,
    );
    let gate = Gate::new();
    server.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)).gated(&gate),
    );
    let entries = [
        server.entry_with("used", r#""idle":"20ms""#),
        other.entry_with("other", r#""idle":"400ms""#),
    ];
    let gateway = Gateway::start(&with(&entries)).await;
    let call = async { ask(&gateway, "tools/call", r#""name":"used__t""#).await };
    let checked = async {
        gate.reached(1).await;
        within("an idle server", async {
            while api(&gateway, "/api/overview").await["backends"][1]["state"] != "idle" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert_eq!(server.started().len(), 1);
        assert_eq!(
            api(&gateway, "/api/overview").await["backends"][0]["state"],
            "ready"
        );
        gate.open();
    };
    let (answer, ()) = tokio::join!(call, checked);
    assert!(answer.contains("\"result\""), "{answer}");
    assert!(gateway.terminate().await.success());
}

/// Waits until the second server, which goes idle much later than the first, is idle; returns the
/// first one's state.
async fn state_when_the_second_is_idle(gateway: &Gateway) -> Value {
    within("an idle server", async {
        loop {
            let overview = api(gateway, "/api/overview").await;
            if overview["backends"][1]["state"] == "idle" {
                return overview["backends"][0]["state"].clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test]
async fn process_whose_resource_is_listened_to_is_not_ended_as_unused() {
    for era in [Era::Legacy, Era::Modern] {
        let (server, other) = (
            backend(era, Transport::Stdio).await,
            backend(Era::Modern, Transport::Stdio).await,
        );
        server.declares(r#"{"tools":{},"resources":{"subscribe":true}}"#);
        server.on(
            "resources/list",
            server.list("resources", r#"{"uri":"test://r","name":"r"}"#),
        );
        server.on("subscriptions/listen", Reply::listening());
        let entries = [
            server.entry_with("used", r#""idle":"20ms""#),
            other.entry_with("other", r#""idle":"400ms""#),
        ];
        let gateway = Gateway::start(&with(&entries)).await;
        let mut stream = listen(
            gateway.mcp,
            "9",
            r#"{"resourceSubscriptions":["test://r"]}"#,
        )
        .await;
        let first = stream.event().await.unwrap().unwrap();
        assert!(first.contains("test://r"), "{first}");
        assert!(
            ask(&gateway, "tools/call", r#""name":"other__t""#)
                .await
                .contains("\"result\"")
        );
        let state = state_when_the_second_is_idle(&gateway).await;
        assert_eq!(state, "ready", "{era:?}");
        // Without the listener, the server is idle.
        drop(stream);
        server_when(&gateway, |server| server["state"] == "idle").await;
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn restart_of_an_unused_process_announces_a_list_only_if_it_differs() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    server.declares(r#"{"tools":{"listChanged":true}}"#);
    server.on("subscriptions/listen", Reply::listening());
    let gateway = Gateway::start(&with(&[server.entry_with("only", r#""idle":"100ms""#)])).await;
    assert!(ask(&gateway, "tools/list", "").await.contains("\"t\""));
    let mut stream = listen(gateway.mcp, "9", r#"{"toolsListChanged":true}"#).await;
    let first = stream.event().await.unwrap().unwrap();
    assert!(first.contains("acknowledged"), "{first}");
    let cycle = async |answer: &str| {
        server_when(&gateway, |server| server["state"] == "idle").await;
        let lists = server.received("tools/list").len();
        assert!(
            ask(&gateway, "tools/call", r#""name":"t""#)
                .await
                .contains(answer)
        );
        // The gateway has compared the list.
        server.wait_for("tools/list", lists + 1).await;
    };
    cycle("\"result\"").await;
    cycle("\"result\"").await;
    server_when(&gateway, |server| server["state"] == "idle").await;
    server.offers_tools(&["t", "new"]);
    cycle("\"result\"").await;
    let changed = within("the change", stream.event()).await.unwrap().unwrap();
    assert!(
        changed.contains("notifications/tools/list_changed"),
        "{changed}"
    );
    assert!(ask(&gateway, "tools/list", "").await.contains("\"new\""));
    // The next message is the end, so there was no other change.
    let pid = gateway.terminate();
    let (rest, ended) = tokio::join!(stream.event(), pid);
    assert!(
        !rest
            .ok()
            .flatten()
            .unwrap_or_default()
            .contains("list_changed")
    );
    assert!(ended.success());
}

/// A server with a shared process whose tool `t` runs as a task.
async fn server_with_tasks(era: Era) -> Backend {
    let server = backend(era, Transport::Stdio).await;
    server.declares(match era {
        Era::Legacy => {
            r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#
        }
        Era::Modern => r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
    });
    let task = Task {
        id: "task-1",
        status: "working",
        ttl: 600_000,
        poll: 1000,
    };
    server.on("tools/call", Reply::result(task.created(era)));
    server.on("tasks/get", Reply::result(task.got(era, "")));
    server
}

#[tokio::test]
async fn process_with_an_open_task_is_not_ended_as_unused() {
    for era in [Era::Legacy, Era::Modern] {
        let (server, other) = (
            server_with_tasks(era).await,
            backend(Era::Modern, Transport::Stdio).await,
        );
        let entries = [
            server.entry_with("used", r#""idle":"20ms","session":"shared""#),
            other.entry_with("other", r#""idle":"500ms""#),
        ];
        let gateway = Gateway::start(&with(&entries)).await;
        let session = LegacySession::open(gateway.mcp).await;
        let ask_for = async |id: &str, method: &str, params: &str| match era {
            Era::Legacy => {
                session
                    .post(&legacy_request(id, method, params))
                    .await
                    .messages()
                    .await
                    .1
            }
            Era::Modern => {
                let knows = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
                let body = modern_request_with(knows, id, method, params, "");
                post_modern(gateway.mcp, &body).await.messages().await.1
            }
        };
        let params = match era {
            Era::Legacy => r#""name":"used__t","task":{"ttl":600000}"#,
            Era::Modern => r#""name":"used__t""#,
        };
        let made = ask_for("2", "tools/call", params).await;
        assert!(made.contains("task-1"), "{era:?}: {made}");
        assert!(
            ask(&gateway, "tools/call", r#""name":"other__t""#)
                .await
                .contains("\"result\"")
        );
        let state = state_when_the_second_is_idle(&gateway).await;
        assert_eq!(state, "ready", "{era:?}");
        let process = server.received("tools/call")[0].process;
        let got = ask_for("3", "tasks/get", r#""taskId":"task-1""#).await;
        assert!(got.contains("working"), "{era:?}: {got}");
        assert_eq!(
            server.received("tasks/get").last().unwrap().process,
            process,
            "{era:?}"
        );
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn list_without_announcements_is_compared_when_an_unused_process_is_started_again() {
    for era in [Era::Legacy, Era::Modern] {
        for is_alone in [true, false] {
            let (server, other) = (
                backend(era, Transport::Stdio).await,
                backend(Era::Modern, Transport::Http).await,
            );
            server.declares(r#"{"tools":{},"prompts":{}}"#);
            server.on("prompts/list", server.list("prompts", r#"{"name":"p"}"#));
            let mut entries = vec![server.entry_with("only", r#""idle":"300ms""#)];
            entries.extend((!is_alone).then(|| other.entry("other")));
            let gateway = Gateway::start(&with(&entries)).await;
            for method in ["tools/list", "prompts/list"] {
                assert!(ask(&gateway, method, "").await.contains("\"result\""));
            }
            let session = LegacySession::open(gateway.mcp).await;
            let mut of_session = session.stream(None).await;
            let mut stream = listen(
                gateway.mcp,
                "9",
                r#"{"toolsListChanged":true,"promptsListChanged":true}"#,
            )
            .await;
            assert!(
                stream
                    .event()
                    .await
                    .unwrap()
                    .unwrap()
                    .contains("acknowledged")
            );
            let tool = if is_alone {
                r#""name":"t""#
            } else {
                r#""name":"only__t""#
            };
            let cycle = async || {
                server_when(&gateway, |server| server["state"] == "idle").await;
                for pid in server.started() {
                    assert_gone(pid).await;
                }
                let lists = server.received("tools/list").len();
                assert!(
                    ask(&gateway, "tools/call", tool)
                        .await
                        .contains("\"result\"")
                );
                // No client requests the list.
                server.wait_for("tools/list", lists + 1).await;
            };
            cycle().await;
            server_when(&gateway, |server| server["state"] == "idle").await;
            for pid in server.started() {
                assert_gone(pid).await;
            }
            server.offers_tools(&["t", "new"]);
            cycle().await;
            for stream in [&mut stream, &mut of_session] {
                let changed = within("the change", stream.event()).await.unwrap().unwrap();
                assert!(
                    changed.contains("notifications/tools/list_changed"),
                    "{era:?} {is_alone}: {changed}"
                );
            }
            assert!(ask(&gateway, "tools/list", "").await.contains("new"));
            // The next message is the end, so nothing else has changed.
            let end = gateway.terminate();
            let (rest, of_session, ended) = tokio::join!(stream.event(), of_session.event(), end);
            for rest in [rest, of_session] {
                assert!(
                    !rest
                        .ok()
                        .flatten()
                        .unwrap_or_default()
                        .contains("list_changed")
                );
            }
            assert!(ended.success());
        }
    }
}

#[tokio::test]
async fn lazy_process_is_started_by_the_first_request() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    let gateway = Gateway::start(&with(&[server.entry_with("only", r#""start":"lazy""#)])).await;
    assert_eq!(server_when(&gateway, |_| true).await["state"], "idle");
    assert_eq!(get(&gateway, "/readyz", &[]).await.0, 200);
    assert!(server.started().is_empty());
    assert!(ask(&gateway, "tools/list", "").await.contains("\"t\""));
    assert_eq!(server.started().len(), 1);
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn process_that_cannot_be_started_is_given_up_until_a_later_call() {
    let folder = TempFile::folder();
    let server = backend(Era::Modern, Transport::Stdio).await;
    let (program, arguments) = server.command(&[]);
    let start = "echo x >> \"$F/starts\"; [ -e \"$F/good\" ] && exec \"$0\" \"$@\"; exit 1";
    let config = json!({
        "mcpServers": { "only": {
            "command": "sh", "args": ["-c", start, program, arguments[0]], "env": { "F": folder.path() },
        } },
        "x-limits": "startAttempts=3,reconnect=10ms,reconnectMax=20ms,failedRetry=300ms",
    });
    let gateway = Gateway::start(&config.to_string()).await;
    server_when(&gateway, |server| server["state"] == "failed").await;
    let starts = || {
        std::fs::read_to_string(folder.path().join("starts"))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(starts(), 3);
    // Calls fail at once, and none of them starts the server for some time.
    for _ in 0..5 {
        let answer = call(&gateway).await;
        assert_eq!(
            answer["error"]["data"]["mayHaveRun"],
            json!(false),
            "{answer}"
        );
    }
    assert!(starts() <= 5, "{}", starts());
    std::fs::write(folder.path().join("good"), "").unwrap();
    within("a result", async {
        while call(&gateway).await["result"].is_null() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(gateway.terminate().await.success());
}

const READ_ONLY: &str =
    r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;
const WRITING: &str =
    r#"{"name":"w","inputSchema":{"type":"object"},"annotations":{"destructiveHint":false}}"#;

/// The number of processes that a legacy server needs for two clients with these capabilities.
async fn processes_of_two_clients(server: &Backend, more: &str, capabilities: &str) -> usize {
    let gateway = Gateway::start(&with(&[server.entry_with("only", more)])).await;
    for _ in 0..2 {
        let session = LegacySession::open_with(gateway.mcp, NEWEST_LEGACY, capabilities).await;
        for id in ["2", "3"] {
            let answer = session
                .post(&legacy_request(id, "tools/call", r#""name":"t""#))
                .await
                .messages()
                .await
                .1;
            assert!(answer.contains("\"result\""), "{answer}");
        }
    }
    assert!(gateway.terminate().await.success());
    server.started().len()
}

#[tokio::test]
async fn sessions_share_a_process_only_if_the_server_shows_that_it_has_no_state() {
    for (capabilities, tools, more, client, count) in [
        (r#"{"tools":{}}"#, READ_ONLY.to_owned(), "", "{}", 1),
        (
            r#"{"tools":{}}"#,
            READ_ONLY.to_owned(),
            r#""session":"per-client""#,
            "{}",
            3,
        ),
        (
            r#"{"tools":{}}"#,
            READ_ONLY.to_owned(),
            "",
            r#"{"roots":{}}"#,
            3,
        ),
        (
            r#"{"tools":{}}"#,
            format!("{READ_ONLY},{WRITING}"),
            "",
            "{}",
            3,
        ),
        (
            r#"{"tools":{"listChanged":true}}"#,
            READ_ONLY.to_owned(),
            "",
            "{}",
            3,
        ),
        (
            r#"{"tools":{},"logging":{}}"#,
            READ_ONLY.to_owned(),
            "",
            "{}",
            3,
        ),
        (
            r#"{"tools":{}}"#,
            WRITING.to_owned(),
            r#""session":"shared""#,
            "{}",
            1,
        ),
    ] {
        let server = backend(Era::Legacy, Transport::Stdio).await;
        server.declares(capabilities);
        server.on("tools/list", server.list("tools", &tools));
        assert_eq!(
            processes_of_two_clients(&server, more, client).await,
            count,
            "{capabilities} {tools} {more} {client}"
        );
    }
}

#[tokio::test]
async fn check_says_how_sessions_are_served_and_why() {
    for (tools, said) in [
        (
            READ_ONLY,
            "only: clients that cannot be asked share a process",
        ),
        (
            WRITING,
            "only: each client session has a process of its own: its tool \"w\" does not say that it is read-only; if it never asks a client and keeps nothing for one, `session: shared` saves processes",
        ),
    ] {
        let server = backend(Era::Legacy, Transport::Stdio).await;
        server.declares(r#"{"tools":{}}"#);
        server.on("tools/list", server.list("tools", tools));
        let file = TempFile::new("yaml", &with(&[server.entry("only")]));
        let output = within(
            "check",
            fanlight()
                .arg("check")
                .arg("--config")
                .arg(file.path())
                .output(),
        )
        .await
        .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(said), "{text}");
    }
}
