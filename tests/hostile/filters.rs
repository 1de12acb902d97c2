//! Names under which a server knows a tool that its filter hides.

use fanlight_testkit::slicer::member;

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, MODERN, legacy_request, modern_request, post};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// What a server with case-insensitive names, or one that trims them, could take for `write_file`.
const HIDDEN: [&str; 9] = [
    "write_file",
    "WRITE_FILE",
    "Write_File",
    " write_file",
    "write_file ",
    r"write_file\u0000",
    r"wr\u0131te_file",
    "write-file",
    r"write_file\ud800",
];

async fn server(era: Era) -> Backend {
    let backend = Backend::start(era, Transport::Http).await;
    backend.offers_tools(&["read_file", "write_file"]);
    let result = if era == Era::Modern { era.complete(r#""content":[]"#) } else { r#"{"content":[]}"#.to_owned() };
    backend.on("tools/call", Reply::result(result));
    backend
}

/// Calls each hidden name with `prefix`, before and after a list has been read, in both eras of clients.
async fn assert_hidden(gateway: &Gateway, backend: &Backend, prefix: &str) {
    let session = LegacySession::open(gateway.mcp).await;
    for round in 0..2 {
        for name in HIDDEN {
            let params = format!(r#""name":"{prefix}{name}","arguments":{{}}"#);
            let answer = session.post(&legacy_request("1", "tools/call", &params)).await.text().await;
            assert!(answer.contains("-32602"), "{round} {name}: {answer}");
            // Its header cannot say every name; that it is refused is all that matters.
            let plain = format!("{prefix}{}", if name.contains('\\') { "x" } else { name });
            let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", &plain)];
            let answer =
                post(gateway.mcp, &headers, &modern_request("1", "tools/call", &params, "")).await.text().await;
            assert!(member(&answer, "error").is_some(), "{round} {name}: {answer}");
        }
        let listed = session.post(&legacy_request("1", "tools/list", "")).await.text().await;
        assert!(listed.contains("read_file") && !listed.contains(&format!(r#""{prefix}write_file""#)), "{listed}");
    }
    // A server could take these for the method whose names are filtered.
    for method in ["Tools/Call", r"tools/call\u0000", "tools/CALL", "ｔools/call"] {
        let request = legacy_request("1", method, &format!(r#""name":"{prefix}write_file","arguments":{{}}"#));
        let answer = session.post(&request).await.text().await;
        assert!(answer.contains("-32601"), "{method}: {answer}");
        assert!(backend.received(method).is_empty());
    }
    assert!(backend.received("tools/call").is_empty());
    let call = legacy_request("1", "tools/call", &format!(r#""name":"{prefix}read_file","arguments":{{}}"#));
    let answer = session.post(&call).await.text().await;
    assert!(answer.contains(r#""content":[]"#), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_tool_is_reached_under_no_other_name() {
    for filter in [r#""tools":{"deny":["write_file"]}"#, r#""tools":{"allow":["read_*"]}"#] {
        for (era, more) in [(Era::Legacy, ""), (Era::Modern, r#","prefix":"f-""#)] {
            let backend = server(era).await;
            let gateway = Gateway::start(&config(&[backend.entry_with("files", &format!("{filter}{more}"))])).await;
            assert_hidden(&gateway, &backend, if more.is_empty() { "" } else { "f-" }).await;
        }
        let (backend, other) = (server(Era::Modern).await, server(Era::Legacy).await);
        let gateway = Gateway::start(&config(&[backend.entry_with("files", filter), other.entry("other")])).await;
        assert_hidden(&gateway, &backend, "files__").await;
        assert!(other.received("tools/call").is_empty());
        // A server without a filter decides for itself which names it knows.
        let session = LegacySession::open(gateway.mcp).await;
        let call = legacy_request("1", "tools/call", r#""name":"other__unlisted","arguments":{}"#);
        assert!(session.post(&call).await.text().await.contains(r#""content":[]"#));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_tool_is_not_reached_while_its_server_cannot_be_listed() {
    let (backend, other) = (server(Era::Modern).await, server(Era::Modern).await);
    backend.on("tools/list", Reply::error(r#"{"code":-32603,"message":"no list now"}"#));
    let entry = backend.entry_with("files", r#""tools":{"deny":["write_file"]}"#);
    let gateway = Gateway::start(&config(&[entry, other.entry("other")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    for name in ["files__WRITE_FILE", "files__write_file", "files__read_file"] {
        let call = legacy_request("1", "tools/call", &format!(r#""name":"{name}","arguments":{{}}"#));
        let answer = session.post(&call).await.text().await;
        assert_eq!(member(&answer, "error.code"), Some("-32602"), "{answer}");
    }
    assert!(backend.received("tools/call").is_empty());
}
