//! Calls that need approval, through the real binary.

use std::net::SocketAddr;

use fanlight_tests::slicer::member;

use crate::clients::Client;
use crate::harness::{Gateway, Log, fanlight, within};
use crate::raw_client::{Connection, Response};
use crate::scripted::{Backend, Era, Fault, Reply, Transport, config};

const CAN_ASK: &str = r#"{"elicitation":{}}"#;
const CALL: &str = r#""name":"erase","arguments":{"path":"\/a","n":1.0}"#;
const ARGUMENTS: &str = r#"{"path":"\/a","n":1.0}"#;
const CLIENTS: [(Era, Transport); 4] = [
    (Era::Modern, Transport::Http),
    (Era::Legacy, Transport::Http),
    (Era::Modern, Transport::Stdio),
    (Era::Legacy, Transport::Stdio),
];

async fn backend() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["erase", "look"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend
}

/// A configuration in which calls of `erase` need approval.
fn asking(backend: &Backend, by: &str, wait: &str) -> String {
    let approval = format!(r#""approval":{{"tools":["erase"],"by":"{by}"}}"#);
    let servers = config(&[backend.entry_with("only", &approval)]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    format!(r#"{servers},"timeouts":{{"approval":"{wait}"}}}}"#)
}

async fn send(admin: SocketAddr, method: &str, path: &str) -> Response {
    let mut connection = Connection::open(admin).await;
    let origin = format!("http://{admin}");
    connection
        .request(method, path, &[("Origin", &origin)], b"")
        .await;
    connection.response().await
}

/// The id of the first question to operators.
async fn asked(log: &Log) -> String {
    let line = log
        .line_with_all(&[r#""target":"audit""#, "approval of a call: asked"])
        .await;
    let (_, id) = line.split_once(r#""id":""#).expect("an id");
    id.split('"').next().unwrap().to_owned()
}

fn calls(backend: &Backend) -> usize {
    backend.received("tools/call").len()
}

#[tokio::test]
async fn caller_is_asked_by_their_own_client_in_both_eras() {
    for (era, transport) in CLIENTS {
        let backend = backend().await;
        let mut client =
            Client::start_with(CAN_ASK, &asking(&backend, "caller", "50s"), era, transport).await;
        for (action, is_run) in [
            ("decline", false),
            ("cancel", false),
            (r#"accept","action":"decline"#, false),
            ("accept", true),
        ] {
            let mut questions = Vec::new();
            let answer = client
                .converse("1", "tools/call", CALL, |method, params| {
                    questions.push(params.unwrap_or_default().to_owned());
                    assert_eq!(method, "elicitation/create");
                    format!(r#"{{"action":"{action}"}}"#)
                })
                .await;
            assert_eq!(questions.len(), 1, "{era:?} {transport:?} {action}");
            let message = member(&questions[0], "message").unwrap();
            assert!(
                message.contains("only/erase") && message.contains(r#"\"n\":1.0"#),
                "{message}"
            );
            match is_run {
                true => assert_eq!(answer.member("result.content"), "[]"),
                false => assert_eq!(answer.member("error.code"), "-31007"),
            }
            assert_eq!(
                calls(&backend),
                usize::from(is_run),
                "{era:?} {transport:?} {action}"
            );
        }
        let received = backend.received("tools/call");
        assert_eq!(received[0].member("params.arguments"), Some(ARGUMENTS));
        // Other tools need no approval.
        client.call("look").await.member("result.content");
    }
}

#[tokio::test]
async fn call_waits_for_an_operator_and_then_goes_on() {
    for (era, word) in [
        (Era::Modern, "approve"),
        (Era::Legacy, "approve"),
        (Era::Modern, "refuse"),
    ] {
        let backend = backend().await;
        // The client could ask its user but does not, since the rule requires an operator.
        let config = asking(&backend, "operator", "50s");
        let mut client = Client::start_with(CAN_ASK, &config, era, Transport::Http).await;
        let (admin, log) = (client.gateway().admin, client.gateway().log.clone());
        let decided = async {
            let id = asked(&log).await;
            let list = send(admin, "GET", "/api/approvals").await.text().await;
            assert!(
                list.contains(&id)
                    && list.contains(r#""arguments":"{\"path\":\"\\/a\",\"n\":1.0}""#),
                "{list}"
            );
            assert_eq!(calls(&backend), 0, "nothing runs before");
            assert_eq!(
                send(admin, "POST", &format!("/api/approvals/{id}/{word}"))
                    .await
                    .status,
                200
            );
        };
        let (answer, ()) = tokio::join!(client.request("1", "tools/call", CALL, ""), decided);
        match word {
            "approve" => assert_eq!(answer.member("result.content"), "[]"),
            _ => assert_eq!(answer.member("error.data.status"), r#""refused""#),
        }
        assert_eq!(calls(&backend), usize::from(word == "approve"));
    }
}

#[tokio::test]
async fn approval_for_one_server_does_not_count_at_another_of_the_same_name() {
    let (shown, other) = (backend().await, backend().await);
    let (first, moved) = (
        asking(&shown, "operator", "10ms"),
        asking(&other, "operator", "10ms"),
    );
    let mut client = Client::start(&first, Era::Modern, Transport::Http).await;
    let asked = client.request("1", "tools/call", CALL, "").await;
    let id = asked.member("error.data.approval").trim_matches('"');
    let path = format!("/api/approvals/{id}/approve");
    let gateway = client.gateway();
    assert_eq!(send(gateway.admin, "POST", &path).await.status, 200);
    gateway.configure(&moved);
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 200, "{report}");
    let again = client.request("2", "tools/call", CALL, "").await;
    assert_eq!(again.member("error.data.status"), r#""open""#);
    assert_eq!((calls(&shown), calls(&other)), (0, 0));
}

#[tokio::test]
async fn call_that_cannot_wait_is_sent_again_and_runs_once() {
    let backend = backend().await;
    let config = asking(&backend, "operator", "10ms");
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    let answer = client.request("1", "tools/call", CALL, "").await;
    assert_eq!(
        (
            answer.member("error.code"),
            answer.member("error.data.status")
        ),
        ("-31007", r#""open""#)
    );
    assert_eq!(answer.member("error.data.mayHaveRun"), "false");
    let id = answer
        .member("error.data.approval")
        .trim_matches('"')
        .to_owned();
    // The operators' command shows the call with the arguments that will run.
    let url = format!("http://{}", client.gateway().admin);
    let listed = fanlight()
        .args(["approvals", "--admin", &url])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(
        text.contains(&id) && text.contains("only/erase") && text.contains(r#""path": "\/a""#),
        "{text}"
    );
    let approved = fanlight()
        .args(["approvals", "approve", &id, "--admin", &url])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(approved.stdout).unwrap();
    assert!(
        approved.status.success() && text.contains("runs when its client sends it again"),
        "{text}"
    );
    // A different call causes a different question.
    let other = client
        .request(
            "2",
            "tools/call",
            r#""name":"erase","arguments":{"path":"\/b","n":1.0}"#,
            "",
        )
        .await;
    assert_ne!(other.member("error.data.approval").trim_matches('"'), id);
    // So does anything else that the server would get.
    for (number, more) in [
        r#","amount":9999"#,
        r#","task":{"ttl":60000}"#,
        r#","requestState":"{\"amount\":9999}""#,
        r#","inputResponses":{"amount":{"action":"accept","content":{"amount":9999}}}"#,
        r#","inputResponses":{},"requestState":"s""#,
    ]
    .into_iter()
    .enumerate()
    {
        let params = format!("{CALL}{more}");
        let id_of = format!("\"m{number}\"");
        let other = client.request(&id_of, "tools/call", &params, "").await;
        assert_eq!(other.member("error.code"), "-31007", "{more}");
        let is_refused = more.contains("inputResponses");
        let status = if is_refused { "unasked" } else { "open" };
        assert_eq!(
            other.member("error.data.status").trim_matches('"'),
            status,
            "{more}"
        );
    }
    let meta = r#""com.example/amount":9999"#;
    let other = client.request(r#""m""#, "tools/call", CALL, meta).await;
    assert_eq!(other.member("error.data.status"), r#""open""#);
    let mut shown = send(client.gateway().admin, "GET", "/api/approvals").await;
    let shown = shown.text().await;
    for more in [
        r#""more":"{\"_meta\":{\"com.example/amount\":9999}}""#,
        r#""more":"{\"amount\":9999}""#,
        r#""more":"{\"requestState\":\"{\\\"amount\\\":9999}\"}""#,
    ] {
        assert!(shown.contains(more), "{more} {shown}");
    }
    assert_eq!(calls(&backend), 0);
    assert_eq!(
        client
            .request("3", "tools/call", CALL, "")
            .await
            .member("result.content"),
        "[]"
    );
    let again = client.request("4", "tools/call", CALL, "").await;
    assert_ne!(
        again.member("error.data.approval").trim_matches('"'),
        id,
        "an approval is good once"
    );
    assert_eq!(calls(&backend), 1);
}

/// An approval covers one execution, even if annotations allow repeating the call.
#[tokio::test]
async fn approved_call_is_neither_repeated_nor_copied() {
    let (backend, mirror) = (backend().await, backend().await);
    for server in [&backend, &mirror] {
        let tool = |name| {
            format!(
                r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":true}}}}"#
            )
        };
        server.on(
            "tools/list",
            server.list("tools", &[tool("erase"), tool("look")].join(",")),
        );
    }
    let options = r#""retry":"safe","mirror":{"server":"copy","share":1},"approval":{"tools":["erase"],"by":"caller"}"#;
    let config = config(&[backend.entry_with("only", options), mirror.entry("copy")]);
    let mut client = Client::start_with(CAN_ASK, &config, Era::Modern, Transport::Http).await;
    for breaks_off in [false, true] {
        let before = calls(&backend);
        if breaks_off {
            backend.once("tools/call", Reply::fault(Fault::BreakOff));
        }
        let accept = |_: &str, _: Option<&str>| r#"{"action":"accept"}"#.to_owned();
        let answer = client.converse("1", "tools/call", CALL, accept).await;
        assert_eq!(
            (
                calls(&backend) - before,
                answer.member_at(&["error"]).is_some()
            ),
            (1, breaks_off)
        );
    }
    client.call("look").await.member("result.content");
    mirror.wait_for_target("tools/call", "look", 1).await;
    assert_eq!(mirror.count_of_target("tools/call", "erase"), 0);
}

#[tokio::test]
async fn cancelled_call_does_not_run_when_it_is_approved_later() {
    let backend = backend().await;
    let gateway = Gateway::start(&asking(&backend, "operator", "50s")).await;
    let body = crate::raw_client::modern_request("1", "tools/call", CALL, "");
    let own = crate::raw_client::modern_headers(&body);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = crate::raw_client::JSON_HEADERS
        .into_iter()
        .chain(own)
        .collect();
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    let id = asked(&gateway.log).await;
    drop(connection);
    within("the end of the call", async {
        while send(gateway.admin, "GET", "/api/approvals")
            .await
            .text()
            .await
            .contains(r#""waiting":true"#)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(
        send(
            gateway.admin,
            "POST",
            &format!("/api/approvals/{id}/approve")
        )
        .await
        .status,
        200
    );
    assert_eq!(calls(&backend), 0);
}

#[tokio::test]
async fn rule_holds_however_the_tool_is_named() {
    let (backend, other) = (
        backend().await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    other.offers_tools(&["x"]);
    let approval = r#""approval":{"tools":["erase"]},"rename":{"erase":"tidy"}"#;
    let servers = config(&[backend.entry_with("only", approval), other.entry("other")]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    let config = format!(r#"{servers},"timeouts":{{"approval":"10ms"}}}}"#);
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    for name in ["only__tidy", "tidy", "erase", "only__erase"] {
        let answer = client
            .request(
                "1",
                "tools/call",
                &format!(r#""name":"{name}","arguments":{{}}"#),
                "",
            )
            .await;
        assert!(
            ["-31007", "-32602"].contains(&answer.member("error.code")),
            "{name}"
        );
    }
    // Methods that Fanlight does not know could call the tool, too.
    let unknown = client
        .request("2", "batch/run", r#""name":"erase""#, "")
        .await;
    assert_eq!(unknown.member("error.code"), "-32601");
    assert_eq!(calls(&backend) + backend.received("batch/run").len(), 0);
}

#[tokio::test]
async fn arguments_that_the_configuration_fixes_are_shown_to_approvers_and_to_nobody_else() {
    for (by, is_asked_at_client) in [("operator", false), ("caller", true)] {
        let backend = backend().await;
        let more = format!(
            r#""approval":{{"tools":["erase"],"by":"{by}"}},"arguments":{{"erase":{{"tenant":{{"value":"t-secret"}}}}}}"#
        );
        let servers = config(&[backend.entry_with("only", &more)]);
        let mut client = Client::start_with(CAN_ASK, &servers, Era::Modern, Transport::Http).await;
        if is_asked_at_client {
            let asked = client.request("1", "tools/call", CALL, "").await;
            let question = asked.inputs().expect("a question")[0].1;
            assert!(
                question.contains(r#"\"n\":1.0"#) && !question.contains("t-secret"),
                "{question}"
            );
            continue;
        }
        let (admin, log) = (client.gateway().admin, client.gateway().log.clone());
        let decided = async {
            let id = asked(&log).await;
            let list = send(admin, "GET", "/api/approvals").await.text().await;
            assert!(list.contains(r#"t-secret"#), "{list}");
            assert_eq!(
                send(admin, "POST", &format!("/api/approvals/{id}/approve"))
                    .await
                    .status,
                200
            );
            list
        };
        let (answer, list) = tokio::join!(client.request("1", "tools/call", CALL, ""), decided);
        assert_eq!(answer.member("result.content"), "[]");
        let received = backend.received("tools/call");
        let sent = received[0].member("params.arguments").unwrap();
        assert!(
            list.contains(&sent.replace('\\', r"\\").replace('"', r#"\""#)),
            "{sent} is what was shown: {list}"
        );
    }
}

#[tokio::test]
async fn call_in_several_rounds_is_asked_about_once() {
    let backend = backend().await;
    backend.on(
        "tools/call",
        Reply::compute(|call| match call.member("params.requestState") {
            None => required("one"),
            Some(r#""one""#) => required("two"),
            Some(_) => Era::Modern.complete(r#""content":[]"#),
        }),
    );
    let config = asking(&backend, "operator", "10ms");
    let mut client =
        Client::start_with(r#"{"roots":{}}"#, &config, Era::Modern, Transport::Http).await;
    let admin = client.gateway().admin;
    let first = client.request("1", "tools/call", CALL, "").await;
    let id = first
        .member("error.data.approval")
        .trim_matches('"')
        .to_owned();
    assert_eq!(
        send(admin, "POST", &format!("/api/approvals/{id}/approve"))
            .await
            .status,
        200
    );
    let asked = client.request("2", "tools/call", CALL, "").await;
    let input = r#""a":{"roots":[]}"#;
    // The approval does not cover other arguments, another state, or no arguments.
    let other = asked.retry(
        r#""name":"erase","arguments":{"path":"\/b","n":1.0}"#,
        input,
    );
    let forged = asked.retry(CALL, input).replace(r#""one""#, r#""two""#);
    for params in [&other, &forged, CALL] {
        let answer = client.request("3", "tools/call", params, "").await;
        assert_eq!(answer.member("error.code"), "-31007", "{params}");
    }
    let retry = asked.retry(CALL, input);
    let second = client.request("4", "tools/call", &retry, "").await;
    let third = client
        .request("5", "tools/call", &second.retry(CALL, input), "")
        .await;
    assert_eq!(third.member("result.content"), "[]");
    // Each state is valid once, so one approval cannot run anything twice.
    for params in [&retry, &second.retry(CALL, input)] {
        assert_eq!(
            client
                .request("6", "tools/call", params, "")
                .await
                .member("error.code"),
            "-31007"
        );
    }
    assert_eq!(calls(&backend), 3);
}

fn required(state: &str) -> String {
    format!(
        r#"{{"resultType":"input_required","inputRequests":{{"a":{{"method":"roots/list"}}}},"requestState":"{state}"}}"#
    )
}

#[tokio::test]
async fn approvals_do_not_survive_a_restart() {
    let backend = backend().await;
    let config = asking(&backend, "operator", "10ms");
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    let first = client.request("1", "tools/call", CALL, "").await;
    assert!(
        first
            .member("error.message")
            .contains("before the gateway is restarted"),
        "{}",
        first.answer
    );
    let id = first
        .member("error.data.approval")
        .trim_matches('"')
        .to_owned();
    let path = format!("/api/approvals/{id}/approve");
    assert_eq!(
        send(client.gateway().admin, "POST", &path).await.status,
        200
    );
    client.into_gateway().kill().await;
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    let mut answer = send(client.gateway().admin, "POST", &path).await;
    let text = answer.text().await;
    assert!(
        answer.status == 404 && text.contains("restarted since"),
        "{text}"
    );
    let again = client.request("1", "tools/call", CALL, "").await;
    assert_eq!(
        (
            again.member("error.code"),
            again.member("error.data.status")
        ),
        ("-31007", r#""open""#)
    );
    assert_ne!(again.member("error.data.approval").trim_matches('"'), id);
    assert_eq!(calls(&backend), 0);
}
