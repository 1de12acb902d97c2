//! Names under which a server knows a tool that its filter hides.

use fanlight_testkit::slicer::member;

use crate::harness::{Gateway, TempFile};
use crate::raw_client::{
    Connection, JSON_HEADERS, LegacySession, MODERN, legacy_request, modern_headers,
    modern_request, post,
};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// Names that a server could take for `write_file` by ignoring case or trimming.
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
    backend.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    backend
}

/// Calls each hidden name with `prefix`, before and after the lists are read, as a client of each
/// era.
async fn assert_hidden(gateway: &Gateway, backend: &Backend, prefix: &str) {
    let session = LegacySession::open(gateway.mcp).await;
    for round in 0..2 {
        for name in HIDDEN {
            let params = format!(r#""name":"{prefix}{name}","arguments":{{}}"#);
            let answer = session
                .post(&legacy_request("1", "tools/call", &params))
                .await
                .text()
                .await;
            assert!(answer.contains("-32602"), "{round} {name}: {answer}");
            // The header cannot carry every name; the request need only be refused.
            let plain = format!("{prefix}{}", if name.contains('\\') { "x" } else { name });
            let headers = [
                ("MCP-Protocol-Version", MODERN),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", &plain),
            ];
            let answer = post(
                gateway.mcp,
                &headers,
                &modern_request("1", "tools/call", &params, ""),
            )
            .await
            .text()
            .await;
            assert!(
                member(&answer, "error").is_some(),
                "{round} {name}: {answer}"
            );
        }
        let listed = session
            .post(&legacy_request("1", "tools/list", ""))
            .await
            .text()
            .await;
        assert!(
            listed.contains("read_file") && !listed.contains(&format!(r#""{prefix}write_file""#)),
            "{listed}"
        );
    }
    // A server could take these for the method with filtered names.
    for method in [
        "Tools/Call",
        r"tools/call\u0000",
        "tools/CALL",
        "ｔools/call",
    ] {
        let request = legacy_request(
            "1",
            method,
            &format!(r#""name":"{prefix}write_file","arguments":{{}}"#),
        );
        let answer = session.post(&request).await.text().await;
        assert!(answer.contains("-32601"), "{method}: {answer}");
        assert!(backend.received(method).is_empty());
    }
    assert!(backend.received("tools/call").is_empty());
    let call = legacy_request(
        "1",
        "tools/call",
        &format!(r#""name":"{prefix}read_file","arguments":{{}}"#),
    );
    let answer = session.post(&call).await.text().await;
    assert!(answer.contains(r#""content":[]"#), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_tool_is_reached_under_no_other_name() {
    for filter in [
        r#""tools":{"deny":["write_file"]}"#,
        r#""tools":{"allow":["read_*"]}"#,
    ] {
        for (era, more) in [(Era::Legacy, ""), (Era::Modern, r#","prefix":"f-""#)] {
            let backend = server(era).await;
            let gateway = Gateway::start(&config(&[
                backend.entry_with("files", &format!("{filter}{more}"))
            ]))
            .await;
            assert_hidden(&gateway, &backend, if more.is_empty() { "" } else { "f-" }).await;
        }
        let (backend, other) = (server(Era::Modern).await, server(Era::Legacy).await);
        let gateway = Gateway::start(&config(&[
            backend.entry_with("files", filter),
            other.entry("other"),
        ]))
        .await;
        assert_hidden(&gateway, &backend, "files__").await;
        assert!(other.received("tools/call").is_empty());
        // A server without a filter decides itself about names.
        let session = LegacySession::open(gateway.mcp).await;
        let call = legacy_request(
            "1",
            "tools/call",
            r#""name":"other__unlisted","arguments":{}"#,
        );
        assert!(
            session
                .post(&call)
                .await
                .text()
                .await
                .contains(r#""content":[]"#)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_tool_is_not_reached_while_its_server_cannot_be_listed() {
    let (backend, other) = (server(Era::Modern).await, server(Era::Modern).await);
    backend.on(
        "tools/list",
        Reply::error(r#"{"code":-32603,"message":"no list now"}"#),
    );
    let entry = backend.entry_with("files", r#""tools":{"deny":["write_file"]}"#);
    let gateway = Gateway::start(&config(&[entry, other.entry("other")])).await;
    let session = LegacySession::open(gateway.mcp).await;
    for name in ["files__WRITE_FILE", "files__write_file", "files__read_file"] {
        let call = legacy_request(
            "1",
            "tools/call",
            &format!(r#""name":"{name}","arguments":{{}}"#),
        );
        let answer = session.post(&call).await.text().await;
        assert_eq!(member(&answer, "error.code"), Some("-32602"), "{answer}");
    }
    assert!(backend.received("tools/call").is_empty());
}

/// Names of the denied tool that must not work, whatever other servers there are.
const DELETE: [&str; 2] = ["delete_all", "memory__delete_all"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_do_not_depend_on_other_servers() {
    for pattern in [
        "delete_*",
        "memory__delete_*",
        "memory/delete_*",
        "mem*__delete_*",
    ] {
        for (others, more) in [(0, ""), (1, ""), (1, r#""enabled":false"#)] {
            let (memory, time) = (server(Era::Modern).await, server(Era::Modern).await);
            memory.offers_tools(&["read", "delete_all"]);
            let entries = [memory.entry("memory"), time.entry_with("time", more)];
            let servers = config(&entries[..=others]);
            let filter = format!(r#""endpoints":{{"/mcp":{{"tools":{{"deny":["{pattern}"]}}}}}}"#);
            let gateway = Gateway::start(&servers.replacen('{', &format!("{{{filter},"), 1)).await;
            let session = LegacySession::open(gateway.mcp).await;
            let listed = session
                .post(&legacy_request("1", "tools/list", ""))
                .await
                .text()
                .await;
            assert!(
                listed.contains("read") && !listed.contains("delete_all"),
                "{pattern} {others} {more}: {listed}"
            );
            // A disabled server still counts for prefixes.
            assert_eq!(listed.contains("memory__read"), others == 1, "{listed}");
            for name in DELETE {
                let call = legacy_request(
                    "1",
                    "tools/call",
                    &format!(r#""name":"{name}","arguments":{{}}"#),
                );
                let answer = session.post(&call).await.text().await;
                assert_eq!(
                    member(&answer, "error.code"),
                    Some("-32602"),
                    "{pattern} {name}: {answer}"
                );
            }
            assert!(memory.received("tools/call").is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_method_reaches_no_server_with_filters() {
    let deny = r#""tools":{"deny":["write_file"]}"#;
    let backend = server(Era::Legacy).await;
    backend.on("batch/run", Reply::result(r#"{"done":true}"#));
    let gateway = Gateway::start(&config(&[backend.entry_with("files", deny)])).await;
    let session = LegacySession::open(gateway.mcp).await;
    for params in [
        r#""name":"write_file""#,
        r#""calls":[{"name":"write_file","arguments":{}}]"#,
        r#""calls":[[{"n\u0061me":"wr\u0069te_file"}]]"#,
    ] {
        let answer = session
            .post(&legacy_request("1", "batch/run", params))
            .await
            .text()
            .await;
        assert_eq!(member(&answer, "error.code"), Some("-32601"), "{answer}");
    }
    assert!(backend.received("batch/run").is_empty());
}

/// A key, and its digest.
const KEY: (&str, &str) = (
    "fanlight_00000000000000000000000000000000000000000002okinW",
    "319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1",
);

/// Checks that a tool that needs a scope at the default endpoint, and that another endpoint denies,
/// cannot be called.
async fn assert_not_called(gateway: &Gateway, memory: &Backend, what: &str) {
    for (path, refusal) in [("/mcp", "insufficient_scope"), ("/mcp/readers", "-32602")] {
        for name in DELETE {
            let body = modern_request(
                "1",
                "tools/call",
                &format!(r#""name":"{name}","arguments":{{}}"#),
                "",
            );
            let mut headers = modern_headers(&body);
            headers.push(("Authorization".to_owned(), format!("Bearer {}", KEY.0)));
            let own: Vec<_> = headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            let mut connection = Connection::open(gateway.mcp).await;
            connection
                .request(
                    "POST",
                    path,
                    &[&JSON_HEADERS[..], &own].concat(),
                    body.as_bytes(),
                )
                .await;
            let mut answer = connection.response().await;
            let challenge = answer
                .header("www-authenticate")
                .unwrap_or_default()
                .to_owned();
            let text = format!("{challenge} {}", answer.text().await);
            assert!(text.contains(refusal), "{what} {path} {name}: {text}");
        }
    }
    assert!(memory.received("tools/call").is_empty(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_hold_whatever_becomes_of_other_servers_at_run_time() {
    for pattern in ["delete_*", "memory__delete_*", "memory/delete_*"] {
        for is_first in [true, false] {
            let (memory, time) = (server(Era::Modern).await, server(Era::Legacy).await);
            memory.offers_tools(&["read", "delete_all"]);
            let folder = TempFile::folder();
            let keys = format!(
                "keys: [{{name: ann, sha256: '{}', scopes: [call]}}]\n",
                KEY.1
            );
            std::fs::write(folder.path().join("keys.yaml"), keys).unwrap();
            let config = |time: Option<String>| {
                let mut entries = vec![memory.entry("memory")];
                if let Some(time) = time {
                    entries.insert(usize::from(is_first), time);
                }
                let scopes = format!(r#"{{scopes: {{tools: {{"{pattern}": [admin]}}}}}}"#);
                let denied = format!(r#"{{tools: {{deny: ["{pattern}"]}}}}"#);
                let endpoints = format!("endpoints: {{/mcp: {scopes}, /mcp/readers: {denied}}}");
                let servers = entries.join(", ");
                format!(
                    "auth: {{keys: {{file: keys.yaml}}}}\n{endpoints}\nmcpServers: {{{servers}}}\n"
                )
            };
            let file = folder.path().join("fanlight.yaml");
            std::fs::write(&file, config(Some(time.entry("time")))).unwrap();
            let gateway = Gateway::start_at(file.clone()).await;
            assert_not_called(&gateway, &memory, "at the start").await;
            for action in ["disable", "enable", "disable"] {
                let mut connection = Connection::open(gateway.admin).await;
                connection
                    .request("POST", &format!("/api/servers/time/{action}"), &[], b"")
                    .await;
                assert_eq!(connection.response().await.status, 200);
                assert_not_called(&gateway, &memory, action).await;
            }
            let off = time.entry_with("time", r#""enabled":false"#);
            for (what, time) in [
                ("off", Some(off)),
                ("removed", None),
                ("there again", Some(time.entry("time"))),
            ] {
                std::fs::write(folder.path().join("new"), config(time)).unwrap();
                std::fs::rename(folder.path().join("new"), &file).unwrap();
                let (status, report) = gateway.reload().await;
                assert_eq!(status, 200, "{report}");
                assert_not_called(&gateway, &memory, what).await;
            }
        }
    }
}
