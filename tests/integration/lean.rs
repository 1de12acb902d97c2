//! Lean lists of the real binary: `find_tools` and `call_tool`: their answers, and everything that they have to leave as it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use fanlight_tests::slicer::{elements, member, plain_string};
use serde_json::{Value, json};

use crate::clients::{Client, Exchange};
use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::http_recorder::{HttpRecorder, says};
use crate::raw_client::{
    Connection, JSON_HEADERS, LegacySession, legacy_request, modern_headers, modern_request,
    post_modern,
};
use crate::scripted::{Backend, Era, Fault, Gate, Reply, Transport};
use crate::server_lives::{api, text_at};

const TOOLS: &str = r#"{"name":"read","description":"Reads a file.","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}},{"name":"delete_file","title":"D\u0065lete", "description":"Removes a file.","inputSchema":{"type":"object"}},{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://show"}}}"#;
const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":1,"message":"p"}}"#;

async fn server(era: Era, transport: Transport) -> Backend {
    let server = Backend::start(era, transport).await;
    server.on("tools/list", server.list("tools", TOOLS));
    server.on(
        "tools/call",
        Reply::result(era.complete(r#""content":[{"type":"text","text":"\u0041"}],"x":1E400"#)),
    );
    server
}

fn config(servers: &[String], lean: &str) -> String {
    format!(
        r#"{{"endpoints":{{"/mcp":{{"lean":{lean}}}}},"mcpServers":{{{}}}}}"#,
        servers.join(",")
    )
}

/// The names of the tools in an answer to `tools/list` or `find_tools`.
fn names(exchange: &Exchange) -> Vec<String> {
    let tools = member(&exchange.answer, "result.tools");
    let tools = tools.or_else(|| member(&exchange.answer, "result.structuredContent.tools"));
    let tools = elements(tools.unwrap_or_else(|| panic!("{}", exchange.answer))).unwrap();
    let name = |tool: &str| {
        plain_string(member(tool, "name").unwrap())
            .unwrap()
            .to_owned()
    };
    tools.into_iter().map(name).collect()
}

async fn call(client: &mut Client, params: &str) -> Exchange {
    client.request("1", "tools/call", params, "").await
}

async fn find(client: &mut Client, arguments: &str) -> Exchange {
    call(
        client,
        &format!(r#""name":"find_tools","arguments":{arguments}"#),
    )
    .await
}

/// The params of the same call through `call_tool`.
fn indirect(params: &str) -> String {
    format!(r#""name":"call_tool","arguments":{{{params}}}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_tools_are_found_and_called_in_both_eras() {
    for (era, transport) in [
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Stdio),
        (Era::Legacy, Transport::Stdio),
    ] {
        let (a, b) = (
            server(Era::Modern, Transport::Http).await,
            server(Era::Legacy, Transport::Http).await,
        );
        let entries = [a.entry("a"), b.entry("b")];
        let lean = r#"{"always":["a/read"],"groups":{"removal":["*delete*"]}}"#;
        let mut client = Client::start(&config(&entries, lean), era, transport).await;
        let list = client.request("1", "tools/list", "", "").await;
        // A tool with an app is always listed.
        let listed = ["a__read", "a__show", "b__show", "find_tools", "call_tool"];
        assert_eq!(names(&list), listed);
        for part in [
            "a (a__*), 3 tools: read, delete_file, show",
            "removal, 2 tools",
        ] {
            assert!(list.answer.contains(part), "{}", list.answer);
        }
        let found = find(&mut client, r#"{"query":"erase documents","limit":2}"#).await;
        assert_eq!(names(&found), ["a__delete_file", "b__delete_file"]);
        let definition = r#""title":"D\u0065lete", "description":"Removes a file.""#;
        assert!(found.answer.contains(definition), "{}", found.answer);
        let structured: Value =
            serde_json::from_str(found.member("result.structuredContent")).unwrap();
        let content: Value = serde_json::from_str(found.member("result.content")).unwrap();
        let text = content[0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), structured);
        let by_name = find(&mut client, r#"{"group":"b"}"#).await;
        assert_eq!(names(&by_name), ["b__delete_file", "b__read", "b__show"]);
        let of_group = find(
            &mut client,
            r#"{"group":"removal","query":"file","limit":1}"#,
        )
        .await;
        assert_eq!(of_group.member("result.structuredContent.more"), "1");
        for arguments in ["{}", r#"{"query":"zebra"}"#] {
            let nothing = find(&mut client, arguments).await;
            assert!(names(&nothing).is_empty());
            let groups = nothing.member("result.structuredContent.groups");
            assert_eq!(elements(groups).unwrap().len(), 3, "{groups}");
        }
        let many = find(&mut client, r#"{"query":"file","limit":99}"#).await;
        assert!(
            many.answer.contains("limit is at most 50"),
            "{}",
            many.answer
        );
        let wrong = find(&mut client, r#"{"group":"c"}"#).await;
        assert!(
            wrong.answer.contains("groups are removal, a, b"),
            "{}",
            wrong.answer
        );
        assert_eq!(wrong.member("result.isError"), "true");

        let params = r#""name":"b__delete_file","arguments":{ "x":1E400 }"#;
        let called = call(&mut client, &indirect(params)).await;
        assert!(called.answer.contains(r#""x":1E400"#), "{}", called.answer);
        let received = b.received("tools/call");
        assert_eq!(received[0].member("params.name"), Some(r#""delete_file""#));
        assert_eq!(
            received[0].member("params.arguments"),
            Some(r#"{ "x":1E400 }"#)
        );
        // Hidden tools can also be called by their own names.
        assert_eq!(call(&mut client, params).await.answer, called.answer);
        // A search changes nothing that is listed.
        let again = client.request("1", "tools/list", "", "").await;
        assert_eq!(again.answer, list.answer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_cannot_run_reach_no_server() {
    let a = server(Era::Modern, Transport::Http).await;
    for era in [Era::Legacy, Era::Modern] {
        let mut client = Client::start(&config(&[a.entry("a")], "{}"), era, Transport::Http).await;
        for (params, expected) in [
            (r#""name":"read","arguments":{}"#, "/path is required"),
            (
                r#""name":"read","arguments":{"path":1}"#,
                "/path must be of type string",
            ),
            (
                r#""name":"read","arguments":[]"#,
                "/arguments must be of type object",
            ),
            (r#""arguments":{}"#, "/name is required"),
            (r#""name":1"#, "/name must be of type string"),
        ] {
            let answer = call(&mut client, &indirect(params)).await;
            assert_eq!(answer.member("result.isError"), "true");
            assert!(answer.answer.contains(expected), "{}", answer.answer);
        }
        for name in ["nope", "find_tools", "call_tool"] {
            let params = format!(r#""name":"{name}","arguments":{{}}"#);
            let answer = call(&mut client, &indirect(&params)).await;
            let unknown = call(&mut client, r#""name":"nope","arguments":{}"#).await;
            assert_eq!(answer.answer.replace(name, "nope"), unknown.answer);
        }
    }
    assert_eq!(a.received("tools/call").len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_is_lean_only_where_it_has_to_be() {
    let a = server(Era::Modern, Transport::Http).await;
    let full = ["read", "delete_file", "show"];
    let lean = ["show", "find_tools", "call_tool"];
    for (rules, expected) in [
        ("{}", &lean),
        (r#"{"max":50}"#, &lean),
        (r#"{"max":100000}"#, &full),
        (r#"{"except":["other*"]}"#, &lean),
        (r#"{"except":["other","ra*"]}"#, &full),
    ] {
        for (era, transport) in [
            (Era::Modern, Transport::Http),
            (Era::Legacy, Transport::Http),
            (Era::Modern, Transport::Stdio),
            (Era::Legacy, Transport::Stdio),
        ] {
            let config = config(&[a.entry("a")], rules);
            let mut client = Client::start(&config, era, transport).await;
            let list = client.request("1", "tools/list", "", "").await;
            assert_eq!(names(&list), *expected, "{rules} {era:?}");
            if *expected == full {
                let unknown = find(&mut client, r#"{"query":"x"}"#).await;
                assert_eq!(unknown.member("error.code"), "-32602");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_tools_give_way_to_tools_of_servers() {
    let a = server(Era::Modern, Transport::Http).await;
    a.offers_tools(&["find_tools", "read"]);
    let mut client =
        Client::start(&config(&[a.entry("a")], "{}"), Era::Modern, Transport::Http).await;
    let list = client.request("1", "tools/list", "", "").await;
    assert_eq!(
        names(&list),
        ["fanlight__find_tools", "fanlight__call_tool"]
    );
    find(&mut client, "{}").await;
    let params = r#""name":"fanlight__call_tool","arguments":{"name":"find_tools"}"#;
    call(&mut client, params).await;
    assert_eq!(a.received("tools/call").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_of_apps_are_listed() {
    let a = server(Era::Modern, Transport::Http).await;
    let metas = [
        r#""ui":{"resourceUri":"ui://a"}"#,
        r#""ui/resourceUri":"ui://a""#,
        r#""ui":{"visibility":["app"]}"#,
        r#""uis":{}"#,
    ];
    let tools = metas.iter().enumerate().map(|(at, meta)| {
        format!(r#"{{"name":"t{at}","inputSchema":{{"type":"object"}},"_meta":{{{meta}}}}}"#)
    });
    let tools: Vec<_> = tools.collect();
    a.on("tools/list", a.list("tools", &tools.join(",")));
    let config = config(&[a.entry("a")], "{}");
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    let list = client.request("1", "tools/list", "", "").await;
    let listed = ["t0", "t1", "t2", "find_tools", "call_tool"];
    assert_eq!(names(&list), listed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_list_is_searched() {
    let (a, b) = (
        server(Era::Modern, Transport::Http).await,
        server(Era::Legacy, Transport::Http).await,
    );
    let entries = [a.entry("a"), b.entry("b")];
    let mut client = Client::start(&config(&entries, "{}"), Era::Modern, Transport::Http).await;
    for (tools, query, expected) in [
        (
            &["read_file", "write_file"][..],
            "write a file",
            "a__write_file",
        ),
        (&["read_file", "send_mail"], "send a mail", "a__send_mail"),
        (&["send_mail"], "send a mail", "a__send_mail"),
        (
            &["write_file", "send_mail"],
            "write a file",
            "a__write_file",
        ),
    ] {
        a.offers_tools(tools);
        let list = client.request("1", "tools/list", "", "").await;
        let manifest = format!("a (a__*), {} tools", tools.len());
        assert!(list.answer.contains(&manifest), "{}", list.answer);
        let arguments = format!(r#"{{"query":"{query}","limit":1}}"#);
        assert_eq!(names(&find(&mut client, &arguments).await), [expected]);
        // The other server's tools are the same.
        let other = find(&mut client, r#"{"query":"erase","limit":1}"#).await;
        assert_eq!(names(&other), ["b__delete_file"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_with_cut_names_are_found_by_their_own() {
    let (a, b) = (
        server(Era::Modern, Transport::Http).await,
        server(Era::Modern, Transport::Http).await,
    );
    let long = "a_server_with_a_name_that_is_longer_than_clients_accept";
    let config = config(&[a.entry(long), b.entry("b")], "{}").replacen(
        '{',
        r#"{"naming":{"safe":true},"#,
        1,
    );
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    let found = find(&mut client, r#"{"query":"delete"}"#).await;
    assert_eq!(names(&found).len(), 2, "{}", found.answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn span_and_metrics_name_the_tool_that_ran() {
    for era in [Era::Legacy, Era::Modern] {
        let (a, b) = (
            server(Era::Modern, Transport::Http).await,
            server(Era::Legacy, Transport::Http).await,
        );
        let entries = [a.entry("a"), b.entry("b")];
        let mut client = Client::start(&config(&entries, "{}"), era, Transport::Http).await;
        let direct = r#""name":"b__delete_file","arguments":{}"#;
        let misfit = r#""name":"b__read","arguments":{}"#;
        for params in [
            direct,
            &indirect(&direct.replace("b__", "a__")),
            &indirect(misfit),
            &indirect(r#""name":"nope""#),
        ] {
            call(&mut client, params).await;
        }
        find(&mut client, r#"{"query":"file"}"#).await;
        let gateway = client.gateway();
        let metrics = text_at(gateway, "/metrics").await;
        for tool in ["a__delete_file", "b__delete_file", "b__read", "find_tools"] {
            let traces = text_at(gateway, &format!("/api/traces?tool={tool}")).await;
            assert!(traces.contains(&format!("tools/call {tool}")), "{traces}");
            let label = format!(r#"gen_ai_tool_name="{tool}""#);
            assert!(metrics.contains(&label), "{tool}: {metrics}");
        }
        // There is no tool that the last one could be named after.
        let unknown = text_at(gateway, "/api/traces?tool=call_tool").await;
        assert_eq!(unknown.matches("tools/call").count(), 1, "{unknown}");
        assert!(
            !metrics.contains("nope") && !metrics.contains(r#""call_tool""#),
            "{metrics}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indirect_call_mirrors_arguments_for_its_server() {
    let a = server(Era::Modern, Transport::Http).await;
    let tool = r#"{"name":"sql","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
    a.on("tools/list", a.list("tools", tool));
    for era in [Era::Legacy, Era::Modern] {
        let config = config(&[a.entry("a")], "{}");
        let mut client = Client::start(&config, era, Transport::Http).await;
        let params = indirect(r#""name":"sql","arguments":{"region":"eu"}"#);
        let answer = call(&mut client, &params).await;
        assert!(answer.answer.contains("1E400"), "{}", answer.answer);
        let received = a.received("tools/call");
        let received = received.last().unwrap();
        assert_eq!(received.header("mcp-param-region"), Some("eu"));
        assert_eq!(received.header("mcp-name"), Some("sql"));
    }
}

/// The four pairs of eras.
const PAIRS: [(Era, Era); 4] = [
    (Era::Legacy, Era::Legacy),
    (Era::Legacy, Era::Modern),
    (Era::Modern, Era::Legacy),
    (Era::Modern, Era::Modern),
];

/// The gates judge what a server gets; Fanlight's own answers concern no item of a server.
#[tokio::test]
async fn own_tools_need_no_turn_of_a_tool_no_hook_and_no_item_of_a_policy() {
    let server = server(Era::Modern, Transport::Http).await;
    server.on(
        "tools/call",
        Reply::result(Era::Modern.complete(&format!(
            r#""content":[{{"type":"text","text":"{}"}}]"#,
            "x".repeat(100_000)
        ))),
    );
    let guardrail = HttpRecorder::start(|_| says(r#"{"decision":"deny","text":"no"}"#)).await;
    let entry = server.entry("a");
    let entry = entry.replacen(":{", r#":{"allowTools":{"delete_*":["group:nobody"]},"#, 1);
    let config = format!(
        r#"{{"hooks":[{{"url":"http://{}/judge","timeout":"10s","match":{{"tool":["a/show"]}}}}],
            "limits":{{"rates":[{{"for":"tool","rate":"1/h"}},{{"for":"principal","rate":"1000/h","queue":"1s"}}]}},
            "endpoints":{{"/mcp":{{"lean":{{}},"results":{{}}}}}},"mcpServers":{{{entry}}}}}"#,
        guardrail.address
    );
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    for _ in 0..3 {
        let found = find(&mut client, r#"{"query":"file"}"#).await;
        assert_eq!(names(&found), ["read"], "{}", found.answer);
    }
    let long = call(
        &mut client,
        &indirect(r#""name":"read","arguments":{"path":"x"}"#),
    )
    .await;
    let uri = long
        .answer
        .split('"')
        .find(|text| text.starts_with("fanlight-result:"));
    let uri = uri.unwrap_or_else(|| panic!("{}", long.answer));
    for _ in 0..2 {
        let params = format!(r#""name":"read_result","arguments":{{"uri":"{uri}","bytes":"0-3"}}"#);
        let part = call(&mut client, &params).await;
        assert_eq!(
            part.member("result.content"),
            r#"[{"type":"text","text":"xxxx"}]"#
        );
        let params = format!(r#""uri":"{uri}?bytes=0-3""#);
        let part = client.request("1", "resources/read", &params, "").await;
        assert!(part.answer.contains(r#""text":"xxxx""#), "{}", part.answer);
    }
    assert!(guardrail.requests().is_empty());
    let again = call(
        &mut client,
        &indirect(r#""name":"read","arguments":{"path":"x"}"#),
    )
    .await;
    assert_eq!(again.member("error.code"), "-31008", "the tool has a limit");
    let denied = call(&mut client, &indirect(r#""name":"show","arguments":{}"#)).await;
    assert_eq!(
        denied.member("error.code"),
        "-31005",
        "the hook judges the tool"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indirect_call_is_like_a_direct_one() {
    const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"\u0041"}}"#;
    for (front, back) in PAIRS {
        let a = server(back, Transport::Http).await;
        let config = config(&[a.entry("a")], "{}");
        let mut client = Client::start(&config, front, Transport::Http).await;
        client.progress_token = "\"p\"".to_owned();
        let params = r#""name":"delete_file","arguments":{"q":"\u0041"}"#;
        let content = r#""content":[],"_meta":{"k":1.0}"#;
        for reply in [
            Reply::result(back.complete(content)),
            Reply::result(back.complete(r#""content":[],"isError":true"#)),
            Reply::error(r#"{"code":-32001,"message":"m","data":{"d":1.0}}"#),
            Reply::result(back.complete(content)).after(&[PROGRESS, LOG]),
        ] {
            a.on("tools/call", reply);
            let direct = call(&mut client, params).await;
            let through = call(&mut client, &indirect(params)).await;
            assert_eq!(direct.answer, through.answer, "{front:?} {back:?}");
            assert_eq!(direct.before, through.before, "{front:?} {back:?}");
        }
        let received = a.received("tools/call");
        for pair in received.chunks(2) {
            for part in ["params.name", "params.arguments"] {
                assert_eq!(pair[0].member(part), pair[1].member(part));
            }
            assert_eq!(pair[0].header("mcp-name"), pair[1].header("mcp-name"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indirect_call_asks_its_client() {
    const ASK: &str = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}"#;
    for (front, back) in PAIRS {
        let a = server(back, Transport::Stdio).await;
        match back {
            Era::Legacy => a.on(
                "tools/call",
                Reply::conclude(|_, answers| {
                    let answered = answers[0].member("result").unwrap_or("null");
                    format!(r#"{{"content":[],"structuredContent":{answered}}}"#)
                })
                .asking(&[ASK]),
            ),
            Era::Modern => a.on(
                "tools/call",
                Reply::compute(|call| match call.member("params.inputResponses") {
                    None => r#"{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"s"}"#.to_owned(),
                    Some(answers) => format!(
                        r#"{{"resultType":"complete","content":[],"structuredContent":{}}}"#,
                        member(answers, "q").unwrap_or("null")
                    ),
                }),
            ),
        }
        let config = config(&[a.entry("a")], "{}");
        let knows = r#"{"elicitation":{}}"#;
        let mut client = Client::start_with(knows, &config, front, Transport::Http).await;
        let params = r#""name":"delete_file","arguments":{}"#;
        let mut answers = Vec::new();
        for params in [params.to_owned(), indirect(params)] {
            let answer = |_: &str, _: Option<&str>| r#"{"action":"decline"}"#.to_owned();
            let got = client.converse("1", "tools/call", &params, answer).await;
            assert!(
                got.answer.contains("decline"),
                "{front:?} {back:?}: {}",
                got.answer
            );
            answers.push(got.answer);
        }
        assert_eq!(answers[0], answers[1], "{front:?} {back:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indirect_call_can_be_a_task() {
    const LEGACY: &str =
        r#""createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":600000"#;
    const MODERN: &str = r#""createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttlMs":600000"#;
    for (front, back) in PAIRS {
        let a = server(back, Transport::Http).await;
        match back {
            Era::Legacy => {
                a.declares(r#"{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}"#);
                a.on(
                    "tools/call",
                    Reply::result(format!(
                        r#"{{"task":{{"taskId":"t-1","status":"working",{LEGACY}}}}}"#
                    )),
                );
                let got = format!(r#"{{"taskId":"t-1","status":"working",{LEGACY}}}"#);
                a.on("tasks/get", Reply::result(got));
            }
            Era::Modern => {
                a.declares(r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
                let task = |kind| {
                    format!(
                        r#"{{"resultType":"{kind}","taskId":"t-1","status":"working",{MODERN}}}"#
                    )
                };
                a.on("tools/call", Reply::result(task("task")));
                a.on("tasks/get", Reply::result(task("complete")));
            }
        }
        let b = server(Era::Modern, Transport::Http).await;
        let config = config(&[a.entry("a"), b.entry("b")], "{}");
        let knows = match front {
            Era::Legacy => "{}",
            Era::Modern => r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        };
        let mut client = Client::start_with(knows, &config, front, Transport::Http).await;
        let task = match front {
            Era::Legacy => r#","task":{"ttl":600000}"#,
            Era::Modern => "",
        };
        let params = r#""name":"a__delete_file","arguments":{}"#;
        let mut states = Vec::new();
        for params in [params.to_owned(), indirect(params)] {
            let made = call(&mut client, &format!("{params}{task}")).await;
            let id = member(&made.answer, "result.task.taskId")
                .or_else(|| member(&made.answer, "result.taskId"));
            let id = id.unwrap_or_else(|| panic!("{front:?} {back:?}: {}", made.answer));
            let params = format!(r#""taskId":{id}"#);
            let got = client.request("2", "tasks/get", &params, "").await;
            states.push(got.answer.replace(id, "ID"));
        }
        assert!(states[0].contains("working"), "{}", states[0]);
        assert_eq!(states[0], states[1], "{front:?} {back:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indirect_call_can_be_cancelled() {
    for back in [Era::Legacy, Era::Modern] {
        let a = server(back, Transport::Stdio).await;
        let config = config(&[a.entry("a")], "{}");
        let gateway = Gateway::start(&config).await;
        let params = indirect(r#""name":"delete_file","arguments":{}"#);
        a.on("tools/call", Reply::fault(Fault::Hang).after(&[PROGRESS]));
        let request = modern_request("7", "tools/call", &params, r#""progressToken":1"#);
        let mut response = post_modern(gateway.mcp, &request).await;
        response.event().await.unwrap().expect("progress first");
        drop(response);
        a.wait_for("notifications/cancelled", 1).await;

        let gate = Gate::new();
        let reply = Reply::result(back.complete(r#""content":[]"#)).after(&[PROGRESS]);
        a.on("tools/call", reply.gated(&gate));
        let session = LegacySession::open(gateway.mcp).await;
        let params = format!(r#"{params},"_meta":{{"progressToken":1}}"#);
        let mut left = session
            .post(&legacy_request("8", "tools/call", &params))
            .await;
        left.event().await.unwrap().expect("progress first");
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}"#;
        assert_eq!(session.post(cancel).await.status, 202);
        a.wait_for("notifications/cancelled", 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_shows_ranks_and_checks_expectations() {
    let a = server(Era::Modern, Transport::Http).await;
    let b = server(Era::Legacy, Transport::Http).await;
    let file = TempFile::new("json", &config(&[a.entry("a"), b.entry("b")], "{}"));
    let expectations = TempFile::folder();
    let path = expectations.path().join("expect.jsonl");
    let run = async |arguments: &[&str]| {
        let mut command = fanlight();
        command.arg("find").args(arguments);
        let output = command
            .arg("--config")
            .arg(file.path())
            .output()
            .await
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let (status, shown) = run(&["erase documents"]).await;
    assert_eq!(status, Some(0), "{shown}");
    assert!(
        shown.contains("a__delete_file") && shown.contains("eras as delet"),
        "{shown}"
    );
    let line = r#"{"query":"erase documents","expect":["a__delete_file"]}"#;
    fs::write(&path, line).unwrap();
    let path = path.to_str().unwrap();
    let (status, shown) = run(&["--expect", path]).await;
    assert_eq!(status, Some(0), "{shown}");
    fs::write(path, line.replace("erase documents", "show")).unwrap();
    let (status, shown) = run(&["--expect", path]).await;
    assert_eq!(status, Some(1), "{shown}");
    assert!(shown.contains("a__delete_file is not found"), "{shown}");
}

/// The figures of searches through `find_tools` with `limit: 20`, by the catalogues and queries in
/// `../shared/lean`. Without these files there is nothing to measure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_find_what_tasks_need() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/lean");
    let read = |file: &str| -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(folder.join(file)).ok()?).ok()
    };
    let (Some(small), Some(large), Some(queries), Some(tasks)) = (
        read("catalogue-45.json"),
        read("catalogue-527.json"),
        read("queries-open.json"),
        read("tasks-open.json"),
    ) else {
        return;
    };
    let mut gateway = Searched::start(&small, "schema").await;
    let (mut recalls, mut gains) = (Vec::new(), Vec::new());
    for query in queries.as_array().unwrap() {
        let found = gateway.find(query["query"].as_str().unwrap()).await;
        let labels = query["labels"].as_array().unwrap().iter();
        let labels: Vec<_> = labels
            .filter(|label| label["relevance"] != json!(0))
            .collect();
        let place = |label: &Value| {
            let mut names = found
                .iter()
                .map(|(server, name)| format!("{server}:{name}"));
            names.position(|name| label["tool_id"] == json!(name))
        };
        let gain = |label: &Value| label["relevance"].as_f64().unwrap().exp2() - 1.0;
        let share = |at: usize| 1.0 / ((at + 2) as f64).log2();
        let hits = labels
            .iter()
            .filter(|label| place(label).is_some_and(|at| at < 5));
        recalls.push(hits.count() as f64 / labels.len() as f64);
        let got: f64 = labels
            .iter()
            .filter_map(|label| Some(gain(label) * share(place(label).filter(|at| *at < 10)?)))
            .sum();
        let mut best: Vec<_> = labels.iter().map(|label| gain(label)).collect();
        best.sort_by(|a, b| b.total_cmp(a));
        let most: f64 = best
            .iter()
            .enumerate()
            .map(|(at, gain)| gain * share(at))
            .sum();
        gains.push(got / most);
    }
    let mut gateway = Searched::start(&large, "inputSchema").await;
    let list = gateway.client.request("1", "tools/list", "", "").await;
    let (lean, full) = (list.member("result.tools").len(), gateway.bytes);
    println!("lean list: {lean} of {full} bytes");
    assert!(lean < full * 3 / 100 + 2048, "{}", list.answer);
    let mut hits = [Vec::new(), Vec::new(), Vec::new()];
    for task in tasks.as_array().unwrap() {
        let mut found = Vec::new();
        for step in task["steps"].as_array().unwrap() {
            found.push(gateway.find(step.as_str().unwrap()).await);
        }
        for tool in task["tools"].as_array().unwrap() {
            let tool = tool.as_str().unwrap();
            let servers: BTreeSet<_> = gateway.servers_of(tool);
            if servers.is_empty() {
                continue;
            }
            let within = |most: usize| {
                let is_it = |(_, name): &(String, String)| name.eq_ignore_ascii_case(tool);
                f64::from(found.iter().any(|found| found.iter().take(most).any(is_it)))
            };
            let has_server = found.iter().any(|found| {
                let mut distinct: Vec<&String> = Vec::new();
                for (server, _) in found {
                    if !distinct.contains(&server) {
                        distinct.push(server);
                    }
                }
                distinct
                    .iter()
                    .take(3)
                    .any(|server| servers.contains(*server))
            });
            hits[0].push(within(5));
            hits[1].push(within(10));
            hits[2].push(f64::from(has_server));
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    for (what, values, goal) in [
        ("45 tools, R@5", &recalls, 0.82),
        ("45 tools, nDCG@10", &gains, 0.75),
        ("527 tools, R@5", &hits[0], 0.67),
        ("527 tools, R@10", &hits[1], 0.76),
        ("527 tools, server among the first 3", &hits[2], 0.86),
    ] {
        let found = mean(values);
        println!("{what}: {found:.3}");
        assert!(found >= goal, "{what}: {found:.3} < {goal}");
    }
}

/// A gateway in front of the servers of a catalogue.
struct Searched {
    client: Client,
    /// The server and the tool of each name for clients.
    tools: Vec<(String, String, String)>,
    /// The bytes of all definitions.
    bytes: usize,
    _servers: Vec<Backend>,
}

impl Searched {
    async fn start(catalogue: &Value, schema: &str) -> Self {
        let (mut tools, mut servers, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        let all = catalogue["tools"].as_array().unwrap();
        let mut names: Vec<&str> = all
            .iter()
            .map(|tool| tool["server"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        names.dedup();
        for (at, server) in names.into_iter().enumerate() {
            let backend = Backend::start(Era::Modern, Transport::Http).await;
            let own = all.iter().filter(|tool| tool["server"] == json!(server));
            let definitions = own.map(|tool| {
                let name = tool["tool"].as_str().unwrap();
                tools.push((format!("s{at}__{name}"), server.to_owned(), name.to_owned()));
                let schema = tool[schema].as_object().cloned().unwrap_or_default();
                let mut schema = Value::Object(schema);
                schema["type"] = json!("object");
                json!({"name": name, "description": tool["description"], "inputSchema": schema})
            });
            let definitions: Vec<_> = definitions.map(|tool| tool.to_string()).collect();
            bytes += definitions.iter().map(String::len).sum::<usize>();
            backend.on("tools/list", backend.list("tools", &definitions.join(",")));
            let prefix = format!(r#""prefix":"s{at}__""#);
            entries.push(backend.entry_with(server, &prefix));
            servers.push(backend);
        }
        let client = Client::start(&config(&entries, "{}"), Era::Modern, Transport::Http).await;
        Self {
            client,
            tools,
            bytes,
            _servers: servers,
        }
    }

    async fn find(&mut self, query: &str) -> Vec<(String, String)> {
        let arguments = json!({"query": query, "limit": 20});
        let found = find(&mut self.client, &arguments.to_string()).await;
        let known = |name: String| {
            let found = self.tools.iter().find(|tool| tool.0 == name);
            let (_, server, tool) = found.unwrap_or_else(|| panic!("{name}"));
            (server.clone(), tool.clone())
        };
        names(&found).into_iter().map(known).collect()
    }

    fn servers_of(&self, tool: &str) -> BTreeSet<String> {
        let named = self
            .tools
            .iter()
            .filter(|known| known.2.eq_ignore_ascii_case(tool));
        named.map(|known| known.1.clone()).collect()
    }
}

/// A client of a gateway whose servers have all been read.
async fn whole_list(config: &str) -> Client {
    let mut client = Client::start(config, Era::Modern, Transport::Http).await;
    // On a busy machine some servers take too long at first.
    let mut list = client.request("1", "tools/list", "", "").await;
    while list.answer.contains("dev.fanlight/backends") {
        list = client.request("1", "tools/list", "", "").await;
    }
    client
}

/// The time of searches and the memory for them at 10,000 tools of 200 servers. Times are printed,
/// since they depend on the program and on the machine: docs/lean.md has the command and figures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures an optimized program"]
async fn ten_thousand_tools_are_searched_quickly() {
    if std::env::var_os("FANLIGHT_TEST_BINARY").is_none() {
        return;
    }
    let mut seed = 1_usize;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    // A few words are common, and most are rare.
    let mut text = |words: usize| {
        let words = (0..words).map(|_| {
            let most = [40, 2_000, 40_000][random(3)];
            let mut number = random(most);
            let mut word = String::new();
            for _ in 0..4 {
                word.push(b"bcdfglmnprst"[number % 12] as char);
                word.push(b"aeio"[number % 4] as char);
                number /= 12;
            }
            word
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let queries: Vec<_> = (0..300).map(|_| text(6)).collect();
    let mut tools = |new: &str| {
        let tools = (0..50).map(|at| {
            let tool = json!({"name": format!("{}_{at}{new}", text(2).replace(' ', "_")), "description": format!("{}. {}", text(10), text(30)),
                "inputSchema": {"type": "object", "properties": {text(1): {"type": "string", "description": text(10)}, text(1): {"type": "string", "description": text(15)}}}});
            tool.to_string()
        });
        tools.collect::<Vec<_>>().join(",")
    };
    let (mut servers, mut entries) = (Vec::new(), Vec::new());
    for at in 0..200 {
        let server = Backend::start(Era::Legacy, Transport::Http).await;
        server.declares(r#"{"tools":{"listChanged":true}}"#);
        server.serves_get();
        server.on("tools/list", server.list("tools", &tools("")));
        entries.push(server.entry(&format!("s{at}")));
        servers.push(server);
    }
    let of_servers = format!(r#""mcpServers":{{{}}}"#, entries.join(","));
    let memory = |client: &Client| client.gateway().memory() as f64 / f64::from(1 << 20);
    let plain = memory(&whole_list(&format!("{{{of_servers}}}")).await);
    let endpoints = r#""/mcp":{"lean":{}},"/one":{"lean":{},"servers":["s1"]},"/most":{"lean":{},"tools":{"deny":["s2/*"]}}"#;
    let config = format!(r#"{{"endpoints":{{{endpoints}}},{of_servers}}}"#);
    let mut client = whole_list(&config).await;
    let began = Instant::now();
    let search = |query: &str| json!({"query": query}).to_string();
    find(&mut client, &search("bababa")).await;
    println!("first search: {:?}", began.elapsed());
    let before = memory(&client);
    println!("memory of the index: {:.1} MiB", before - plain);
    assert!(before - plain <= 60.0);
    let mut times = Vec::new();
    for query in queries {
        find(&mut client, &search(&query)).await;
    }
    let traces = api(client.gateway(), "/api/traces?tool=find_tools&limit=300").await;
    for trace in traces["traces"].as_array().unwrap() {
        times.push(trace["durationMs"].as_f64().unwrap());
    }
    times.sort_by(f64::total_cmp);
    println!(
        "median of {} spans: {:.3} ms",
        times.len(),
        times[times.len() / 2]
    );
    for path in ["/one", "/most"] {
        let before = memory(&client);
        let params = format!(r#""name":"find_tools","arguments":{}"#, search("bababa"));
        let body = modern_request("1", "tools/call", &params, "");
        let headers = modern_headers(&body);
        let headers = headers.iter().map(|(name, value)| (&**name, &**value));
        let headers: Vec<_> = JSON_HEADERS.into_iter().chain(headers).collect();
        let mut connection = Connection::open(client.gateway().mcp).await;
        connection
            .request("POST", path, &headers, body.as_bytes())
            .await;
        assert_eq!(connection.response().await.status, 200);
        let more = memory(&client) - before;
        println!("memory of the view {path}: {more:.1} MiB");
        assert!(more <= 2.0);
    }
    let changed = &servers[7];
    let lists = changed.received("tools/list").len();
    changed.on("tools/list", changed.list("tools", &tools("zebra")));
    // The first one was to the gateway without lean lists.
    let stream = changed.stream(1).await;
    let change = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    stream.message(change).await;
    changed.wait_for("tools/list", lists + 1).await;
    let began = Instant::now();
    let found = async { while names(&find(&mut client, &search("zebra")).await).is_empty() {} };
    within("the changed list", found).await;
    println!("a changed list is searchable after {:?}", began.elapsed());
    println!("memory after that: {:.1} MiB", memory(&client) - before);
}
