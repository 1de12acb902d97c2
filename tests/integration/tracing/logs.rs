//! Log lines that belong to a request have its trace and span ids; others have none.

use fanlight_tests::slicer::{member, plain_string};

use super::spans::{SERVER, TraceFile, from_client};
use crate::faults::backend;
use crate::harness::Gateway;
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Reply, Transport, config};

/// A server that causes log lines: its list never ends, and its stream has a line that is no
/// message.
async fn odd() -> Backend {
    let odd = backend(Era::Modern, Transport::Http).await;
    let page = r#""tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"again""#;
    odd.on("tools/list", Reply::result(Era::Modern.cacheable(page)));
    let result = Era::Modern.complete(r#""content":[]"#);
    odd.on(
        "tools/call",
        Reply::fault(Fault::Garbage(b"data: nonsense\n\n".to_vec(), result)).streamed(),
    );
    odd
}

/// The spans of a list and of a call, each in its own trace, and their log lines.
async fn lines_of(format: &str) -> [(String, String, String); 2] {
    let (odd, good) = (odd().await, backend(Era::Modern, Transport::Http).await);
    let file = TraceFile::new();
    let arguments = [&file.arguments()[..], &["--log-format", format]].concat();
    let gateway =
        Gateway::start_with(&config(&[odd.entry("odd"), good.entry("good")]), &arguments).await;
    let connected = gateway.log.line_with("server is connected").await;
    assert!(
        !connected.contains("trace_id"),
        "it belongs to no request: {connected}"
    );
    let mut found = Vec::new();
    for (number, method, params, span, part) in [
        (1, "tools/list", "", "tools/list", "it repeated a cursor"),
        (
            2,
            "tools/call",
            r#""name":"odd__t""#,
            "tools/call odd__t",
            "ignored on an event stream",
        ),
    ] {
        let context = from_client(number, "01");
        let body = modern_request(
            "1",
            method,
            params,
            &format!(r#""traceparent":"{context}""#),
        );
        post_modern(gateway.mcp, &body).await.messages().await;
        let trace = file.trace(&context, &[(SERVER, span)]).await;
        let line = gateway.log.line_with(part).await;
        let line = line
            .strip_prefix("err| ")
            .expect("on standard error")
            .to_owned();
        found.push((
            context[3..35].to_owned(),
            trace.one(SERVER, span).id().to_owned(),
            line,
        ));
    }
    found.try_into().unwrap()
}

#[tokio::test]
async fn json_log_lines_have_trace_ids_as_members() {
    for (trace_id, span_id, line) in lines_of("json").await {
        let text = |path| member(&line, path).and_then(plain_string);
        assert_eq!(text("trace_id"), Some(trace_id.as_str()), "{line}");
        assert_eq!(text("span_id"), Some(span_id.as_str()), "{line}");
        assert_eq!(text("level"), Some("WARN"), "{line}");
        assert!(
            serde_json::from_str::<serde_json::Value>(&line).is_ok(),
            "{line}"
        );
    }
}

#[tokio::test]
async fn text_log_lines_end_with_trace_ids() {
    for (trace_id, span_id, line) in lines_of("text").await {
        assert!(
            line.ends_with(&format!(" trace_id={trace_id} span_id={span_id}")),
            "{line}"
        );
    }
}
