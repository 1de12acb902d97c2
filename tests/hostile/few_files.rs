//! A process with a low limit on open files, and more concurrent calls than that allows.

use std::time::Duration;

use fanlight_testkit::slicer::member;
use fanlight_testkit::usage;
use tokio::task::JoinSet;

use crate::harness::{Gateway, within};
use crate::raw_client::{modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Gate, Reply, Transport, config};

/// Client capabilities that make a legacy stdio server need a process for each call.
const CAN_BE_ASKED: &str = r#"{"roots":{}}"#;

/// Calls both servers concurrently as `clients` clients, and checks that all succeed.
async fn all_calls_succeed(files: u32, clients: usize) {
    let (web, local) = (
        Backend::start(Era::Modern, Transport::Http).await,
        Backend::start(Era::Legacy, Transport::Stdio).await,
    );
    let gate = Gate::new();
    web.offers_tools(&["web"]);
    web.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)).gated(&gate),
    );
    local.offers_tools(&["local"]);
    local.on("tools/call", Reply::result(r#"{"content":[]}"#));
    let entries = config(&[web.entry("a"), local.entry("b")]);
    // The waiting time depends on the machine, so the time-out is long: none of the calls may fail.
    let patient = r#","x-limits":"connect=60s"}"#;
    let text = format!("{}{patient}", entries.strip_suffix('}').unwrap());
    let gateway = Gateway::start_with_files(&text, files, files).await;
    let to = gateway.mcp;
    let mut calls = JoinSet::new();
    for number in 0..clients {
        let tool = if number % 2 == 0 {
            "a__web"
        } else {
            "b__local"
        };
        let call = modern_request_with(
            CAN_BE_ASKED,
            "1",
            "tools/call",
            &format!(r#""name":"{tool}""#),
            "",
        );
        calls.spawn(async move { (tool, post_modern(to, &call).await.messages().await.1) });
    }
    // Some calls hold their connections, and others wait.
    gate.reached(2).await;
    let before = usage::processor_time(gateway.pid());
    gate.open();
    while let Some(call) = within("all calls", calls.join_next()).await {
        let (tool, answer) = call.unwrap();
        assert!(
            member(&answer, "result.content").is_some(),
            "{tool} with {files} files: {answer}"
        );
    }
    let took = usage::processor_time(gateway.pid()).saturating_sub(before);
    assert!(
        took < Duration::from_secs(10),
        "it took {took:?} of processor time"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_a_file_where_the_process_may_open_64() {
    all_calls_succeed(64, 48).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_a_file_where_the_process_may_open_256() {
    // `limits.processes` allows no more processes.
    all_calls_succeed(256, 120).await;
}
