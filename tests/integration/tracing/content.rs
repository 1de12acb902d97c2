//! The recorded content of calls, if that is enabled, and the trace context that is sent along.

use fanlight_testkit::ports::Refusing;

use super::spans::{CLIENT, SERVER, TraceFile, from_client};
use crate::faults::backend;
use crate::harness::Gateway;
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport};

const ARGUMENTS: &str = "gen_ai.tool.call.arguments";
const RESULT: &str = "gen_ai.tool.call.result";

async fn answering() -> Backend {
    let only = backend(Era::Modern, Transport::Http).await;
    only.declares(r#"{"tools":{},"prompts":{}}"#);
    only.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[],"token":"t0p""#)),
    );
    only.on(
        "prompts/get",
        Reply::result(Era::Modern.complete(r#""messages":[]"#)),
    );
    only
}

#[tokio::test]
async fn content_is_on_both_spans_without_secrets_where_it_is_switched_on() {
    let only = answering().await;
    for (more, is_on) in [
        (r#""recordContent":true"#, true),
        (r#""recordContent":false"#, false),
    ] {
        let file = TraceFile::new();
        let text = format!(r#"{{"mcpServers":{{{}}}}}"#, only.entry_with("only", more));
        let gateway = Gateway::start_with(&text, &file.arguments()).await;
        let ask = async |number: u32, method: &str, params: &str| {
            let meta = format!(r#""traceparent":"{}""#, from_client(number, "01"));
            post_modern(gateway.mcp, &modern_request("1", method, params, &meta))
                .await
                .bytes()
                .await
                .unwrap();
        };
        ask(
            1,
            "tools/call",
            r#""name":"t","arguments":{"city":"Bern","password":"s3cret"}"#,
        )
        .await;
        ask(
            2,
            "prompts/get",
            r#""name":"p","arguments":{"city":"Bern","password":"s3cret"}"#,
        )
        .await;
        let call = file
            .trace(
                &from_client(1, "01"),
                &[(SERVER, "tools/call t"), (CLIENT, "tools/call t")],
            )
            .await;
        let prompt = file
            .trace(
                &from_client(2, "01"),
                &[(SERVER, "prompts/get p"), (CLIENT, "prompts/get p")],
            )
            .await;
        for kind in [SERVER, CLIENT] {
            let (call, prompt) = (
                call.one(kind, "tools/call t"),
                prompt.one(kind, "prompts/get p"),
            );
            let arguments = r#"{"city":"Bern","password":"[redacted]"}"#;
            assert_eq!(call.text(ARGUMENTS), is_on.then_some(arguments), "{kind}");
            let result = call.text(RESULT);
            assert_eq!(
                result.is_some_and(|text| text.contains(r#""token":"[redacted]""#)),
                is_on,
                "{kind}: {result:?}"
            );
            assert_eq!(
                prompt.text("gen_ai.prompt.variable.city"),
                is_on.then_some("Bern"),
                "{kind}"
            );
            assert_eq!(
                prompt.text("gen_ai.prompt.variable.password"),
                is_on.then_some("[redacted]"),
                "{kind}"
            );
        }
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn propagators_limit_what_is_sent_to_servers() {
    let only = answering().await;
    // Spans are exported to a collector that refuses connections.
    let collector = Refusing::any();
    let text = format!(
        r#"{{"mcpServers":{{{}}},"telemetry":{{"endpoint":"http://{}"}}}}"#,
        only.entry("only"),
        collector.address
    );
    for (number, (propagators, is_replaced)) in
        (1..).zip([("tracecontext,baggage", true), ("none", false)])
    {
        let gateway = Gateway::start_with_env(&text, "OTEL_PROPAGATORS", propagators).await;
        let own = from_client(number, "01");
        let meta = format!(r#""traceparent":"{own}""#);
        let request = modern_request("1", "tools/call", r#""name":"t""#, &meta);
        post_modern(gateway.mcp, &request)
            .await
            .bytes()
            .await
            .unwrap();
        let received = only.received("tools/call");
        let sent = received
            .last()
            .unwrap()
            .member("params._meta.traceparent")
            .unwrap()
            .trim_matches('"')
            .to_owned();
        assert_eq!(sent != own, is_replaced, "{propagators}: {sent}");
        assert_eq!(
            sent.get(..35),
            own.get(..35),
            "{propagators}: another trace"
        );
    }
}
