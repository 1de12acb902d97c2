//! The recorded content of calls, if that is enabled, and the trace context that is sent along.

use std::process::Stdio;
use std::time::Duration;

use fanlight_testkit::ports::Refusing;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use serde_json::Value;

use super::server_requests::{ACCEPTED, CAPABILITIES, converse, elicits, start, with_input};
use super::spans::{CLIENT, SERVER, TraceFile, from_client};
use crate::faults::backend;
use crate::harness::{Gateway, fanlight, within};
use crate::raw_client::{modern_request, modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};
use crate::server_lives::api;

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
    for (more, is_on) in [(r#""content":"on""#, true), (r#""content":false"#, false)] {
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

/// The content of the newest trace of the tool `t`.
async fn content(gateway: &Gateway) -> Vec<Value> {
    let traces = api(gateway, "/api/traces?tool=t&limit=1").await;
    let id = traces["traces"][0]["traceId"].as_str().unwrap().to_owned();
    let trace = api(gateway, &format!("/api/traces/{id}")).await;
    trace["content"].as_array().unwrap().clone()
}

#[tokio::test]
async fn content_stays_in_memory_unless_it_is_chosen_and_only_of_failed_calls_if_asked() {
    let only = answering().await;
    for (more, kept, is_exported) in [
        ("", true, false),
        (r#""publicUrl":"https://a.example","#, false, false),
        (r#""telemetry":{"content":"errors"},"#, false, true),
        (r#""telemetry":{"content":true},"#, true, true),
    ] {
        let file = TraceFile::new();
        let text = format!(r#"{{{more}"mcpServers":{{{}}}}}"#, only.entry("only"));
        let gateway = Gateway::start_with(&text, &file.arguments()).await;
        let ask = async |number: u32| {
            let meta = format!(r#""traceparent":"{}""#, from_client(number, "01"));
            let request = modern_request(
                "1",
                "tools/call",
                r#""name":"t","arguments":{"a":1}"#,
                &meta,
            );
            post_modern(gateway.mcp, &request)
                .await
                .bytes()
                .await
                .unwrap();
            let wanted = [(SERVER, "tools/call t"), (CLIENT, "tools/call t")];
            file.trace(&from_client(number, "01"), &wanted).await
        };
        let trace = ask(1).await;
        let exported = trace.one(SERVER, "tools/call t").text(ARGUMENTS).is_some();
        assert_eq!(exported, kept && is_exported, "{more}");
        assert_eq!(content(&gateway).await.is_empty(), !kept, "{more}");
        only.on(
            "tools/call",
            Reply::error(r#"{"code":-32000,"message":"no"}"#),
        );
        let trace = ask(2).await;
        let exported = trace.one(SERVER, "tools/call t").text(ARGUMENTS).is_some();
        assert_eq!(exported, is_exported, "{more}");
        let kinds: Vec<_> = content(&gateway)
            .await
            .into_iter()
            .map(|one| one["kind"].clone())
            .collect();
        let all = ["arguments", "arguments", "error", "error"];
        assert_eq!(
            kinds,
            &all[..if kept || is_exported { 4 } else { 0 }],
            "{more}"
        );
        only.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)),
        );
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn questions_answers_and_progress_of_a_call_are_content() {
    let only = backend(Era::Legacy, Transport::Http).await;
    only.on("tools/call", elicits(""));
    let (gateway, _file) = start(&only).await;
    converse(&gateway, &from_client(1, "01")).await;
    let content = content(&gateway).await;
    let of = |kind: &str| {
        let found = content.iter().find(|one| one["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}: {content:?}"))["text"]
            .as_str()
            .unwrap()
    };
    assert!(
        of("question").contains(r#""message":"m""#),
        "{}",
        of("question")
    );
    assert_eq!(of("answer"), ACCEPTED);
    assert!(of("result").contains(ACCEPTED), "{}", of("result"));
}

const INPUT: &str = r#"{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}"#;

#[tokio::test]
async fn rounds_of_a_call_are_one_row_that_is_followed_once() {
    let only = backend(Era::Modern, Transport::Http).await;
    let asks = format!(
        r#"{{"resultType":"input_required","inputRequests":{{"k":{INPUT}}},"requestState":"the state of one call"}}"#
    );
    only.once("tools/call", Reply::result(asks));
    only.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let gateway = Gateway::start(&config(&[only.entry("only")])).await;
    let admin = gateway.admin.to_string();
    let mut command = fanlight();
    command.args(["traces", "--follow", "--json", "--admin", &admin]);
    let mut follower = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    // Requests are made until the follower has begun.
    within("the follower", async {
        loop {
            let request = modern_request("0", "server/discover", "", "");
            post_modern(gateway.mcp, &request).await.messages().await;
            let line = tokio::time::timeout(Duration::from_millis(300), lines.next_line());
            if line.await.is_ok() {
                break;
            }
        }
    })
    .await;
    let params = r#""name":"t","arguments":{"a":1}"#;
    let call = modern_request_with(CAPABILITIES, "1", "tools/call", params, "");
    let (_, wanted) = post_modern(gateway.mcp, &call).await.messages().await;
    let waiting = api(&gateway, "/api/traces?tool=t").await["traces"][0].clone();
    assert_eq!(waiting["ended"], false, "{waiting}");
    let params = with_input(params, &wanted);
    let call = modern_request_with(CAPABILITIES, "2", "tools/call", &params, "");
    post_modern(gateway.mcp, &call).await.messages().await;
    let traces = api(&gateway, "/api/traces?tool=t").await;
    let [call] = &traces["traces"].as_array().unwrap()[..] else {
        panic!("{traces}")
    };
    assert_eq!(call["ended"], true, "{call}");
    assert_eq!(call["traceId"], waiting["traceId"]);
    let kinds: Vec<_> = content(&gateway)
        .await
        .iter()
        .map(|one| one["kind"].clone())
        .collect();
    for kind in ["arguments", "question", "answer", "result"] {
        assert_eq!(
            kinds.iter().filter(|one| *one == kind).count() % 2,
            0,
            "{kinds:?}"
        );
        assert!(kinds.iter().any(|one| one == kind), "{kinds:?}");
    }
    let id = call["traceId"].as_str().unwrap();
    within("a line", async {
        while !lines.next_line().await.unwrap().unwrap().contains(id) {}
    })
    .await;
    let pid = Pid::from_raw(follower.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = within("the follower's end", follower.wait()).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    while let Some(line) = lines.next_line().await.unwrap() {
        assert!(!line.contains(id), "a second line: {line}");
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

#[tokio::test]
async fn refused_call_has_content_where_no_server_says_less() {
    for (level, kept) in [(r#""on""#, 2), (r#""off""#, 0)] {
        let (only, other) = (answering().await, answering().await);
        only.offers_tools(&["t", "u"]);
        let text = format!(
            r#"{{"telemetry":{{"content":"on"}},"mcpServers":{{{},{}}}}}"#,
            only.entry_with("only", r#""tools":{"allow":["u"]}"#),
            other.entry_with("other", &format!(r#""content":{level}"#)),
        );
        let gateway = Gateway::start(&text).await;
        let params = r#""name":"only__t","arguments":{"a":1}"#;
        let request = modern_request("1", "tools/call", params, "");
        let (_, answer) = post_modern(gateway.mcp, &request).await.messages().await;
        let traces = api(&gateway, "/api/traces?tool=only__t").await;
        let id = traces["traces"][0]["traceId"].as_str().unwrap();
        let trace = api(&gateway, &format!("/api/traces/{id}")).await;
        let content = trace["content"].as_array().unwrap();
        assert_eq!(content.len(), kept, "{trace}");
        if let [arguments, error] = &content[..] {
            assert_eq!(
                (&arguments["kind"], &arguments["text"]),
                (&"arguments".into(), &r#"{"a":1}"#.into())
            );
            let error = error["text"].as_str().unwrap();
            assert!(answer.contains(error), "{error} in {answer}");
        }
        assert!(only.received("tools/call").is_empty());
    }
}
