//! What is sent once more although it may have run, with `retry: safe` alone.

use crate::harness::Gateway;
use crate::scripted::{Backend, Era, Fault, Reply, Transport};
use crate::server_lives::{ask, text_at};

const TOOLS: [(&str, &str); 3] =
    [("reads", r#"{"readOnlyHint":true}"#), ("sets", r#"{"idempotentHint":true}"#), ("adds", "{}")];

/// A server whose next call breaks off.
async fn server(era: Era) -> Backend {
    let server = Backend::start(era, Transport::Http).await;
    let tool = |(name, annotations)| {
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#)
    };
    server.declares(r#"{"tools":{},"resources":{},"prompts":{}}"#);
    server.on("tools/list", server.list("tools", &TOOLS.map(tool).join(",")));
    server.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    server.on("resources/read", Reply::result(era.complete(r#""contents":[]"#)));
    server.on("prompts/get", Reply::result(era.complete(r#""messages":[]"#)));
    server
}

async fn gateway(server: &Backend, retry: &str) -> Gateway {
    Gateway::start(&format!(r#"{{"mcpServers":{{{}}}}}"#, server.entry_with("only", retry))).await
}

#[tokio::test]
async fn safe_requests_that_break_off_are_sent_once_more() {
    for era in [Era::Modern, Era::Legacy] {
        let server = server(era).await;
        let gateway = gateway(&server, r#""retry":"safe""#).await;
        for (method, params, is_safe) in [
            ("tools/call", r#""name":"reads""#, true),
            ("tools/call", r#""name":"sets""#, true),
            ("tools/call", r#""name":"adds""#, false),
            ("tools/call", r#""name":"unknown""#, false),
            ("resources/read", r#""uri":"a:b""#, true),
            ("prompts/get", r#""name":"p""#, false),
        ] {
            // An answer in between: failures in a row would have the server left alone.
            assert!(ask(&gateway, "tools/call", r#""name":"adds""#).await.contains("\"result\""));
            let before = server.received(method).len();
            server.once(method, Reply::fault(Fault::BreakOff));
            let answer = ask(&gateway, method, params).await;
            let sent = server.received(method).len() - before;
            match is_safe {
                true => assert!(answer.contains("\"result\"") && sent == 2, "{era:?} {params}: {sent} {answer}"),
                false => {
                    assert!(answer.contains("\"mayHaveRun\":true") && sent == 1, "{era:?} {params}: {sent} {answer}");
                }
            }
        }
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn nothing_that_may_have_run_is_sent_again_unless_that_is_written() {
    let server = server(Era::Modern).await;
    let gateway = gateway(&server, "").await;
    server.once("tools/call", Reply::fault(Fault::BreakOff));
    let answer = ask(&gateway, "tools/call", r#""name":"reads""#).await;
    assert!(answer.contains("\"mayHaveRun\":true") && server.received("tools/call").len() == 1, "{answer}");
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn spans_show_which_attempt_they_are() {
    let server = server(Era::Modern).await;
    let gateway = gateway(&server, r#""retry":"safe""#).await;
    server.once("tools/call", Reply::fault(Fault::BreakOff));
    assert!(ask(&gateway, "tools/call", r#""name":"reads""#).await.contains("\"result\""));
    let traces: serde_json::Value = serde_json::from_str(&text_at(&gateway, "/api/traces?tool=reads").await).unwrap();
    let id = traces["traces"][0]["traceId"].as_str().unwrap();
    let trace: serde_json::Value =
        serde_json::from_str(&text_at(&gateway, &format!("/api/traces/{id}")).await).unwrap();
    let text = trace.to_string();
    assert!(text.contains(r#"{"key":"fanlight.attempt","value":{"intValue":"2"}}"#), "{text}");
    assert!(gateway.terminate().await.success());
}
