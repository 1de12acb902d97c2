//! Mirrors that answer copies arbitrarily: nobody waits for their answers, which cost little.

use crate::harness::within;
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Reply, Transport};
use crate::target::{Bounds, Target};

const CALLS: usize = 20;

async fn server(answer: Reply) -> Backend {
    let server = Backend::start(Era::Modern, Transport::Http).await;
    let tool =
        r#"{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;
    server.on("tools/list", server.list("tools", tool));
    server.on("tools/call", answer);
    server
}

/// Calls a server whose mirror gives this answer.
async fn attack(answer: Reply) {
    // The answer is long enough for the comparison to cost something.
    let members = (0..2000)
        .map(|at| format!(r#""k{at}":{at}"#))
        .collect::<Vec<_>>()
        .join(",");
    let result = Era::Modern.complete(&format!(
        r#""content":[],"structuredContent":{{{members}}}"#
    ));
    let (seen, evil) = (server(Reply::result(result)).await, server(answer).await);
    let mirror = r#""mirror":{"server":"evil","share":1}"#;
    let target = Target::beside(&format!(
        "{},{}",
        seen.entry_with("seen", mirror),
        evil.entry("evil")
    ))
    .await;
    for _ in 0..CALLS {
        let call = modern_request(
            "1",
            "tools/call",
            r#""name":"seen__look","arguments":{}"#,
            "",
        );
        let (messages, answer) = post_modern(target.gateway.mcp, &call)
            .await
            .messages()
            .await;
        assert!(
            messages.is_empty() && answer.contains("\"k1999\":1999"),
            "{answer}"
        );
    }
    within("copies at the mirror", evil.wait_for("tools/call", 1)).await;
    // Sixteen answers, of which one at a time is compared, in a debug build.
    let bounds = Bounds {
        memory: 48 << 20,
        processor: std::time::Duration::from_secs(8),
        ..Bounds::SMALL
    };
    assert!(target.withstood(bounds).await.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_without_an_end_are_cut_off() {
    // Four times what a mirror's answer may have; all copies together exceed the bound on memory.
    attack(Reply::fault(Fault::Huge(8 << 20))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_never_come_hold_nobody() {
    attack(Reply::fault(Fault::Hang)).await;
    attack(Reply::fault(Fault::BreakOff)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_long_to_compare_cost_little() {
    let many = (0..40_000)
        .map(|at| format!(r#""x{at}":[]"#))
        .collect::<Vec<_>>()
        .join(",");
    attack(Reply::result(Era::Modern.complete(&format!(
        r#""content":[],"structuredContent":{{{many}}}"#
    ))))
    .await;
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    attack(Reply::result(Era::Modern.complete(&format!(
        r#""content":[],"structuredContent":{deep}"#
    ))))
    .await;
}
