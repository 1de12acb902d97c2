//! Successful requests to child processes, notifications, and cancellation.

use fanlight_backend::EraChoice;
use fanlight_canonical::BackendClient;
use fanlight_protocol::meta::LogLevel;
use fanlight_testkit::scripted::{Fault, Gate, Reply};

use crate::support::child::{Child, exists};
use crate::support::log::Log;
use crate::support::{PATIENCE, ask, call, listening, revision, send, settings, start};

const NO_SUCH_METHOD: &str = r#"{"code":-32601,"message":"no such method"}"#;

#[tokio::test]
async fn both_eras_are_found() {
    for (child, expected) in [
        (Child::legacy().await, "2025-11-25"),
        (Child::modern().await, "2026-07-28"),
    ] {
        let backend = start(settings(child.transport()));
        assert_eq!(revision(&backend).await, expected);
        assert_eq!(child.started().len(), 1);
        backend.stop().await;
        assert!(!exists(child.started()[0]));
    }
}

#[tokio::test]
async fn server_that_exits_on_the_probe_is_restarted_as_legacy() {
    let child = Child::legacy().await;
    child.on("server/discover", Reply::fault(Fault::Die(3)));
    let backend = start(settings(child.transport()));
    assert_eq!(revision(&backend).await, "2025-11-25");
    assert_eq!(child.started().len(), 2);
    backend.stop().await;
}

#[tokio::test]
async fn modern_server_that_starts_slowly_is_recognised() {
    // It answers the probe only after `initialize` has arrived, long after the probe was given up.
    let child = Child::modern().await;
    child.on("server/discover", Reply::driven());
    child.on("initialize", Reply::driven());
    let mut settings = settings(child.transport());
    settings.timeouts.probe = std::time::Duration::from_millis(50);
    let backend = start(settings);
    let slow_start = async {
        let (probe, initialize) = (child.stream(0).await, child.stream(1).await);
        probe
            .result(r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#)
            .await;
        initialize.error(NO_SUCH_METHOD).await;
    };
    let (revision, ()) = tokio::join!(revision(&backend), slow_start);
    assert_eq!(revision, "2026-07-28");
    backend.stop().await;
}

#[tokio::test]
async fn era_is_remembered_until_it_is_refused() {
    let child = Child::legacy().await;
    for method in ["test/restart", "test/upgrade"] {
        child.on(method, Reply::fault(Fault::Die(0)));
    }
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    ask(&backend, "test/restart", "").await.unwrap_err();
    assert_eq!(revision(&backend).await, "2025-11-25");
    assert_eq!(child.count("server/discover"), 1);
    child.on(
        "server/discover",
        Reply::result(r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#),
    );
    child.on("initialize", Reply::error(NO_SUCH_METHOD));
    // A second early end leads to a pause, which the next request does not wait for.
    ask(&backend, "test/upgrade", "").await.unwrap_err();
    let up_again = async {
        while backend.status().revision != Some("2026-07-28") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, up_again).await.unwrap();
    assert_eq!(child.count("server/discover"), 2);
    backend.stop().await;
}

#[tokio::test]
async fn era_can_be_configured() {
    let child = Child::legacy().await;
    child.on("server/discover", Reply::fault(Fault::Die(3)));
    let mut settings = settings(child.transport());
    settings.era = EraChoice::Legacy;
    let backend = start(settings);
    assert_eq!(revision(&backend).await, "2025-11-25");
    assert_eq!(child.started().len(), 1);
    backend.stop().await;
}

#[tokio::test]
async fn messages_are_single_lines_and_keep_their_bytes() {
    let child = Child::modern().await;
    child.on(
        "test/echo",
        Reply::compute(|request| format!(r#"{{"params":{}}}"#, request.member("params").unwrap())),
    );
    let mut settings = settings(child.transport());
    settings.era = EraChoice::Modern;
    let backend = start(settings);
    let echoed = ask(
        &backend,
        "test/echo",
        "{ \"a\" :\r\n 1.0 , \"b\":\"\\u0041 é\" }",
    )
    .await
    .unwrap();
    assert!(
        echoed.ends_with(r#"}, "a" : 1.0 , "b":"\u0041 é" }}"#),
        "{echoed}"
    );
    backend.stop().await;
}

#[tokio::test]
async fn requests_are_multiplexed() {
    let child = Child::modern().await;
    let gate = Gate::new();
    child.on("test/first", Reply::result(r#"{"n":1}"#).gated(&gate));
    child.on("test/second", Reply::result(r#"{"n":2}"#));
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let second = async {
        let answer = ask(&backend, "test/second", "").await;
        gate.open();
        answer
    };
    let (first, second) = tokio::join!(ask(&backend, "test/first", ""), second);
    assert_eq!(
        (first.unwrap().as_str(), second.unwrap().as_str()),
        (r#"{"n":1}"#, r#"{"n":2}"#)
    );
    backend.stop().await;
}

#[tokio::test]
async fn progress_is_delivered_to_the_call_that_asked_for_it() {
    let child = Child::modern().await;
    let progress = [
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{call},"progress":1.0}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x"}}"#,
    ];
    child.on("test/work", Reply::result("{}").after(&progress));
    let backend = start(settings(child.transport()));
    let (asking, mut inbox) = listening(call("test/work", ""), |context| {
        context.wants_progress = true;
    });
    let (silent, mut quiet) = listening(call("test/work", ""), |_| {});
    send(&backend, silent).await.unwrap();
    send(&backend, asking).await.unwrap();
    assert_eq!(
        inbox
            .recv()
            .await
            .unwrap()
            .params()
            .unwrap()
            .get("progress")
            .unwrap()
            .as_text(),
        "1.0"
    );
    assert!(inbox.recv().await.is_none() && quiet.recv().await.is_none());
    backend.stop().await;
}

const LOGGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret"}}"#;

/// Runs two calls of these clients with these levels; returns which of them get the log message.
async fn log_receivers(
    child: Child,
    waiting: (u64, Option<LogLevel>),
    logging: (u64, Option<LogLevel>),
) -> [bool; 2] {
    let gate = Gate::new();
    child.on("test/wait", Reply::result("{}").gated(&gate));
    child.on("test/log", Reply::result("{}").after(&[LOGGED]));
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let of = |method: &str, (key, level)| {
        listening(call(method, ""), |context| {
            context.caller = crate::support::client(key);
            context.log_level = level;
        })
    };
    let (first, mut first_inbox) = of("test/wait", waiting);
    let (second, mut second_inbox) = of("test/log", logging);
    let second = async {
        child.wait_for("test/wait", 1).await;
        let answer = send(&backend, second).await;
        gate.open();
        answer
    };
    let (first, second) = tokio::join!(send(&backend, first), second);
    first.unwrap();
    second.unwrap();
    backend.stop().await;
    [
        first_inbox.recv().await.is_some(),
        second_inbox.recv().await.is_some(),
    ]
}

#[tokio::test]
async fn log_messages_are_not_delivered_to_another_client() {
    let info = Some(LogLevel::Info);
    // Both calls belong to the same client, so the oldest gets it.
    assert_eq!(
        log_receivers(Child::legacy().await, (1, None), (1, None)).await,
        [true, false]
    );
    assert_eq!(
        log_receivers(Child::legacy().await, (1, None), (2, None)).await,
        [false, false]
    );
    assert_eq!(
        log_receivers(Child::modern().await, (1, None), (2, info)).await,
        [false, true]
    );
    assert_eq!(
        log_receivers(Child::modern().await, (1, info), (2, info)).await,
        [false, false]
    );
    assert_eq!(
        log_receivers(Child::modern().await, (1, None), (2, None)).await,
        [false, false]
    );
}

#[tokio::test]
async fn requests_of_a_legacy_server_are_answered() {
    let child = Child::legacy().await;
    let requests = [
        r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#,
    ];
    let conclude = Reply::conclude(|_, answers| {
        let (ping, refusal) = (
            answers[0].member("result").unwrap(),
            answers[1].member("error.code").unwrap(),
        );
        format!(r#"{{"ping":{ping},"refusal":{refusal}}}"#)
    });
    child.on("test/ask", conclude.asking(&requests));
    let backend = start(settings(child.transport()));
    assert_eq!(
        ask(&backend, "test/ask", "").await.unwrap(),
        r#"{"ping":{},"refusal":-32601}"#
    );
    backend.stop().await;
}

#[tokio::test]
async fn dropped_request_is_cancelled_and_its_late_answer_ignored() {
    let child = Child::legacy().await;
    child.on("test/slow", Reply::driven());
    child.on("test/next", Reply::result("{}"));
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let mut request = backend.request(call("test/slow", ""));
    // After one poll, the writer has the request; later messages show that it was sent.
    assert!(futures_util::FutureExt::now_or_never(&mut request).is_none());
    drop(request);
    let cancelled = child.wait_for("notifications/cancelled", 1).await;
    let slow = child.stream(0).await;
    assert_eq!(
        cancelled[0].member("params.requestId"),
        slow.request.member("id")
    );
    slow.result(r#"{"late":true}"#).await;
    assert_eq!(ask(&backend, "test/next", "").await.unwrap(), "{}");
    backend.stop().await;
}

#[tokio::test]
async fn standard_error_is_logged_with_the_backend_name() {
    let log = Log::catch();
    let child = Child::modern().await;
    let long = format!("watch \u{1b}[31mout\n{:05000}\n", 7);
    child.on(
        "test/warn",
        Reply::result("{}").complaining(long.as_bytes()),
    );
    let backend = start(settings(child.transport()));
    ask(&backend, "test/warn", "").await.unwrap();
    backend.stop().await;
    let text = log.text();
    let line = text.lines().find(|line| line.contains("watch")).unwrap();
    assert!(
        line.contains("fanlight::child") && line.contains("tested"),
        "{line}"
    );
    assert!(line.contains("watch \\u001b[31mout"), "{line}");
    let long = text.lines().find(|line| line.contains("00000000")).unwrap();
    assert!(
        long.len() < 4400 && long.contains("(5000 bytes)"),
        "{}",
        long.len()
    );
}
