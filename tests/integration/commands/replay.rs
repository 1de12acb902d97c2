//! `fanlight replay`: differences between a recording and a server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{Ran, run_in, run_with};
use crate::harness::TempFile;
use crate::scripted::{Backend, Era, Fault, Reply, Transport, config};

const LEGACY_OPENING: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{},"logging":{}},"serverInfo":{"name":"scripted","version":"0"}}"#;
const MODERN_OPENING: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{}},"ttlMs":0,"cacheScope":"public"}"#;
const READS: &str = r#"{"readOnlyHint":true}"#;

/// A recording of one server.
struct Recording {
    era: Era,
    tools: Vec<String>,
    prompts: Vec<String>,
    resources: Vec<String>,
    lines: Vec<Value>,
}

impl Recording {
    fn new(era: Era, tools: &[&str]) -> Self {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        let (prompts, resources, lines) = Default::default();
        Self {
            era,
            tools,
            prompts,
            resources,
            lines,
        }
    }

    /// Adds a message.
    fn message(&mut self, to: &str, exchange: usize, message: &Value, masked: &[&str]) {
        let revision = match self.era {
            Era::Legacy => "2025-11-25",
            Era::Modern => "2026-07-28",
        };
        self.lines.push(json!({
            "us": self.lines.len(), "side": "server", "server": "one", "connection": 1, "exchange": exchange,
            "to": to, "kind": "line", "transport": "stdio", "revision": revision, "text": message.to_string(),
            "masked": masked,
        }));
    }

    /// Adds a request and its answer, which is `{"result": …}` or `{"error": …}`.
    fn exchange(&mut self, method: &str, params: Value, answer: Value) -> &mut Self {
        self.masked_exchange(method, params, answer, &[], &[])
    }

    fn masked_exchange(
        &mut self,
        method: &str,
        params: Value,
        mut answer: Value,
        in_request: &[&str],
        in_answer: &[&str],
    ) -> &mut Self {
        let id = self.lines.len() + 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.message("server", id, &request, in_request);
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = id.into();
        self.message("client", id, &answer, in_answer);
        self
    }

    /// Adds a call of a tool with a structured result.
    fn call(&mut self, tool: &str, content: Value) -> &mut Self {
        let result = self.result(content);
        self.exchange(
            "tools/call",
            json!({ "name": tool, "arguments": {} }),
            json!({ "result": result }),
        )
    }

    fn result(&self, content: Value) -> Value {
        let mut result = json!({ "content": [], "structuredContent": content });
        if matches!(self.era, Era::Modern) {
            result["resultType"] = "complete".into();
        }
        result
    }

    fn write(&self) -> TempFile {
        let opening = match self.era {
            Era::Legacy => LEGACY_OPENING,
            Era::Modern => MODERN_OPENING,
        };
        let head = json!({
            "recording": 1, "fanlight": "0", "started": "2026-11-29T00:00:00.000000Z",
            "servers": { "one": {
                "opening": opening,
                "definitions": { "tools": self.tools, "prompts": self.prompts, "resources": self.resources },
            } },
        });
        let lines = std::iter::once(&head)
            .chain(&self.lines)
            .map(|line| format!("{line}\n"));
        TempFile::new("jsonl", &lines.collect::<String>())
    }
}

fn tool(name: &str, annotations: &str) -> String {
    tool_with(name, annotations, r#"{"type":"object"}"#)
}

fn tool_with(name: &str, annotations: &str, schema: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{schema},"annotations":{annotations}}}"#)
}

/// Runs `fanlight replay` against a server.
async fn replay(recording: &TempFile, server: &Backend, more: &[&str]) -> Ran {
    let file = recording.path().to_str().unwrap();
    let mut arguments = vec!["replay", file, "--json"];
    arguments.extend(more);
    let url = server.url();
    arguments.extend(["--url", &url]);
    run_in(Path::new("/"), &arguments).await
}

async fn replay_process(recording: &TempFile, server: &Backend, more: &[&str]) -> Ran {
    let (program, given) = server.command(&[]);
    let mut arguments = vec!["replay", recording.path().to_str().unwrap(), "--json"];
    arguments.extend(more);
    arguments.extend(["--", program.to_str().unwrap()]);
    arguments.extend(given.iter().map(String::as_str));
    run_in(Path::new("/"), &arguments).await
}

/// The differences, each as severity, kind, subject and pointer.
fn found(ran: &Ran) -> Vec<String> {
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let report = ran.json();
    let all = report["differences"].as_array().unwrap().iter();
    all.map(|one| {
        ["severity", "kind", "what", "name", "pointer"]
            .map(|name| text(one, name))
            .join(" ")
    })
    .collect()
}

fn complete(era: Era, content: &str) -> Reply {
    Reply::result(era.complete(&format!(r#""content":[],"structuredContent":{content}"#)))
}

#[tokio::test]
async fn server_that_did_not_change_has_no_differences() {
    for (era, transport) in [
        (Era::Legacy, Transport::Http),
        (Era::Legacy, Transport::Stdio),
        (Era::Modern, Transport::Http),
        (Era::Modern, Transport::Stdio),
    ] {
        let server = Backend::start(era, transport).await;
        let described = |at: usize| {
            format!(
                r#"{{"name":"now","description":"asked {at} times","inputSchema":{{"type":"object"}},"annotations":{READS}}}"#
            )
        };
        let times = Arc::new(AtomicUsize::new(7));
        let mut recording = Recording::new(era, &[&described(0), &tool("set", READS)]);
        recording
            .exchange("ping", json!({}), json!({ "result": {} }))
            .call("now", json!({ "at": "2020-01-01T00:00:00Z", "id": "6f1c2f0e-3c7d-4a54-9d2b-0f6f5a1c9e77", "epoch": 1_600_000_000, "random": 4, "count": 3 }))
            .call("set", json!({ "set": ["a", "b", "c"], "random": { "x": [1, 2] } }));
        let now = Arc::clone(&times);
        server.on("tools/list", {
            let list = move |at: usize| {
                era.cacheable(&format!(
                    r#""tools":[{},{}]"#,
                    described(at),
                    tool("set", READS)
                ))
            };
            Reply::compute(move |_| list(now.fetch_add(1, Ordering::Relaxed)))
        });
        let now = Arc::clone(&times);
        server.on("tools/call", Reply::compute(move |received| {
            let at = now.fetch_add(1, Ordering::Relaxed);
            let content = match received.member("params.name") {
                Some("\"now\"") => json!({ "count": at, "random": at * 7919 % 31, "at": "2026-01-01T00:00:00+02:00", "epoch": 1_700_000_000 + at, "id": format!("{at:08x}-3c7d-4a54-9d2b-0f6f5a1c9e77") }),
                _ => {
                    let mut set = ["b", "c", "a"];
                    set.rotate_left(at % 3);
                    json!({ "random": { "x": [at, at + 1] }, "set": set })
                }
            };
            era.complete(&format!(r#""content":[],"structuredContent":{content}"#))
        }));
        let file = recording.write();
        let ran = match transport {
            Transport::Http => replay(&file, &server, &["--fail-on", "value"]).await,
            Transport::Stdio => replay_process(&file, &server, &["--fail-on", "value"]).await,
        };
        // The order of a set may be the recorded one by chance, but not each time.
        assert_eq!(found(&ran), [""; 0], "{era:?} {transport:?} {}", ran.text());
        assert_eq!(ran.status, 0, "{}", ran.text());
        assert_eq!(ran.json()["skipped"], json!([]));
    }
}

/// A process in which something is the same until it ends.
#[tokio::test]
async fn what_differs_between_processes_is_no_difference() {
    let era = Era::Legacy;
    let server = Backend::start(era, Transport::Stdio).await;
    let list = server.list("tools", &tool("who", READS));
    server.on("tools/list", list);
    server.on(
        "tools/call",
        Reply::compute(move |received| {
            let process = received.process.unwrap();
            era.complete(&format!(
                r#""content":[],"structuredContent":{{"process":{process}}}"#
            ))
        }),
    );
    let mut recording = Recording::new(era, &[&tool("who", READS)]);
    recording.call("who", json!({ "process": 1 }));
    let ran = replay_process(&recording.write(), &server, &["--fail-on", "value"]).await;
    assert!(ran.status == 0 && found(&ran).is_empty(), "{}", ran.text());
}

#[tokio::test]
async fn each_kind_of_difference_is_found() {
    let era = Era::Legacy;
    let server = Backend::start(era, Transport::Http).await;
    let object = |properties: &str, required: &str| {
        format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#)
    };
    let output = |schema: &str, name: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"outputSchema":{schema},"annotations":{READS}}}"#
        )
    };
    let unit = |values: &str| object(&format!(r#""unit":{{"enum":[{values}]}}"#), "");
    let reads = [
        "member", "kind", "outcome", "flag", "code", "value", "order",
    ]
    .map(|name| tool(name, READS));
    let pairs = [
        (tool("gone", "{}"), String::new()),
        (
            tool_with("narrow", "{}", &unit(r#""c","f""#)),
            tool_with("narrow", "{}", &unit(r#""c""#)),
        ),
        (
            tool_with("wide", "{}", &unit(r#""c""#)),
            tool_with("wide", "{}", &unit(r#""c","f""#)),
        ),
        (
            tool_with("arguments", "{}", &object(r#""a":{},"b":{}"#, "")),
            tool_with(
                "arguments",
                "{}",
                &object(r#""a":{},"c":{},"d":{}"#, r#""d""#),
            ),
        ),
        (
            output(&unit(r#""c""#), "out"),
            output(&unit(r#""c","f""#), "out"),
        ),
        (
            output(&unit(r#""c","f""#), "less"),
            output(&unit(r#""c""#), "less"),
        ),
        (tool("hints", READS), tool("hints", "{}")),
        (String::new(), tool("new", "{}")),
    ];
    let (mut before, mut after) = (reads.to_vec(), reads.to_vec());
    before.extend(
        pairs
            .iter()
            .map(|(was, _)| was.clone())
            .filter(|tool| !tool.is_empty()),
    );
    after.extend(
        pairs
            .iter()
            .map(|(_, is)| is.clone())
            .filter(|tool| !tool.is_empty()),
    );
    // The order of definitions means nothing.
    after.reverse();
    server.on("tools/list", server.list("tools", &after.join(",")));
    server.on(
        "prompts/list",
        server.list("prompts", r#"{"name":"p","description":"new"}"#),
    );
    server.on(
        "resources/list",
        server.list(
            "resources",
            r#"{"name":"r","uri":"a:b","mimeType":"text/html"}"#,
        ),
    );
    let mut recording = Recording::new(era, &before.iter().map(String::as_str).collect::<Vec<_>>());
    recording
        .prompts
        .push(r#"{"name":"p","description":"old"}"#.to_owned());
    recording
        .resources
        .push(r#"{"name":"r","uri":"a:b","mimeType":"text/plain"}"#.to_owned());
    recording
        .call("member", json!({ "a": 1, "b": 2 }))
        .call("kind", json!({ "a": [{ "b": 1 }] }))
        .call("outcome", json!({}))
        .call("flag", json!({}))
        .exchange(
            "tools/call",
            json!({ "name": "code" }),
            json!({ "error": { "code": -32602, "message": "a" } }),
        )
        .call("value", json!({ "total": 3 }))
        .call("order", json!({ "l": [1, 2] }));
    let on = |tool: &str, reply: Reply| server.on_target("tools/call", tool, reply);
    on("member", complete(era, r#"{"a":1,"c":2}"#));
    on("kind", complete(era, r#"{"a":[{"b":"1"}]}"#));
    on("outcome", Reply::error(r#"{"code":-32603,"message":"no"}"#));
    on("flag", Reply::result(r#"{"content":[],"isError":true}"#));
    on("code", Reply::error(r#"{"code":-32603,"message":"a"}"#));
    on("value", complete(era, r#"{"total":4}"#));
    on("order", complete(era, r#"{"l":[2,1]}"#));
    let file = recording.write();
    let ran = replay(&file, &server, &[]).await;
    let content = "/result/structuredContent";
    let mut expected = [
        "breaking item-gone tool gone ",
        "breaking input-narrowed tool narrow /inputSchema/properties/unit/enum",
        "look input-widened tool wide /inputSchema/properties/unit/enum",
        "breaking argument-gone tool arguments /inputSchema/properties/b",
        "look argument-added tool arguments /inputSchema/properties/c",
        "breaking argument-required tool arguments /inputSchema/properties/d",
        "breaking output-widened tool out /outputSchema/properties/unit/enum",
        "look output-narrowed tool less /outputSchema/properties/unit/enum",
        "look annotations-changed tool hints /annotations/readOnlyHint",
        "look item-added tool new ",
        "look description-changed prompt p /description",
        "look definition-changed resource a:b /mimeType",
        &format!("breaking member-gone tools/call member {content}/b"),
        &format!("look member-added tools/call member {content}/c"),
        &format!("breaking type-changed tools/call kind {content}/a/0/b"),
        "breaking outcome-changed tools/call outcome /error",
        "breaking is-error-changed tools/call flag /result/isError",
        "breaking error-code-changed tools/call code /error/code",
        &format!("value value-changed tools/call value {content}/total"),
        &format!("value order-changed tools/call order {content}/l"),
    ]
    .map(str::to_owned);
    let mut all = found(&ran);
    all.sort();
    expected.sort();
    assert_eq!(all, expected, "{}", ran.text());
    assert_eq!(ran.status, 1);
    // Without the calls, only definitions count.
    let calls = server.received("tools/call").len();
    let definitions = replay(&file, &server, &["--definitions"]).await;
    assert_eq!(found(&definitions).len(), 12, "{}", definitions.text());
    assert_eq!(server.received("tools/call").len(), calls);
    // Ignored places are not reported.
    let ignoring = [
        "--ignore",
        "/inputSchema",
        "--ignore",
        "kind:/result/structuredContent/a/*/b",
        "--ignore",
        "value:/result",
    ];
    let ignored = replay(&file, &server, &ignoring).await;
    assert_eq!(found(&ignored).len(), 20 - 5 - 2, "{}", ignored.text());
}

#[tokio::test]
async fn severity_decides_the_status() {
    let era = Era::Modern;
    let server = Backend::start(era, Transport::Http).await;
    server.on("tools/list", server.list("tools", &tool("t", READS)));
    server.on("tools/call", complete(era, r#"{"a":2}"#));
    let mut value = Recording::new(era, &[&tool("t", READS)]);
    value.call("t", json!({ "a": 1 }));
    let mut look = Recording::new(era, &[&tool("t", READS)]);
    look.call("t", json!({}));
    let mut breaking = Recording::new(era, &[&tool("t", READS)]);
    breaking.call("t", json!({ "a": "1" }));
    for (recording, statuses) in [(value, [0, 0, 1]), (look, [0, 1, 1]), (breaking, [1, 1, 1])] {
        let file = recording.write();
        for (fail_on, status) in ["breaking", "look", "value"].into_iter().zip(statuses) {
            let ran = replay(&file, &server, &["--fail-on", fail_on]).await;
            assert_eq!(ran.status, status, "{fail_on} {}", ran.text());
        }
    }
}

#[tokio::test]
async fn nothing_that_could_be_judged_is_status_two() {
    let folder = TempFile::folder();
    let recording = Recording::new(Era::Legacy, &[]).write();
    let file = recording.path().to_str().unwrap();
    for (arguments, reason) in [
        (
            vec!["replay", file, "--", "/nowhere/server"],
            "nothing could be judged",
        ),
        (vec!["replay", "/nowhere/file", "--", "true"], "cannot read"),
        (vec!["replay", file], "name the server to test"),
        (
            vec!["replay", file, "--from", "two", "--", "true"],
            "no server two",
        ),
        (
            vec!["replay", file, "--ignore", "total", "--", "true"],
            "JSON Pointer",
        ),
    ] {
        let ran = run_in(folder.path(), &arguments).await;
        assert!(
            ran.status == 2 && ran.err.contains(reason),
            "{arguments:?} {}",
            ran.text()
        );
    }
}

#[tokio::test]
async fn only_safe_requests_are_sent() {
    let era = Era::Legacy;
    let server = Backend::start(era, Transport::Http).await;
    let idempotent = r#"{"idempotentHint":true,"destructiveHint":false}"#;
    let names = [
        ("reads", READS, READS),
        ("repeats", idempotent, idempotent),
        (
            "writes",
            r#"{"idempotentHint":true}"#,
            r#"{"idempotentHint":true}"#,
        ),
        ("became", "{}", READS),
        ("was", READS, "{}"),
        ("plain", "{}", "{}"),
    ];
    let (before, after): (Vec<_>, Vec<_>) = names
        .iter()
        .map(|(name, was, is)| (tool(name, was), tool(name, is)))
        .unzip();
    server.on("tools/list", server.list("tools", &after.join(",")));
    server.on("tools/call", complete(era, r#"{"a":1}"#));
    server.on("resources/read", Reply::result(r#"{"contents":[]}"#));
    server.on("prompts/get", Reply::result(r#"{"messages":[]}"#));
    let mut recording = Recording::new(era, &before.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, ..) in names {
        // Equal requests are sent once.
        recording
            .call(name, json!({ "a": 2 }))
            .call(name, json!({ "a": 2 }));
    }
    let id = "6f1c2f0e-3c7d-4a54-9d2b-0f6f5a1c9e77";
    let answer = json!({ "result": { "contents": [] } });
    recording
        .exchange("resources/read", json!({ "uri": "a:b" }), answer.clone())
        .exchange(
            "prompts/get",
            json!({ "name": "p" }),
            json!({ "result": { "messages": [] } }),
        )
        .exchange(
            "tasks/get",
            json!({ "taskId": "t" }),
            json!({ "result": {} }),
        )
        .exchange(
            "tools/list",
            json!({ "cursor": "x" }),
            json!({ "result": { "tools": [] } }),
        )
        .exchange(
            "resources/read",
            json!({ "uri": "a:c" }),
            json!({ "result": { "contents": [{ "uri": "a:c", "text": id }] } }),
        )
        .exchange(
            "resources/read",
            json!({ "uri": format!("a:{id}") }),
            answer.clone(),
        )
        .masked_exchange(
            "resources/read",
            json!({ "uri": "a:[masked]" }),
            answer,
            &["/params/uri"],
            &[],
        );
    let file = recording.write();
    let ran = replay(&file, &server, &[]).await;
    let called = |name: &str| server.count_of_target("tools/call", name);
    // Requests with different answers are sent again.
    assert_eq!(
        names.map(|(name, ..)| called(name)),
        [2 + 3, 2 + 3, 0, 0, 0, 0],
        "{}",
        ran.text()
    );
    let report = ran.json();
    let skipped: Vec<String> = report["skipped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            format!(
                "{} {}: {}",
                one["what"].as_str().unwrap(),
                one["name"].as_str().unwrap(),
                one["why"].as_str().unwrap()
            )
        })
        .collect();
    for expected in [
        "tools/call writes: is not declared safe; --all sends it".to_owned(),
        "tools/call became: is not declared safe; --all sends it".to_owned(),
        "tools/call was: is not declared safe; --all sends it".to_owned(),
        "tools/list : has a cursor of an earlier result".to_owned(),
        "tasks/get t: names a task of an earlier result".to_owned(),
        format!("resources/read a:{id}: has an id of an earlier result"),
        "resources/read a:[masked]: has a masked part".to_owned(),
    ] {
        assert!(skipped.contains(&expected), "{expected}: {skipped:#?}");
    }
    replay(&file, &server, &["--all"]).await;
    assert_eq!(["writes", "became", "was", "plain"].map(called), [2; 4]);
}

#[tokio::test]
async fn questions_are_answered_as_recorded() {
    let question = |message: &str| json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } });
    let answer = json!({ "action": "accept", "content": { "name": "Ann" } });
    // A legacy server asks during the call.
    let server = Backend::start(Era::Legacy, Transport::Stdio).await;
    server.on("tools/list", server.list("tools", &tool("ask", READS)));
    let asked = |message: &str| {
        json!({ "jsonrpc": "2.0", "id": "q{call}", "method": "elicitation/create", "params": question(message) }).to_string()
    };
    let reply = |message: &str| {
        Reply::conclude(|_, answers| {
            let content = answers[0].member("result").unwrap_or("null").to_owned();
            format!(r#"{{"content":[],"structuredContent":{{"answer":{content}}}}}"#)
        })
        .asking(&[&asked(message)])
    };
    let mut recording = Recording::new(Era::Legacy, &[&tool("ask", READS)]);
    let request = json!({ "jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": { "name": "ask", "arguments": {} } });
    recording.message("server", 1, &request, &[]);
    recording.message("client", 1, &json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": question("who") }), &[]);
    recording.message(
        "server",
        1,
        &json!({ "jsonrpc": "2.0", "id": "q", "result": answer }),
        &[],
    );
    let result = recording.result(json!({ "answer": answer }));
    recording.message(
        "client",
        1,
        &json!({ "jsonrpc": "2.0", "id": 77, "result": result }),
        &[],
    );
    let file = recording.write();
    server.on("tools/call", reply("who"));
    let ran = replay_process(&file, &server, &[]).await;
    assert!(
        found(&ran).is_empty() && ran.json()["declined"] == json!([]),
        "{}",
        ran.text()
    );
    server.on("tools/call", reply("whom"));
    let ran = replay_process(&file, &server, &[]).await;
    assert_eq!(
        ran.json()["declined"][0],
        "elicitation/create",
        "{}",
        ran.text()
    );

    // A modern server asks in its answer.
    let era = Era::Modern;
    let server = Backend::start(era, Transport::Http).await;
    server.on("tools/list", server.list("tools", &tool("ask", READS)));
    let asking = |state: &str| json!({ "resultType": "input_required", "requestState": state, "inputRequests": { "a": { "method": "elicitation/create", "params": question("who") } } });
    let first = asking("new").to_string();
    server.on("tools/call", Reply::chosen(move |received| match received.member("params.inputResponses.a") {
        None => Reply::result(first.clone()),
        Some(answer) => Reply::result(format!(r#"{{"resultType":"complete","content":[],"structuredContent":{{"state":{},"answer":{answer}}}}}"#, received.member("params.requestState").unwrap())),
    }));
    let mut recording = Recording::new(era, &[&tool("ask", READS)]);
    let params = json!({ "name": "ask", "arguments": {} });
    recording.exchange(
        "tools/call",
        params.clone(),
        json!({ "result": asking("old") }),
    );
    let mut next = params;
    next["requestState"] = "old".into();
    next["inputResponses"] = json!({ "a": answer });
    let result = recording.result(json!({ "state": "new", "answer": answer }));
    recording.exchange("tools/call", next, json!({ "result": result }));
    let ran = replay(&recording.write(), &server, &[]).await;
    assert!(
        found(&ran).is_empty() && ran.json()["declined"] == json!([]),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn server_without_an_answer_is_found_in_time() {
    let era = Era::Legacy;
    let server = Backend::start(era, Transport::Http).await;
    server.on("tools/list", server.list("tools", &tool("slow", READS)));
    server.on("tools/call", Reply::fault(Fault::Hang));
    let mut recording = Recording::new(era, &[&tool("slow", READS)]);
    recording.call("slow", json!({}));
    let file = recording.write();
    let configuration = config(&[server.entry_with("one", r#""timeout":"200ms""#)]);
    let configuration = TempFile::new("yaml", &configuration);
    let arguments = [
        "replay",
        file.path().to_str().unwrap(),
        "--json",
        "--server",
        "one",
        "--config",
        configuration.path().to_str().unwrap(),
    ];
    let ran = run_in(Path::new("/"), &arguments).await;
    assert_eq!(
        found(&ran),
        ["breaking outcome-changed tools/call slow /error"],
        "{}",
        ran.text()
    );
    assert_eq!(ran.status, 1);
}

#[tokio::test]
async fn secrets_are_masked_and_masked_places_match_anything() {
    let era = Era::Legacy;
    let server = Backend::start(era, Transport::Http).await;
    server.on("tools/list", server.list("tools", &tool("t", READS)));
    server.on("tools/call", complete(era, r#"{"password":"planted-one","m":"planted-two","u":"https://u:planted-three@h/","e":"planted-four"}"#));
    let mut recording = Recording::new(era, &[&tool("t", READS)]);
    let result =
        recording.result(json!({ "password": "planted-old", "m": "[masked]", "u": "b", "e": "c" }));
    let params = json!({ "name": "t", "arguments": {} });
    recording.masked_exchange(
        "tools/call",
        params,
        json!({ "result": result }),
        &[],
        &["/result/structuredContent/m"],
    );
    let file = recording.write();
    let junit = TempFile::new("xml", "");
    let arguments = [
        "replay",
        file.path().to_str().unwrap(),
        "--url",
        &server.url(),
        "--header",
        "X-Key: planted-four",
        "--junit",
        junit.path().to_str().unwrap(),
    ];
    let ran = run_with(
        Path::new("/"),
        &arguments,
        &[("FANLIGHT_TOKEN", "planted-five")],
    )
    .await;
    let xml = std::fs::read_to_string(junit.path()).unwrap();
    let json = run_with(Path::new("/"), &[&arguments[..], &["--json"]].concat(), &[]).await;
    for text in [ran.text(), json.text(), xml] {
        assert!(!text.contains("planted"), "{text}");
    }
    assert_eq!(found(&json).len(), 3, "{}", json.text());
    assert!(
        ran.out
            .contains("value value-changed /result/structuredContent/e"),
        "{}",
        ran.text()
    );
    assert_eq!(
        server.received("tools/call")[0].header("authorization"),
        Some("Bearer planted-five")
    );
}

#[tokio::test]
async fn junit_is_well_formed_whatever_names_contain() {
    let era = Era::Legacy;
    let server = Backend::start(era, Transport::Http).await;
    let name = "a\\u0000\\u0007<&>\\\"'\\ud83d\\ude00\\uffff";
    server.on(
        "tools/list",
        server.list("tools", &tool(&format!("new{name}"), READS)),
    );
    let mut recording = Recording::new(era, &[&tool(name, READS), &tool("kept", READS)]);
    recording.call("kept", json!({}));
    let junit = TempFile::new("xml", "");
    let ran = replay(
        &recording.write(),
        &server,
        &["--junit", junit.path().to_str().unwrap()],
    )
    .await;
    assert_eq!(ran.status, 1, "{}", ran.text());
    let xml = std::fs::read_to_string(junit.path()).unwrap();
    assert!(xml.chars().all(|c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)), "{xml:?}");
    let (mut open, mut rest) = (Vec::new(), &xml[xml.find("?>").unwrap() + 2..]);
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "{xml}");
        let end = at + rest[at..].find('>').unwrap();
        let tag = &rest[at + 1..end];
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{xml}"),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{xml}");
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{xml}");
    for part in [
        "tests=\"5\"",
        "failures=\"3\"",
        "skipped=\"1\"",
        "&lt;&amp;&gt;&quot;",
        "type=\"item-gone\"",
    ] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
}

#[tokio::test]
async fn what_clients_of_a_gateway_saw_is_replayed() {
    let era = Era::Modern;
    let server = Backend::start(era, Transport::Http).await;
    server.on("tools/list", server.list("tools", &tool("a_t", READS)));
    server.on("tools/call", complete(era, r#"{"a":1}"#));
    let mut recording = Recording::new(era, &[]);
    recording.exchange(
        "server/discover",
        json!({}),
        json!({ "result": serde_json::from_str::<Value>(MODERN_OPENING).unwrap() }),
    );
    let listed: Value = serde_json::from_str(&tool("a_t", READS)).unwrap();
    recording.exchange(
        "tools/list",
        json!({}),
        json!({ "result": { "resultType": "complete", "tools": [listed] } }),
    );
    recording.call("a_t", json!({ "a": 1, "b": 2 }));
    for line in &mut recording.lines {
        line["side"] = "client".into();
        line.as_object_mut().unwrap().remove("server");
    }
    let head = json!({ "recording": 1, "fanlight": "0", "started": "2026-11-29T00:00:00.000000Z", "servers": { "a": {}, "b": {} } });
    let lines = std::iter::once(&head)
        .chain(&recording.lines)
        .map(|line| format!("{line}\n"));
    let file = TempFile::new("jsonl", &lines.collect::<String>());
    let ran = replay(&file, &server, &[]).await;
    assert_eq!(
        found(&ran),
        ["breaking member-gone tools/call a_t /result/structuredContent/b"],
        "{}",
        ran.text()
    );
    assert_eq!(ran.json()["compared"], 3);
}
