//! Names, definitions and arguments that the configuration overrides.

use std::process::Stdio;

use fanlight_testkit::slicer::{compact, member};

use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{
    LegacySession, StdioClient, legacy_request, modern_headers, modern_request, post, post_modern,
};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const TOOLS: &str = r#"{ "name":"create", "description":"old","inputSchema":{"type":"object","properties":{"owner":{"type":"string","x-mcp-header":"Owner"},"page":{"type":"integer","x-mcp-header":"Page"},"debug":{"type":"boolean"},"title":{"type":"string"}},"required":["owner","page"]}, "unheard-of":1.0 },{"name":"other","inputSchema":{"type":"object"}}"#;
const SHOWN: &str = r#""description":"new","inputSchema":{"type":"object","properties":{"page":{"type":"integer","x-mcp-header":"Page","default":7},"title":{"type":"string"}}}, "unheard-of":1.0 }"#;
const RULES: &str = r#""rename":{"create":"file"},"override":{"create":{"description":"new"}},"arguments":{"create":{"owner":{"value":"acme"},"page":{"default":7},"debug":{"hidden":true}}}"#;
const ARGUMENTS: &str = r#"{"owner":"acme","page":7,"title":"é"}"#;

async fn server(era: Era, transport: Transport) -> Backend {
    let backend = Backend::start(era, transport).await;
    backend.on("tools/list", backend.list("tools", TOOLS));
    backend.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    backend
}

/// Checks the newest call at the server.
fn assert_called(backend: &Backend, count: usize) {
    let calls = backend.received("tools/call");
    assert_eq!(calls.len(), count);
    let call = calls.last().unwrap();
    assert_eq!(
        call.member("params.name"),
        Some("\"create\""),
        "{}",
        call.text
    );
    assert_eq!(
        call.member("params.arguments"),
        Some(ARGUMENTS),
        "{}",
        call.text
    );
    // A modern server also gets the headers for injected arguments.
    if call.header("mcp-name").is_some() {
        let headers =
            ["mcp-name", "mcp-param-owner", "mcp-param-page"].map(|name| call.header(name));
        assert_eq!(headers, [Some("create"), Some("acme"), Some("7")]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_tool_is_listed_and_called_by_clients_of_both_eras() {
    for era in [Era::Legacy, Era::Modern] {
        for transport in [Transport::Http, Transport::Stdio] {
            for several in [false, true] {
                let (backend, other) = (
                    server(era, transport).await,
                    server(Era::Modern, Transport::Http).await,
                );
                let mut entries = vec![backend.entry_with("one", RULES)];
                if several {
                    entries.push(other.entry("two"));
                }
                let prefix = if several { "one__" } else { "" };
                let gateway = Gateway::start(&config(&entries)).await;
                let params =
                    |name: &str| format!(r#""name":"{prefix}{name}","arguments":{{"title":"é"}}"#);
                let shown = format!(r#"{{ "name":"{prefix}file", {SHOWN}"#);

                let session = LegacySession::open(gateway.mcp).await;
                let listed = session
                    .post(&legacy_request("1", "tools/list", ""))
                    .await
                    .text()
                    .await;
                assert!(listed.contains(&shown), "{listed}");
                let answer = session
                    .post(&legacy_request("2", "tools/call", &params("file")))
                    .await
                    .text()
                    .await;
                assert!(answer.contains(r#""content":[]"#), "{answer}");
                assert_called(&backend, 1);
                let answer = session
                    .post(&legacy_request("3", "tools/call", &params("create")))
                    .await
                    .text()
                    .await;
                assert!(answer.contains("-32602"), "{answer}");

                let listed = post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
                    .await
                    .text()
                    .await;
                assert!(listed.contains(&shown), "{listed}");
                let call = modern_request("2", "tools/call", &params("file"), "");
                let answer = post_modern(gateway.mcp, &call).await.text().await;
                assert!(answer.contains(r#""content":[]"#), "{answer}");
                assert_called(&backend, 2);
                let old = modern_request("3", "tools/call", &params("create"), "");
                let answer = post_modern(gateway.mcp, &old).await.text().await;
                assert!(member(&answer, "error").is_some(), "{answer}");
                assert_eq!(backend.received("tools/call").len(), 2);
                assert!(other.received("tools/call").is_empty());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirrored_argument_with_a_default_is_checked_where_the_client_sends_it() {
    let backend = server(Era::Modern, Transport::Http).await;
    let gateway = Gateway::start(&config(&[backend.entry_with("one", RULES)])).await;
    let call = modern_request(
        "1",
        "tools/call",
        r#""name":"file","arguments":{"page":9}"#,
        "",
    );
    let headers = modern_headers(&call);
    let mut headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let refused = post(gateway.mcp, &headers, &call).await;
    assert_eq!(refused.status, 400);
    headers.push(("Mcp-Param-Page", "9"));
    let answer = post(gateway.mcp, &headers, &call).await.text().await;
    assert!(answer.contains(r#""content":[]"#), "{answer}");
    let calls = backend.received("tools/call");
    let headers = ["mcp-param-owner", "mcp-param-page"].map(|name| calls[0].header(name));
    assert_eq!((calls.len(), headers), (1, [Some("acme"), Some("9")]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_tool_is_called_over_standard_input() {
    let backend = server(Era::Modern, Transport::Stdio).await;
    let mut gateway = Gateway::stdio(&config(&[backend.entry_with("one", RULES)]));
    let mut client = StdioClient::new(&mut gateway);
    client.initialize("2025-11-25").await;
    let call = |id: &str, name: &str, arguments: &str| {
        legacy_request(
            id,
            "tools/call",
            &format!(r#""name":"{name}","arguments":{arguments}"#),
        )
    };
    let (_, answer) = client.call(&call("1", "file", r#"{"title":"é"}"#)).await;
    assert!(answer.contains(r#""content":[]"#), "{answer}");
    assert_called(&backend, 1);
    for (name, arguments) in [
        ("create", "{}"),
        ("file", r#"{"owner":"x"}"#),
        ("file", r#"{"Debug":true}"#),
    ] {
        let (_, answer) = client.call(&call("2", name, arguments)).await;
        assert!(answer.contains("-32602"), "{answer}");
    }
    assert_eq!(backend.received("tools/call").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_say_what_was_changed() {
    let backend = server(Era::Modern, Transport::Http).await;
    let traces = TempFile::new("jsonl", "");
    let file = traces.path().to_str().unwrap();
    let gateway = Gateway::start_with(
        &config(&[backend.entry_with("one", RULES)]),
        &["--trace-file", file],
    )
    .await;
    for (id, method, params) in [
        ("1", "tools/list", ""),
        ("2", "tools/call", r#""name":"file","arguments":{}"#),
        ("3", "tools/call", r#""name":"other""#),
    ] {
        post_modern(gateway.mcp, &modern_request(id, method, params, ""))
            .await
            .text()
            .await;
    }
    gateway.terminate().await;
    let traces = std::fs::read_to_string(file).unwrap();
    let said = |what: &str| {
        traces.contains(&format!(
            r#"{{"key":"fanlight.rewritten","value":{{"stringValue":"{what}"}}}}"#
        ))
    };
    assert!(
        said("name, arguments") && said("name, description, arguments"),
        "{traces}"
    );
    assert_eq!(traces.matches("fanlight.rewritten").count(), 2, "{traces}");
    assert!(
        !traces.contains("acme"),
        "fixed values may be secrets: {traces}"
    );
}

async fn command(arguments: &[&str], config_text: &str) -> (bool, String) {
    let config = TempFile::new("yaml", config_text);
    let mut command = fanlight();
    command
        .args(arguments)
        .arg("--config")
        .arg(config.path())
        .stdin(Stdio::null());
    let output = within(&format!("{arguments:?}"), command.output())
        .await
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_and_diff_show_what_was_changed() {
    let backend = server(Era::Legacy, Transport::Http).await;
    let rules = RULES
        .replace(r#""rename":{"#, r#""rename":{"absent":"x","#)
        .replace(r#""debug":"#, r#""debgu":"#);
    let (succeeded, text) =
        command(&["check"], &config(&[backend.entry_with("one", &rules)])).await;
    assert!(succeeded, "{text}");
    for part in [
        r#"as configured: "create" of "one" is called "file", has another description, has a fixed argument "owner""#,
        r#"the tool "create" of "one" has no argument "debgu""#,
        r#"mcpServers.one.rename: "absent" matches no tool or prompt of "one""#,
    ] {
        assert!(text.contains(part), "`{part}` missing in {text}");
    }
    let short = config(&[backend.entry_with(
        "a-server-with-a-rather-long-name",
        r#""prefix":"a-server-with-a-rather-long-name__""#,
    )]);
    let short = short.replacen('{', r#"{"naming":{"maxLength":20},"#, 1);
    let (_, text) = command(&["check"], &short).await;
    assert!(
        text.contains(r#"as configured: "create" of "a-server-with-a-rather-long-name" is called "a-server-wi_"#),
        "{text}"
    );

    let config = config(&[backend.entry_with("one", RULES)]);
    let (succeeded, text) = command(&["diff", "file", r#"{"title":"é"}"#], &config).await;
    assert!(succeeded, "{text}");
    for part in [
        "intended: the tool's /name",
        "intended: the tool's /description",
        "fixed argument \"owner\"",
        "no difference",
    ] {
        assert!(text.contains(part), "`{part}` missing in {text}");
    }
    assert!(!text.contains("acme"), "{text}");
    for call in backend.received("tools/call") {
        assert_eq!(
            call.member("params.arguments").map(compact),
            Some(compact(ARGUMENTS))
        );
    }
}

const ODD_TOOLS: &str = r#"{"name":"plain","inputSchema":{"type":"object"}},{"name":"with.dot","inputSchema":{"type":"object"}},{"name":"hidden/one","inputSchema":{"type":"object"}}"#;
/// The safe name of `with.dot`: it ends with the SHA-256 of server and own name.
const SAFE_NAME: &str = "one__with_dot_3035d251";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn safe_names_are_called_and_decided_about_by_own_names() {
    for era in [Era::Legacy, Era::Modern] {
        let backend = server(era, Transport::Http).await;
        backend.on("tools/list", backend.list("tools", ODD_TOOLS));
        let entry = backend.entry_with("one", r#""tools":{"deny":["hidden/*"]}"#);
        let safe = config(&[entry]).replacen('{', r#"{"naming":{"safe":true},"#, 1);
        let gateway = Gateway::start(&safe).await;
        let list = modern_request("1", "tools/list", "", "");
        let listed = post_modern(gateway.mcp, &list).await.text().await;
        for (name, is_listed) in [("one__plain", true), (SAFE_NAME, true), ("hidden", false)] {
            assert_eq!(listed.contains(name), is_listed, "{name} in {listed}");
        }
        let session = LegacySession::open(gateway.mcp).await;
        let params = format!(r#""name":"{SAFE_NAME}""#);
        for number in [1, 2] {
            let mut answer = match number {
                1 => {
                    let call = legacy_request("2", "tools/call", &params);
                    session.post(&call).await
                }
                _ => {
                    let call = modern_request("2", "tools/call", &params, "");
                    post_modern(gateway.mcp, &call).await
                }
            };
            let answer = answer.text().await;
            assert!(answer.contains(r#""content":[]"#), "{answer}");
            let calls = backend.received("tools/call");
            assert_eq!(calls.len(), number);
            assert_eq!(
                calls[number - 1].member("params.name"),
                Some("\"with.dot\"")
            );
        }
        for unknown in ["one__with.dot", "one__with_dot_00000000"] {
            let call = modern_request("3", "tools/call", &format!(r#""name":"{unknown}""#), "");
            let answer = post_modern(gateway.mcp, &call).await.text().await;
            assert!(member(&answer, "error").is_some(), "{unknown}: {answer}");
        }
        assert_eq!(backend.received("tools/call").len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_says_which_clients_refuse_a_name() {
    let backend = server(Era::Legacy, Transport::Http).await;
    backend.on("tools/list", backend.list("tools", ODD_TOOLS));
    let plain = config(&[backend.entry("one")]);
    let (succeeded, text) = command(&["check"], &plain).await;
    assert!(succeeded, "{text}");
    let part = r#"Gemini refuses 1 tool: "hidden/one" (has '/'); `naming: {safe: true}` makes"#;
    assert!(text.contains(part), "{text}");
    let safe = plain.replacen('{', r#"{"naming":{"safe":true},"#, 1);
    let (_, text) = command(&["check"], &safe).await;
    assert!(!text.contains(" refuses "), "{text}");

    let both = plain.replacen('{', r#"{"naming":{"safe":true,"maxLength":32},"#, 1);
    let (succeeded, text) = command(&["check"], &both).await;
    assert!(
        !succeeded && text.contains("`maxLength` does not go with `safe`"),
        "{text}"
    );
}
