//! JSON that is costly to parse, and JSON that parsers understand differently.

use crate::raw_client::{MODERN, modern_request, post};
use crate::target::{Bounds, Target};

/// Just below `limits.requestBody`.
const LARGEST: usize = 15 << 20;

/// Sends a body as a call of the tool `t`, whatever it is, and returns the status.
async fn call_with(target: &Target, body: &str) -> u16 {
    let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "t")];
    let mut response = post(target.gateway.mcp, &headers, body).await;
    response.text().await;
    response.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_nesting_is_refused() {
    let target = Target::start().await;
    let deep = |open: &str, close: &str, times: usize| {
        let value = format!("{}1{}", open.repeat(times), close.repeat(times));
        modern_request("1", "tools/call", &format!(r#""name":"t","arguments":{{"x":{value}}}"#), "")
    };
    for body in [
        "[".repeat(LARGEST),
        r#"{"a":"#.repeat(LARGEST / 5),
        format!("{}{}", "[".repeat(LARGEST / 2), "]".repeat(LARGEST / 2)),
        deep("[", "]", 1000),
        deep("[", "]", LARGEST / 3),
        deep(r#"{"a":"#, "}", LARGEST / 7),
        deep(r#"[{"a":["#, "]}]", LARGEST / 11),
    ] {
        assert_eq!(call_with(&target, &body).await, 400, "{}…", &body[..80]);
    }
    assert_eq!(target.backend.received("tools/call").iter().filter(|call| call.text.len() > 1000).count(), 0);
    // Seven bodies of 15 MiB, one after the other: no more than two of them are in memory at once.
    target.withstood(Bounds { memory: 40 << 20, ..Bounds::SMALL }).await;
}
