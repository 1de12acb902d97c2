//! Servers and clients that try to cause more repetitions than `retry: safe` allows.

use crate::harness::Gateway;
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Reply, Transport};

async fn server() -> Backend {
    let server = Backend::start(Era::Modern, Transport::Http).await;
    let tool = |name: &str, hint: bool| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":{hint}}}}}"#
        )
    };
    server.on(
        "tools/list",
        server.list(
            "tools",
            &[tool("reads", true), tool("adds", false)].join(","),
        ),
    );
    server.on("tools/call", Reply::fault(Fault::BreakOff));
    server
}

async fn gateway(server: &Backend) -> Gateway {
    Gateway::start(&format!(
        r#"{{"mcpServers":{{{}}}}}"#,
        server.entry_with("only", r#""retry":"safe""#)
    ))
    .await
}

async fn call(gateway: &Gateway, params: &str) -> String {
    post_modern(gateway.mcp, &modern_request("1", "tools/call", params, ""))
        .await
        .messages()
        .await
        .1
}

/// A server that fails every request does not get twice the requests.
#[tokio::test]
async fn server_that_breaks_everything_off_gets_a_fifth_more() {
    const CALLS: usize = 60;
    let server = server().await;
    let gateway = gateway(&server).await;
    for _ in 0..CALLS {
        assert!(
            call(&gateway, r#""name":"reads""#)
                .await
                .contains("\"mayHaveRun\":true")
        );
    }
    // The budget begins with ten repetitions.
    let most = CALLS + CALLS / 5 + 10;
    let sent = server.received("tools/call").len();
    assert!((CALLS + 10..=most).contains(&sent), "{sent}");
    assert!(gateway.terminate().await.success());
}

/// The gateway and the server could disagree about which member names the tool.
#[tokio::test]
async fn call_with_two_names_is_not_sent_again() {
    let server = server().await;
    let gateway = gateway(&server).await;
    for params in [
        r#""name":"reads","name":"adds""#,
        r#""name":"adds","name":"reads""#,
        r#""name":"reads","Name":"adds""#,
        r#""name":"reads","n\u0061me":"adds""#,
    ] {
        let before = server.received("tools/call").len();
        call(&gateway, params).await;
        assert!(
            server.received("tools/call").len() <= before + 1,
            "{params}"
        );
    }
    assert!(gateway.terminate().await.success());
}
