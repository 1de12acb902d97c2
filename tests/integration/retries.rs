//! Requests that are repeated although they may have run: only with `retry: safe`.

use crate::harness::Gateway;
use crate::scripted::{Backend, Era, Fault, Reply, Transport};
use crate::server_lives::{ask, text_at};

const TOOLS: [(&str, &str); 3] = [
    ("reads", r#"{"readOnlyHint":true}"#),
    ("sets", r#"{"idempotentHint":true}"#),
    ("adds", "{}"),
];

fn tool((name, annotations): (&str, &str)) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#)
}

async fn server(era: Era) -> Backend {
    server_over(Transport::Http, era).await
}

async fn server_over(transport: Transport, era: Era) -> Backend {
    let server = Backend::start(era, transport).await;
    server.declares(r#"{"tools":{},"resources":{},"prompts":{}}"#);
    server.on(
        "tools/list",
        server.list("tools", &TOOLS.map(tool).join(",")),
    );
    server.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    server.on(
        "resources/read",
        Reply::result(era.complete(r#""contents":[]"#)),
    );
    server.on(
        "prompts/get",
        Reply::result(era.complete(r#""messages":[]"#)),
    );
    server
}

async fn gateway(server: &Backend, retry: &str) -> Gateway {
    Gateway::start(&format!(
        r#"{{"mcpServers":{{{}}}}}"#,
        server.entry_with("only", retry)
    ))
    .await
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
            // A successful call in between, since consecutive failures would eject the server.
            assert!(
                ask(&gateway, "tools/call", r#""name":"adds""#)
                    .await
                    .contains("\"result\"")
            );
            let before = server.received(method).len();
            server.once(method, Reply::fault(Fault::BreakOff));
            let answer = ask(&gateway, method, params).await;
            let sent = server.received(method).len() - before;
            match is_safe {
                true => assert!(
                    answer.contains("\"result\"") && sent == 2,
                    "{era:?} {params}: {sent} {answer}"
                ),
                false => {
                    assert!(
                        answer.contains("\"mayHaveRun\":true") && sent == 1,
                        "{era:?} {params}: {sent} {answer}"
                    );
                }
            }
        }
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn call_that_may_have_run_is_repeated_only_if_configured() {
    let server = server(Era::Modern).await;
    let gateway = gateway(&server, "").await;
    server.once("tools/call", Reply::fault(Fault::BreakOff));
    let answer = ask(&gateway, "tools/call", r#""name":"reads""#).await;
    assert!(
        answer.contains("\"mayHaveRun\":true") && server.received("tools/call").len() == 1,
        "{answer}"
    );
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn spans_show_which_attempt_they_are() {
    let server = server(Era::Modern).await;
    let gateway = gateway(&server, r#""retry":"safe""#).await;
    server.once("tools/call", Reply::fault(Fault::BreakOff));
    assert!(
        ask(&gateway, "tools/call", r#""name":"reads""#)
            .await
            .contains("\"result\"")
    );
    let traces: serde_json::Value =
        serde_json::from_str(&text_at(&gateway, "/api/traces?tool=reads").await).unwrap();
    let id = traces["traces"][0]["traceId"].as_str().unwrap();
    let trace: serde_json::Value =
        serde_json::from_str(&text_at(&gateway, &format!("/api/traces/{id}")).await).unwrap();
    let text = trace.to_string();
    assert!(
        text.contains(r#"{"key":"fanlight.attempt","value":{"intValue":"2"}}"#),
        "{text}"
    );
    assert!(gateway.terminate().await.success());
}

/// The number of times that the server receives one call of `reads` that breaks off.
async fn sent(gateway: &Gateway, server: &Backend) -> usize {
    let before = server.received("tools/call").len();
    server.once("tools/call", Reply::fault(Fault::Die(1)));
    let answer = ask(gateway, "tools/call", r#""name":"reads""#).await;
    let sent = server.received("tools/call").len() - before;
    assert_eq!(
        answer.contains("\"mayHaveRun\":true"),
        sent == 1,
        "{answer}"
    );
    sent
}

#[tokio::test]
async fn call_is_not_repeated_after_its_tool_withdraws_the_annotation() {
    for era in [Era::Modern, Era::Legacy] {
        let server = server(era).await;
        let gateway = gateway(&server, r#""retry":"safe""#).await;
        assert_eq!(sent(&gateway, &server).await, 2);
        let now = [
            server.list("tools", &tool(("reads", "{}"))),
            server.list("tools", &tool(("adds", r#"{"readOnlyHint":true}"#))),
            Reply::fault(Fault::BreakOff),
        ];
        for list in now {
            assert!(
                ask(&gateway, "tools/call", r#""name":"reads""#)
                    .await
                    .contains("\"result\"")
            );
            server.on("tools/list", list);
            assert_eq!(sent(&gateway, &server).await, 1, "{era:?}");
            // In the list before this one, the next call was not safe yet.
            server.on(
                "tools/list",
                server.list("tools", &TOOLS.map(tool).join(",")),
            );
            assert!(
                ask(&gateway, "tools/list", "")
                    .await
                    .contains("readOnlyHint")
            );
        }
        assert!(gateway.terminate().await.success());
    }
}

/// Only the next process can say what the tool does now.
#[tokio::test]
async fn safe_call_that_ends_its_process_is_sent_to_the_next_one() {
    for era in [Era::Modern, Era::Legacy] {
        let server = server_over(Transport::Stdio, era).await;
        let entry = server.entry_with("only", r#""retry":"safe""#);
        let patient = r#""x-limits":"connectOnCall=60s""#;
        let gateway = Gateway::start(&format!(r#"{{"mcpServers":{{{entry}}},{patient}}}"#)).await;
        assert!(
            ask(&gateway, "tools/call", r#""name":"reads""#)
                .await
                .contains("\"result\"")
        );
        assert_eq!(sent(&gateway, &server).await, 2, "{era:?}");
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn list_that_breaks_off_is_sent_once_more_whoever_repeats_it() {
    for (era, retry) in [
        (Era::Modern, ""),
        (Era::Modern, r#""retry":"safe""#),
        (Era::Legacy, r#""retry":"safe""#),
    ] {
        let server = server(era).await;
        let gateway = gateway(&server, retry).await;
        ask(&gateway, "tools/call", r#""name":"adds""#).await;
        server.on("tools/list", Reply::fault(Fault::BreakOff));
        let before = server.received("tools/list").len();
        assert!(ask(&gateway, "tools/list", "").await.contains("\"error\""));
        assert_eq!(
            server.received("tools/list").len() - before,
            2,
            "{era:?} {retry}"
        );
        assert!(gateway.terminate().await.success());
    }
}

/// The operator's override wins over a server that calls its tool read-only.
#[tokio::test]
async fn call_of_a_tool_whose_annotations_are_overridden_is_not_sent_again() {
    for (annotations, times) in [
        (r#"{"readOnlyHint":false}"#, 1),
        ("null", 1),
        (r#"{"readOnlyHint":false,"idempotentHint":true}"#, 2),
    ] {
        let server = server(Era::Modern).await;
        let overriding =
            format!(r#""retry":"safe","override":{{"reads":{{"annotations":{annotations}}}}}"#);
        let gateway = gateway(&server, &overriding).await;
        assert_eq!(sent(&gateway, &server).await, times, "{annotations}");
        assert!(gateway.terminate().await.success());
    }
}
