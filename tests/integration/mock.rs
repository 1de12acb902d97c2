//! `fanlight mock`: a recording of each era, played to clients of both over HTTP and stdio.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use fanlight_tests::slicer::{member, member_at};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::harness::{Gateway, Log, ShownLog, TempFile, fanlight, signal_and_wait, within};
use crate::raw_client::{
    INITIALIZED, LegacySession, NEWEST_LEGACY, StdioClient, initialize, legacy_request,
    modern_request_with, post, post_modern,
};
use crate::rmcp_peers::{call, http_client};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};
use crate::server_lives::{api, text_at};

/// The capabilities of clients that answer questions.
const ANSWERS: &str = r#"{"elicitation":{"form":{}}}"#;
const TOOL: &str = r#"{"name":"ask","inputSchema":{"type":"object"},"x-own":1.50}"#;
const RESULT: &str =
    r#""content":[{"type":"text","text":"done"}],"structuredContent":{"n":10.0},"x-own":[1e2]"#;
const QUESTION: &str = r#"{"mode":"form","message":"alpha asks: which city?","requestedSchema":{"type":"object","properties":{"city":{"type":"string"}}}}"#;
/// The answer of the clients on rmcp.
const ANSWER: &str =
    r#"{"action":"accept","content":{"city":"Zürich, since alpha asks: which city?"}}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// A recorded message: its exchange, whether it goes to the server, its kind, and its text.
struct Line(u64, bool, &'static str, String);

/// The text of a recording with a message in every millisecond.
fn recording(transport: &str, revision: &str, lines: &[Line]) -> String {
    let mut text = json!({
        "recording": 1, "fanlight": "0.2.0", "started": "2026-11-29T12:00:00.000000Z",
        "servers": {"only": {"revision": revision}},
    })
    .to_string();
    for (ms, Line(exchange, to_server, kind, message)) in (1..).zip(lines) {
        let line = json!({
            "us": ms * 1000, "side": "client", "endpoint": "/mcp", "connection": 1, "exchange": exchange,
            "to": if *to_server { "server" } else { "client" }, "kind": kind, "transport": transport,
            "revision": revision, "text": message,
        });
        text += &format!("\n{line}");
    }
    // The file was cut off.
    text + "\n{\"us\":"
}

/// A legacy conversation over HTTP: a list, a call with progress and a question, and a message on
/// the session's stream.
fn legacy_recording() -> String {
    let opened = format!(
        r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"{NEWEST_LEGACY}","capabilities":{{"tools":{{"listChanged":true}}}},"serverInfo":{{"name":"recorded","version":"1"}},"x-own":1}}}}"#
    );
    let asked = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask","arguments":{"b":1,"a":[1]},"_meta":{"progressToken":7}}}"#;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.50}}"#;
    recording(
        "http",
        NEWEST_LEGACY,
        &[
            Line(1, true, "body", initialize(NEWEST_LEGACY, "{}")),
            Line(1, false, "body", opened),
            Line(2, true, "body", INITIALIZED.to_owned()),
            Line(3, true, "body", legacy_request("1", "tools/list", "")),
            Line(
                3,
                false,
                "body",
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{TOOL}]}}}}"#),
            ),
            Line(4, true, "body", asked.to_owned()),
            Line(4, false, "event", progress.to_owned()),
            Line(
                4,
                false,
                "event",
                format!(
                    r#"{{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{QUESTION}}}"#
                ),
            ),
            Line(
                5,
                true,
                "body",
                format!(r#"{{"jsonrpc":"2.0","id":5,"result":{ANSWER}}}"#),
            ),
            Line(
                4,
                false,
                "event",
                format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{{RESULT}}}}}"#),
            ),
            Line(6, false, "event", CHANGED.to_owned()),
        ],
    )
}

/// A modern conversation on stdio: a list, and a call in two rounds.
fn modern_recording() -> String {
    let complete = r#""resultType":"complete""#;
    let request =
        |id: &str, method: &str, params: &str| modern_request_with(ANSWERS, id, method, params, "");
    let result =
        |id: u8, members: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{members}}}}}"#);
    let name = r#""name":"ask","arguments":{"b":1,"a":[1]}"#;
    let retry = format!(r#"{name},"inputResponses":{{"q":{ANSWER}}},"requestState":"s""#);
    let question = format!(
        r#""resultType":"input_required","inputRequests":{{"q":{{"method":"elicitation/create","params":{QUESTION}}}}},"requestState":"s""#
    );
    recording(
        "stdio",
        "2026-07-28",
        &[
            Line(1, true, "line", request("1", "server/discover", "")),
            Line(
                2,
                false,
                "line",
                result(
                    1,
                    &format!(
                        r#"{complete},"supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"recorded","version":"1"}},"ttlMs":0,"cacheScope":"private""#
                    ),
                ),
            ),
            Line(3, true, "line", request("2", "tools/list", "")),
            Line(
                2,
                false,
                "line",
                result(
                    2,
                    &format!(r#"{complete},"tools":[{TOOL}],"ttlMs":0,"cacheScope":"private""#),
                ),
            ),
            Line(4, true, "line", request("3", "tools/call", name)),
            Line(2, false, "line", result(3, &question)),
            Line(5, true, "line", request("4", "tools/call", &retry)),
            Line(2, false, "line", result(4, &format!("{complete},{RESULT}"))),
        ],
    )
}

/// A mock over HTTP.
struct Mock {
    child: Child,
    address: SocketAddr,
    _file: TempFile,
    _logs: [ShownLog; 2],
}

impl Mock {
    async fn start(recording: &str, more: &[&str]) -> Self {
        let file = TempFile::new("jsonl", recording);
        let mut command = fanlight();
        command
            .arg("mock")
            .arg(file.path())
            .args(["--listen", "127.0.0.1:0"])
            .args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = Log::print("out", child.stdout.take().unwrap());
        let err = Log::print("err", child.stderr.take().unwrap());
        let address = out.address("mock at http://", "/mcp").await;
        Self {
            child,
            address,
            _file: file,
            _logs: [out, err],
        }
    }
}

/// A mock on stdio, and its client.
struct StdioMock {
    client: StdioClient,
    _child: Child,
    _file: TempFile,
    _log: ShownLog,
}

impl StdioMock {
    fn start(recording: &str, more: &[&str]) -> Self {
        let file = TempFile::new("jsonl", recording);
        let mut command = fanlight();
        command.arg("mock").arg(file.path()).args(more);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Log::print("err", child.stderr.take().unwrap());
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self {
            client: StdioClient::unchecked(input, output),
            _child: child,
            _file: file,
            _log: log,
        }
    }
}

/// The arguments of the recorded call, in another order.
const CALL: &str = r#""name":"ask","arguments":{"a":[1.0],"b":1}"#;

#[tokio::test]
async fn legacy_client_over_http_gets_the_recorded_bytes() {
    let mock = Mock::start(&legacy_recording(), &["--fast"]).await;
    let session = LegacySession::open_with(mock.address, NEWEST_LEGACY, ANSWERS).await;
    assert!(session.initialize_result.ends_with(r#""x-own":1}"#));
    let mut list = session
        .post(&legacy_request("\"l\"", "tools/list", ""))
        .await;
    assert_eq!(list.header("content-type"), Some("application/json"));
    let expected = format!(r#"{{"jsonrpc":"2.0","id":"l","result":{{"tools":[{TOOL}]}}}}"#);
    assert_eq!(list.text().await, expected);

    let params = format!(r#"{CALL},"_meta":{{"progressToken":"p"}}"#);
    let mut stream = session
        .post(&legacy_request("9", "tools/call", &params))
        .await;
    let progress = stream.event().await.unwrap().unwrap();
    assert_eq!(
        progress,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0.50}}"#
    );
    let question = stream.event().await.unwrap().unwrap();
    assert_eq!(member(&question, "params"), Some(QUESTION));
    let answer = format!(r#"{{"jsonrpc":"2.0","id":5,"result":{ANSWER}}}"#);
    assert_eq!(session.post(&answer).await.status, 202);
    let result = stream.event().await.unwrap().unwrap();
    assert_eq!(
        result,
        format!(r#"{{"jsonrpc":"2.0","id":9,"result":{{{RESULT}}}}}"#)
    );

    let mut outside = session.stream(None).await;
    assert_eq!(outside.event().await.unwrap().unwrap(), CHANGED);
    assert_eq!(session.stream(None).await.status, 409, "a second stream");
    let mut other = session
        .post(&legacy_request(
            "3",
            "tools/call",
            r#""name":"ask","arguments":{"a":[2],"b":1}"#,
        ))
        .await;
    let error: Value = serde_json::from_str(&other.text().await).unwrap();
    let differs = json!([{"pointer": "/params/arguments/a/0", "recorded": 1, "asked": 2}]);
    assert_eq!(error["error"]["data"]["differs"], differs);
    assert!(session.delete().await.status < 300);
    assert_eq!(
        session.post(&legacy_request("4", "ping", "")).await.status,
        404
    );
}

#[tokio::test]
async fn page_of_another_site_is_not_served() {
    let mut mock = Mock::start(&legacy_recording(), &["--fast", "--era", "legacy"]).await;
    let opening = initialize(NEWEST_LEGACY, "{}");
    let origin = ("Origin", "http://evil.example");
    assert_eq!(post(mock.address, &[origin], &opening).await.status, 403);
    // A mock of one era serves no client of the other.
    let discover = modern_request_with("{}", "1", "server/discover", "", "");
    let mut refused = post_modern(mock.address, &discover).await;
    assert!(refused.text().await.contains("-32601"));
    let status = signal_and_wait(&mut mock.child, rustix::process::Signal::INT).await;
    assert_eq!(status.code(), Some(0), "an interruption is the normal end");
}

#[tokio::test]
async fn mock_of_one_era_serves_no_other_on_stdio() {
    let discover = modern_request_with("{}", "1", "server/discover", "", "");
    for recording in [legacy_recording(), modern_recording()] {
        let mut mock = StdioMock::start(&recording, &["--fast", "--era", "legacy"]);
        let (_, refused) = mock.client.call(&discover).await;
        assert!(member(&refused, "error").is_some(), "{refused}");
        mock.client.initialize_with(NEWEST_LEGACY, ANSWERS).await;
        let (_, list) = mock
            .client
            .call(&legacy_request("2", "tools/list", ""))
            .await;
        assert!(member(&list, "result.tools").is_some(), "{list}");
        let mut mock = StdioMock::start(&recording, &["--fast", "--era", "modern"]);
        let opening = initialize(NEWEST_LEGACY, "{}");
        let (_, refused) = mock.client.call(&opening).await;
        assert!(member(&refused, "error").is_some(), "{refused}");
        let (_, opened) = mock.client.call(&discover).await;
        assert!(
            member(&opened, "result.supportedVersions").is_some(),
            "{opened}"
        );
    }
}

/// Asks and answers in the modern era; `ask` sends a request and returns the answer.
async fn play_modern(mut ask: impl AsyncFnMut(String) -> String) {
    let request =
        |id: &str, method: &str, params: &str| modern_request_with(ANSWERS, id, method, params, "");
    let list = ask(request("1", "tools/list", "")).await;
    assert_eq!(
        member(&list, "result.tools"),
        Some(&*format!("[{TOOL}]")),
        "{list}"
    );
    let first = ask(request("2", "tools/call", CALL)).await;
    let inputs = member(&first, "result.inputRequests").unwrap_or_else(|| panic!("{first}"));
    assert!(inputs.contains("which city?"), "{inputs}");
    let (key, _) = fanlight_tests::slicer::members(inputs).unwrap()[0];
    let state = member(&first, "result.requestState").unwrap();
    let retry = format!(r#"{CALL},"inputResponses":{{"{key}":{ANSWER}}},"requestState":{state}"#);
    let result = ask(request("3", "tools/call", &retry)).await;
    assert!(result.contains(RESULT), "{result}");
    assert_eq!(member_at(&result, &["id"]), Some("3"));
}

#[tokio::test]
async fn modern_client_is_served_from_recordings_of_both_eras_over_http() {
    for recording in [legacy_recording(), modern_recording()] {
        let mock = Mock::start(&recording, &["--fast"]).await;
        play_modern(async |request| {
            let mut answer = post_modern(mock.address, &request).await;
            answer.messages().await.1
        })
        .await;
    }
}

#[tokio::test]
async fn modern_client_is_served_from_recordings_of_both_eras_on_stdio() {
    for recording in [legacy_recording(), modern_recording()] {
        let mut mock = StdioMock::start(&recording, &["--fast"]);
        play_modern(async |request| mock.client.call(&request).await.1).await;
    }
}

#[tokio::test]
async fn legacy_client_is_served_from_recordings_of_both_eras_on_stdio() {
    for recording in [legacy_recording(), modern_recording()] {
        let mut mock = StdioMock::start(&recording, &[]);
        let client = &mut mock.client;
        client.initialize_with(NEWEST_LEGACY, ANSWERS).await;
        let (_, list) = client.call(&legacy_request("1", "tools/list", "")).await;
        assert_eq!(
            member(&list, "result.tools"),
            Some(&*format!("[{TOOL}]")),
            "{list}"
        );
        client.send(&legacy_request("2", "tools/call", CALL)).await;
        let question = loop {
            let line = client.receive().await.unwrap();
            if line.contains("elicitation/create") {
                break line;
            }
            assert!(line.contains("\"notifications/"), "{line}");
        };
        let id = member(&question, "id").unwrap();
        client
            .send(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{ANSWER}}}"#
            ))
            .await;
        let result = loop {
            let line = client.receive().await.unwrap();
            if member(&line, "id") == Some("2") {
                break line;
            }
        };
        assert!(result.contains(RESULT), "{result}");
    }
}

#[tokio::test]
async fn rmcp_clients_of_both_eras_share_a_mock() {
    for recording in [legacy_recording(), modern_recording()] {
        let mock = Mock::start(&recording, &[]).await;
        let url = format!("http://{}/mcp", mock.address);
        for modern in [false, true] {
            let client = http_client(&url, modern).await;
            let tools = within("tools", client.list_all_tools()).await.unwrap();
            assert_eq!(tools.len(), 1);
            let result = call(&client, "ask", &json!({"a": [1], "b": 1})).await;
            assert_eq!(
                result.structured_content,
                Some(json!({"n": 10.0})),
                "modern: {modern}"
            );
            client.cancel().await.unwrap();
        }
    }
}

#[tokio::test]
async fn unusable_arguments_are_named() {
    let file = TempFile::new("jsonl", &legacy_recording());
    let path = file.path().to_str().unwrap();
    for (more, told) in [
        (&["--server", "other"][..], "it has only"),
        (&["--listen", "0.0.0.0:0"], "127.0.0.1"),
        (&["--stdio", "--listen", "8090"], "cannot be used with"),
    ] {
        let mut command = fanlight();
        let output = command
            .args(["mock", path])
            .args(more)
            .stdin(Stdio::null())
            .output();
        let output = within("the end", output).await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && error.contains(told),
            "{error}"
        );
    }
}

/// Calls the tool as a legacy client, and answers its question. Returns the question's parameters
/// and the result.
async fn asked_call(address: SocketAddr) -> (String, String) {
    let session = LegacySession::open_with(address, NEWEST_LEGACY, ANSWERS).await;
    let params = r#""name":"t","arguments":{"a":[1]},"_meta":{"progressToken":"p"}"#;
    let mut stream = session
        .post(&legacy_request("1", "tools/call", params))
        .await;
    let progress = stream.event().await.unwrap().unwrap();
    assert_eq!(
        member(&progress, "params.progress"),
        Some("0.5"),
        "{progress}"
    );
    let question = stream.event().await.unwrap().unwrap();
    let id = member(&question, "id").unwrap();
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{ANSWER}}}"#);
    assert_eq!(session.post(&answer).await.status, 202);
    let result = stream.event().await.unwrap().unwrap();
    let of = |text: &str, name| member(text, name).unwrap().to_owned();
    (
        of(&question, "params.requestedSchema"),
        of(&result, "result"),
    )
}

/// Progress of the call that a server answers.
const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":0.5}}"#;

/// Calls the tool of a server through a gateway, exports the trace, and gets the same from its mock.
/// Returns the exported recording.
async fn export_and_mock(backend: &Backend) -> String {
    let gateway = Gateway::start(&config(&[backend.entry("s")])).await;
    let asked = asked_call(gateway.mcp).await;
    let traces = api(&gateway, "/api/traces?tool=t").await;
    let id = traces["traces"][0]["traceId"].as_str().unwrap();
    let recording = text_at(&gateway, &format!("/api/traces/{id}/recording")).await;
    let mock = Mock::start(&recording, &["--fast"]).await;
    assert_eq!(asked_call(mock.address).await, asked);
    recording
}

#[tokio::test]
async fn exported_trace_is_played_and_replayed() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let question = format!(
        r#"{{"jsonrpc":"2.0","id":"q-{{call}}","method":"elicitation/create","params":{QUESTION}}}"#
    );
    let got = |_: &Received, _: &[Arc<Received>]| format!("{{{RESULT}}}");
    backend.on(
        "tools/call",
        Reply::conclude(got).after(&[PROGRESS]).asking(&[&question]),
    );
    let recording = export_and_mock(&backend).await;
    let end = r#""end":{"reason":"trace","whole":true,"messages":10}}"#;
    assert!(recording.trim_end().ends_with(end), "{recording}");
    let file = TempFile::new("jsonl", &recording);
    let mut replay = fanlight();
    replay
        .arg("replay")
        .arg(file.path())
        .args(["--all", "--url"]);
    replay.arg(backend.url());
    let report = within("the report", replay.output()).await.unwrap();
    assert_eq!(report.status.code(), Some(0), "{report:?}");
}

#[tokio::test]
async fn exported_trace_has_the_questions_of_a_modern_server_to_a_legacy_client() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let question = format!(
        r#"{{"resultType":"input_required","inputRequests":{{"q":{{"method":"elicitation/create","params":{QUESTION}}}}},"requestState":"s"}}"#
    );
    backend.on("tools/call", Reply::result(Era::Modern.complete(RESULT)));
    backend.once("tools/call", Reply::result(question).after(&[PROGRESS]));
    export_and_mock(&backend).await;
}
