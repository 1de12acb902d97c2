//! Members that Fanlight reads one way and a lenient server another way:
//! `{"name":"read_file","Name":"write_file"}`.

use fanlight_testkit::slicer::{elements, member};

use crate::harness::Gateway;
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, LegacySession, MODERN, StdioClient, initialize,
    legacy_request, modern_meta, post,
};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// Raw members of `params` that a server with some parser would take for `"name":"write_file"`.
const OTHER_NAMES: [&str; 16] = [
    r#""Name":"write_file""#,
    r#""NAME":"write_file""#,
    r#""nAME":"write_file""#,
    r#""N\u0061me":"write_file""#,
    r#""name\u0000":"write_file""#,
    r#""\u0000name":"write_file""#,
    r#""name\u0000x":"write_file""#,
    r#""na\u0000me":"write_file""#,
    r#""ｎａｍｅ":"write_file""#,
    r#""\uff2eAME":"write_file""#,
    r#""name\ud800":"write_file""#,
    "\"na\u{200b}me\":\"write_file\"",
    r#""name ":"write_file""#,
    r#""_name":"write_file""#,
    r#""name":"write_file""#,
    r#""n\u0061me":"write_file""#,
];

/// Raw members of `params` that a server could take for `_meta`.
const OTHER_METAS: [&str; 6] = [
    r#""_META":{"progressToken":7}"#,
    r#""_Meta":{"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}"#,
    r#""meta":{"progressToken":7}"#,
    r#""_meta\u0000":{"progressToken":7}"#,
    r#""_ｍeta":{"progressToken":7}"#,
    r#""_meta":{"progressToken":7}"#,
];

/// Members of `_meta` that a server could take for members that Fanlight replaces.
const OTHER_META_KEYS: [&str; 6] = [
    r#""ProgressToken":7"#,
    r#""progress_token":7"#,
    r#""progre\u017f\u017fToken":7"#,
    r#""io.modelcontextprotocol/ClientCapabilities":{"sampling":{}}"#,
    r#""io.modelcontextprotocol/protocolVersion\u0000":"2025-11-25""#,
    r#""TraceParent":"00-00000000000000000000000000000001-0000000000000001-01""#,
];

/// Members of the envelope that a server could take for another method, other params, or another
/// id.
const OTHER_ENVELOPES: [&str; 6] = [
    r#""Method":"tools/list""#,
    r#""Params":{"name":"write_file"}"#,
    r#""params\u0000":{"name":"write_file"}"#,
    r#""ID":8"#,
    r#""JsonRpc":"2.0""#,
    r#""Result":{}"#,
];

async fn filtered(era: Era, transport: Transport) -> (Backend, String) {
    let backend = Backend::start(era, transport).await;
    backend.offers_tools(&["read_file", "write_file"]);
    backend.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    let config = config(&[backend.entry_with("files", r#""tools":{"allow":["read_*"]}"#)]);
    (backend, config)
}

/// A modern call of `read_file` with more members in the envelope, in the params and in `_meta`.
fn modern_call(envelope: &str, params: &str, meta: &str) -> String {
    let comma = |text: &str| {
        if text.is_empty() {
            String::new()
        } else {
            format!(",{text}")
        }
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"read_file","_meta":{{{}{}}}{}}}{}}}"#,
        modern_meta("{}"),
        comma(meta),
        comma(params),
        comma(envelope),
    )
}

fn legacy_calls() -> Vec<String> {
    let in_params = OTHER_NAMES.iter().chain(&OTHER_METAS[..5]);
    let in_params = in_params
        .map(|other| legacy_request("7", "tools/call", &format!(r#""name":"read_file",{other}"#)));
    let in_meta = OTHER_META_KEYS.iter().take(5);
    let in_meta = in_meta.map(|other| {
        legacy_request(
            "7",
            "tools/call",
            &format!(r#""name":"read_file","_meta":{{{other}}}"#),
        )
    });
    let plain = legacy_request("7", "tools/call", r#""name":"read_file""#);
    let in_envelope = OTHER_ENVELOPES
        .iter()
        .map(|other| format!("{},{other}}}", plain.strip_suffix('}').unwrap()));
    in_params.chain(in_meta).chain(in_envelope).collect()
}

/// Checks that `answer` refuses the request with the id 7, because of a duplicate or confusable
/// member.
fn assert_refused(request: &str, answer: &str) {
    let code = member(answer, "error.code");
    assert!(
        matches!(code, Some("-32602" | "-32600")),
        "{request}\n→ {answer}"
    );
    // The duplicate is in the envelope, not in the parameters.
    let is_duplicate = member(answer, "error.message")
        .is_some_and(|text| text.contains("duplicate") && !text.contains(" in "));
    assert_eq!(
        code == Some("-32600"),
        is_duplicate,
        "{request}\n→ {answer}"
    );
    assert_eq!(member(answer, "id"), Some("7"), "{request}\n→ {answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modern_call_with_a_confusable_member_reaches_no_server() {
    let (backend, config) = filtered(Era::Modern, Transport::Http).await;
    let gateway = Gateway::start(&config).await;
    let in_params = OTHER_NAMES
        .iter()
        .chain(&OTHER_METAS)
        .map(|other| modern_call("", other, ""));
    let in_meta = OTHER_META_KEYS
        .iter()
        .map(|other| modern_call("", "", other));
    let in_envelope = OTHER_ENVELOPES
        .iter()
        .map(|other| modern_call(other, "", ""));
    let headers = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "read_file"),
    ];
    for request in in_params.chain(in_meta).chain(in_envelope) {
        let mut response = post(gateway.mcp, &headers, &request).await;
        let answer = response.text().await;
        assert_eq!(response.status, 400, "{request}\n→ {answer}");
        assert_refused(&request, &answer);
    }
    assert!(backend.received("tools/call").is_empty());
    // The server judges the contents of arguments, and members that resemble no known one.
    for fine in [
        r#""arguments":{"name":"a","Name":"b","path":"c","path":"d"}"#,
        r#""names":1,"x-Name":2"#,
    ] {
        assert_eq!(
            post(
                gateway.mcp,
                &headers,
                &modern_call("", fine, r#""com.example/Name":1"#)
            )
            .await
            .status,
            200
        );
    }
    let sent = backend.received("tools/call");
    assert_eq!(
        sent[0].member("params.arguments"),
        Some(r#"{"name":"a","Name":"b","path":"c","path":"d"}"#)
    );
    assert_eq!(sent.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_call_with_a_confusable_member_reaches_no_server() {
    let (backend, config) = filtered(Era::Legacy, Transport::Stdio).await;
    let gateway = Gateway::start(&config).await;
    let session = LegacySession::open(gateway.mcp).await;
    for request in legacy_calls() {
        assert_refused(&request, &session.post(&request).await.text().await);
    }
    // The gateway also reads members of responses.
    for response in [
        r#"{"jsonrpc":"2.0","id":7,"result":{},"Result":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{},"Id":8}"#,
    ] {
        assert_eq!(session.post(response).await.status, 400, "{response}");
    }
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"RequestId":2}}"#;
    assert_eq!(session.post(cancelled).await.status, 400);
    assert!(backend.received("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confusable_members_are_refused_within_batches() {
    let (backend, config) = filtered(Era::Legacy, Transport::Http).await;
    let gateway = Gateway::start(&config).await;
    let session = LegacySession::open_as(gateway.mcp, "2025-03-26").await;
    for request in legacy_calls() {
        let ping = legacy_request("1", "ping", "");
        let mut response = session.post(&format!("[{ping},{request}]")).await;
        let answers: Vec<String> = match response.is_event_stream() {
            true => {
                let (mut before, last) = response.messages().await;
                before.push(last);
                before
            }
            false => elements(&response.text().await)
                .unwrap()
                .into_iter()
                .map(str::to_owned)
                .collect(),
        };
        let refusal = answers
            .iter()
            .find(|answer| member(answer, "error").is_some())
            .expect("a refusal");
        assert_refused(&request, refusal);
        assert!(
            answers
                .iter()
                .any(|answer| member(answer, "id") == Some("1")
                    && member(answer, "result") == Some("{}"))
        );
    }
    assert!(backend.received("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confusable_members_are_refused_on_stdio_in_both_eras() {
    for era in [Era::Legacy, Era::Modern] {
        let (backend, config) = filtered(era, Transport::Http).await;
        let mut gateway = Gateway::stdio(&config);
        let mut client = StdioClient::new(&mut gateway);
        for other in OTHER_NAMES.iter().chain(&OTHER_METAS) {
            let request = modern_call("", other, "");
            assert_refused(&request, &client.call(&request).await.1);
        }
        client.initialize("2025-11-25").await;
        for request in legacy_calls() {
            assert_refused(&request, &client.call(&request).await.1);
        }
        assert!(backend.received("tools/call").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confusable_members_are_refused_on_the_legacy_sse_transport() {
    let (backend, config) = filtered(Era::Legacy, Transport::Http).await;
    let gateway = Gateway::start(&config).await;
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("GET", "/sse", &[("Accept", "text/event-stream")], b"")
        .await;
    let mut stream = connection.response().await;
    let endpoint = stream.event().await.unwrap().expect("an endpoint");
    let send = async |message: &str| {
        let mut connection = Connection::open(gateway.mcp).await;
        connection
            .request("POST", &endpoint, &JSON_HEADERS, message.as_bytes())
            .await;
        connection.response().await
    };
    assert_eq!(send(&initialize("2024-11-05", "{}")).await.status, 202);
    stream.event().await.unwrap().expect("an answer");
    send(INITIALIZED).await;
    for request in legacy_calls() {
        let mut response = send(&request).await;
        // The gateway refuses an invalid message at once, and answers a request on the stream.
        let answer = match response.status {
            202 => stream.event().await.unwrap().expect("an answer"),
            _ => response.text().await,
        };
        assert_refused(&request, &answer);
    }
    assert!(backend.received("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_read_members_are_refused_with_confusable_ones_beside_them() {
    let (a, b) = (
        Backend::start(Era::Legacy, Transport::Http).await,
        Backend::start(Era::Legacy, Transport::Http).await,
    );
    let gateway = Gateway::start(&config(&[a.entry("a"), b.entry("b")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    for (method, params) in [
        ("resources/read", r#""uri":"file:///a","URI":"file:///b""#),
        (
            "resources/read",
            r#""uri":"file:///a","ur\u0131":"file:///b""#,
        ),
        (
            "resources/subscribe",
            r#""uri":"file:///a","Uri":"file:///b""#,
        ),
        ("prompts/get", r#""name":"a","NAME":"b""#),
        ("prompts/get", r#""name":"a","Arguments":{}"#),
        ("tools/list", r#""cursor":"a","CURSOR":"b""#),
        (
            "completion/complete",
            r#""ref":{"type":"ref/prompt","name":"a","Name":"b"},"argument":{"name":"x","value":""}"#,
        ),
        (
            "completion/complete",
            r#""ref":{"type":"ref/prompt","name":"a"},"Ref":{"type":"ref/prompt","name":"b"}"#,
        ),
        ("tasks/get", r#""taskId":"a","taskid":"b""#),
        ("tasks/get", r#""task_id":"b""#),
        ("tasks/cancel", r#""taskId":"a","TaskId":"b""#),
        ("tasks/cancel", r#""ta\u017fkId":"b""#),
        ("tools/call", r#""name":"a","Task":{}"#),
        ("tools/call", r#""name":"a","requeststate":"x""#),
        ("tools/call", r#""name":"a","InputResponses":{}"#),
        ("logging/setLevel", r#""level":"error","LEVEL":"debug""#),
    ] {
        let request = legacy_request("7", method, params);
        assert_refused(&request, &session.post(&request).await.text().await);
    }
    let again = initialize("2025-11-25", "{}").replace(
        r#""capabilities""#,
        r#""Capabilities":{"sampling":{}},"capabilities""#,
    );
    let answer = post(gateway.mcp, &[], &again).await.text().await;
    assert_eq!(member(&answer, "error.code"), Some("-32602"), "{answer}");
}
