//! `trace-test`, `status` and `traces`: their output about a gateway and their exit status.

use std::process::{Output, Stdio};

use fanlight_tests::slicer::plain_string;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::harness::{TempFile, fanlight, within};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const TOOL: &str =
    r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const EXPORTING: [(&str, &str); 2] = [
    // No collector listens at this address. With a destination for spans, context is propagated.
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "http://127.0.0.1:9/v1/traces",
    ),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "200"),
];

async fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (Output, String) {
    let mut command = fanlight();
    command
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null());
    let output = within(&format!("{arguments:?}"), command.output())
        .await
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, text)
}

/// A server whose tool returns the `traceparent` that it received.
async fn echoing(era: Era, transport: Transport) -> Backend {
    let backend = Backend::start(era, transport).await;
    backend.on("tools/list", backend.list("tools", TOOL));
    backend.on(
        "tools/call",
        Reply::compute(move |request| {
            let got = request
                .member_at(&["params", "_meta", "traceparent"])
                .and_then(plain_string)
                .unwrap_or_default();
            era.complete(&format!(r#""content":[{{"type":"text","text":"{got}"}}]"#))
        }),
    );
    backend
}

async fn trace_test(
    backend: &Backend,
    more: &str,
    environment: &[(&str, &str)],
) -> (Output, String) {
    let config = TempFile::new("yaml", &config(&[backend.entry_with("b", more)]));
    run(
        &[
            "trace-test",
            "t",
            "--config",
            config.path().to_str().unwrap(),
        ],
        environment,
    )
    .await
}

#[tokio::test]
async fn trace_test_names_the_carriers_of_every_hop() {
    for (era, transport, by) in [
        (Era::Modern, Transport::Http, "in _meta and headers"),
        (Era::Legacy, Transport::Stdio, "in _meta"),
    ] {
        let backend = echoing(era, transport).await;
        let (output, text) = trace_test(&backend, "", &EXPORTING).await;
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains("client → fanlight  in _meta and headers"),
            "{text}"
        );
        assert!(text.contains(&format!("fanlight → b  {by}  ")), "{text}");
        assert!(
            text.contains("repeats that span: the server received it"),
            "{text}"
        );
        assert!(
            text.contains("SERVER tools/call t") && text.contains("└─ CLIENT tools/call t @b"),
            "{text}"
        );
        let (output, text) = trace_test(&backend, "", &[]).await;
        assert!(
            output.status.success() && text.contains("forwards the client's context"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn trace_test_fails_if_a_hop_drops_the_trace() {
    let backend = echoing(Era::Modern, Transport::Http).await;
    let servers = config(&[backend.entry("b")]);
    let text = format!(
        r#"{},"telemetry":{{"trustInbound":"ignore"}}}}"#,
        servers.trim_end().strip_suffix('}').unwrap()
    );
    let config = TempFile::new("yaml", &text);
    let path = config.path().to_str().unwrap();
    let (output, text) = run(&["trace-test", "--config", path], &[]).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("✗ not carried client → fanlight") && text.contains("trustInbound"),
        "{text}"
    );
    let (output, text) = run(&["trace-test", "none", "--config", path], &[]).await;
    assert_eq!(output.status.code(), Some(2), "{text}");
}

/// The tool refuses the call because of missing arguments, which shows as a trace with an error.
#[tokio::test]
async fn trace_test_picks_a_tool_without_required_arguments() {
    const NEEDY: &str = r#"{"name":"needy","inputSchema":{"type":"object","required":["q","n"]},"annotations":{"readOnlyHint":true}}"#;
    const WRITER: &str = r#"{"name":"writer","inputSchema":{"type":"object"}}"#;
    let backend = echoing(Era::Modern, Transport::Stdio).await;
    let file = TempFile::new("yaml", &config(&[backend.entry("b")]));
    let path = file.path().to_str().unwrap();
    backend.on(
        "tools/list",
        backend.list("tools", &format!("{NEEDY},{WRITER},{TOOL}")),
    );
    let (output, text) = run(&["trace-test", "--config", path], &[]).await;
    assert!(
        output.status.success() && text.contains("SERVER tools/call t "),
        "{text}"
    );
    backend.on(
        "tools/list",
        backend.list("tools", &format!("{WRITER},{NEEDY}")),
    );
    let (output, text) = run(&["trace-test", "--config", path], &[]).await;
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains(r#"fanlight trace-test --args '{"q": …, "n": …}' -- needy"#),
        "{text}"
    );
    // A server must not choose options or commands of the suggestion.
    backend.on(
        "tools/list",
        backend.list("tools", &NEEDY.replace("needy", "--url=x;reboot")),
    );
    let (_, text) = run(&["trace-test", "--config", path], &[]).await;
    assert!(text.contains("}' -- '--url=x;reboot'"), "{text}");
    backend.on(
        "tools/list",
        backend.list("tools", &format!("{WRITER},{NEEDY}")),
    );
    let called = backend.received("tools/call").len();
    let (output, text) = run(
        &[
            "trace-test",
            "needy",
            "--args",
            r#"{"q":1}"#,
            "--config",
            path,
        ],
        &[],
    )
    .await;
    assert!(output.status.success(), "{text}");
    assert_eq!(
        backend.received("tools/call")[called].member("params.arguments"),
        Some(r#"{"q":1}"#)
    );
    backend.on("tools/list", backend.list("tools", WRITER));
    let (output, text) = run(&["trace-test", "--config", path], &[]).await;
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("readOnlyHint") && text.contains("trace-test TOOL --args JSON"),
        "{text}"
    );
    let (output, text) = run(
        &["trace-test", "t", "{}", "--args", "{}", "--config", path],
        &[],
    )
    .await;
    assert_eq!(output.status.code(), Some(2), "{text}");
}

/// A fake admin listener that gives one response and records the request.
async fn answering(status: &str, body: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, request)
}

async fn ask(arguments: &[&str], status: &str, body: &'static str) -> (Output, String, String) {
    let (url, request) = answering(status, body).await;
    let arguments = [arguments, &["--admin", &url]].concat();
    let (output, text) = run(
        &arguments,
        &[("FANLIGHT_ADMIN_TOKEN", "a-token-of-some-length")],
    )
    .await;
    (output, text, within("the request", request).await.unwrap())
}

const OVERVIEW: &str = r#"{"uptimeSeconds":61.5,"version":"9.9","endpoint":"http://127.0.0.1:8080/mcp","ready":true,"sessions":1,
    "suspendedCalls":0,"traces":2,"backends":[
    {"name":"files","state":"ready","transport":"http","era":"modern","revision":"2026-07-28","error":null,"lastError":null,
     "requests":12,"errors":1,"medianMs":4.1,"p95Ms":9.4,"restarts":0,"reconnects":0},
    {"name":"gone","state":"down","transport":"stdio","era":null,"revision":null,"error":"cannot be started","requests":0}]}"#;

#[tokio::test]
async fn status_shows_every_backend() {
    let (output, text, request) = ask(&["status"], "200 OK", OVERVIEW).await;
    assert!(output.status.success(), "{text}");
    assert!(
        request.starts_with("GET /api/overview HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request
            .to_lowercase()
            .contains("authorization: bearer a-token-of-some-length\r\n"),
        "{request}"
    );
    assert!(
        text.contains("Fanlight 9.9")
            && text.contains("up 1 min 1 s")
            && text.contains("1 session, 0 suspended calls")
    );
    let row = |name: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(name))
            .unwrap()
    };
    for word in ["ready", "2026-07-28", "12", "4.10 ms", "9.40 ms"] {
        assert!(row("files").contains(word), "{text}");
    }
    assert!(
        row("gone").contains("down") && row("gone").contains("cannot be started"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "colours are for terminals");
    let (_, json, _) = ask(&["status", "--json"], "200 OK", OVERVIEW).await;
    assert_eq!(json.trim(), OVERVIEW);
}

#[tokio::test]
async fn traces_command_lists_and_shows_traces() {
    const LIST: &str = r#"{"recording":true,"traces":[{"number":7,"traceId":"4bf92f3577b34da6a3ce929d0e0e4736",
        "name":"tools/call files__read","startMs":3723004.0,"durationMs":4.2,"spans":2,"backends":["files"],"error":"timeout"}]}"#;
    let arguments = [
        "traces", "--server", "files", "--tool", "read me", "--error", "--text", "a&b", "--limit",
        "5",
    ];
    let (output, text, request) = ask(&arguments, "200 OK", LIST).await;
    assert!(output.status.success(), "{text}");
    assert!(
        request.contains(
            "/api/traces?limit=5&backend=files&tool=read+me&text=a%26b&own=false&error=true "
        ),
        "{request}"
    );
    for word in [
        "01:02:03.004Z",
        "4.20 ms",
        "tools/call files__read",
        "timeout",
        TRACE,
    ] {
        assert!(text.contains(word), "{text}");
    }
    const ONE: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7",
        "name":"tools/call files__read","kind":2,"startTimeUnixNano":"1000000","endTimeUnixNano":"2000000","status":{"code":2,"message":"late"}}]}]}]}"#;
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    for id in [TRACE, &traceparent] {
        let (output, text, request) = ask(&["traces", id], "200 OK", ONE).await;
        assert!(output.status.success(), "{text}");
        assert!(
            request.starts_with(&format!("GET /api/traces/{TRACE} ")),
            "{request}"
        );
        assert!(
            text.contains("SERVER tools/call files__read")
                && text.contains("1.00 ms")
                && text.contains("late")
        );
    }
}

#[tokio::test]
async fn unreachable_admin_listener_is_reported_with_a_remedy() {
    let refused = r#"{"error":"there is no such trace"}"#;
    let (output, text, _) = ask(&["traces", TRACE], "404 Not Found", refused).await;
    assert!(
        output.status.code() == Some(1) && text.contains("there is no such trace"),
        "{text}"
    );
    let (output, text, _) = ask(&["status"], "401 Unauthorized", "{}").await;
    assert!(
        output.status.code() == Some(1) && text.contains("FANLIGHT_ADMIN_TOKEN"),
        "{text}"
    );
    let (output, text, _) = ask(&["status"], "200 OK", "<html>").await;
    assert!(
        output.status.code() == Some(1) && text.contains("--admin")
            || text.contains("admin listener"),
        "{text}"
    );
    let (output, text) = run(&["status", "--admin", "http://127.0.0.1:9"], &[]).await;
    assert!(
        output.status.code() == Some(1) && text.contains("cannot be reached"),
        "{text}"
    );
    let (output, text) = run(&["traces", "xyz"], &[]).await;
    assert!(
        output.status.code() == Some(2) && text.contains("32 hexadecimal digits"),
        "{text}"
    );
    let (output, _) = run(&["status", "--admin", "ftp://x"], &[]).await;
    assert_eq!(output.status.code(), Some(2));
}
