//! Clients that try to send an argument that the configuration fixes or hides.

use crate::harness::Gateway;
use crate::raw_client::{
    LegacySession, legacy_request, modern_headers, modern_request, post, post_modern,
};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const TOOLS: &str = r#"{"name":"create","inputSchema":{"type":"object","properties":{"owner":{"type":"string"},"debug":{"type":"boolean"},"title":{"type":"string"}},"required":["owner"]}}"#;
const RULES: &str = r#""arguments":{"create":{"owner":{"value":"acme"},"debug":{"hidden":true}}}"#;

/// Texts that a server could read as `owner`, as `debug`, or as another `arguments` object.
const ATTACKS: [&str; 22] = [
    r#""arguments":{"owner":"evil"}"#,
    r#""arguments":{"title":"t","owner":"acme"}"#,
    r#""arguments":{"debug":true}"#,
    r#""arguments":{"debug":null}"#,
    r#""arguments":{"\u006fwner":"evil"}"#,
    r#""arguments":{"Owner":"evil"}"#,
    r#""arguments":{"OWNER":"evil"}"#,
    r#""arguments":{"owner\u0000":"evil"}"#,
    r#""arguments":{"owner\u0000é":"evil"}"#,
    r#""arguments":{"\uff4fwner":"evil"}"#,
    r#""arguments":{"𝐨wner":"evil"}"#,
    r#""arguments":{"own\u200ber":"evil"}"#,
    r#""arguments":{"own_er":"evil"}"#,
    r#""arguments":{" owner ":"evil"}"#,
    r#""arguments":{"owner\ud800":"evil"}"#,
    r#""arguments":{"title":1,"title":2,"owner":3}"#,
    r#""arguments":{},"arguments":{"owner":"evil"}"#,
    r#""arguments":{},"Arguments":{"owner":"evil"}"#,
    r#""arguments":{},"arguments\u0000":{"owner":"evil"}"#,
    r#""arguments":[{"owner":"evil"}]"#,
    r#""arguments":"{\"owner\":\"evil\"}""#,
    r#""arguments":{"debug":true},"task":{"ttl":1000}"#,
];

async fn server(era: Era, transport: Transport) -> Backend {
    let backend = Backend::start(era, transport).await;
    backend.on("tools/list", backend.list("tools", TOOLS));
    backend.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    backend
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fixed_and_hidden_arguments_are_sent_by_no_trick() {
    for (era, transport) in [
        (Era::Legacy, Transport::Stdio),
        (Era::Modern, Transport::Http),
    ] {
        let backend = server(era, transport).await;
        let gateway = Gateway::start(&config(&[backend.entry_with("one", RULES)])).await;
        let session = LegacySession::open(gateway.mcp).await;
        // In the second round the gateway has read the list.
        for round in 0..2 {
            for attack in ATTACKS {
                let params = format!(r#""name":"create",{attack}"#);
                let answer = session
                    .post(&legacy_request("1", "tools/call", &params))
                    .await
                    .text()
                    .await;
                assert!(answer.contains("\"error\""), "{round} {attack}: {answer}");
                let call = modern_request("1", "tools/call", &params, "");
                let answer = post_modern(gateway.mcp, &call).await.text().await;
                assert!(answer.contains("\"error\""), "{round} {attack}: {answer}");
            }
            session
                .post(&legacy_request("2", "tools/list", ""))
                .await
                .text()
                .await;
        }
        assert!(backend.received("tools/call").is_empty());

        // In nested objects and other members the names mean nothing; the fixed value stays the
        // only one.
        let params = r#""name":"create","arguments":{"title":{"owner":"x","debug":1}},"owner":"x","debug":1"#;
        let answer = session
            .post(&legacy_request("3", "tools/call", params))
            .await
            .text()
            .await;
        assert!(answer.contains(r#""content":[]"#), "{answer}");
        let calls = backend.received("tools/call");
        let sent = r#"{"owner":"acme","title":{"owner":"x","debug":1}}"#;
        assert_eq!(
            (calls.len(), calls[0].member("params.arguments")),
            (1, Some(sent))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guarded_tool_is_reached_by_no_other_name_or_method() {
    let (backend, other) = (
        server(Era::Modern, Transport::Http).await,
        server(Era::Modern, Transport::Http).await,
    );
    for (entries, prefix) in [
        (vec![backend.entry_with("one", RULES)], ""),
        (
            vec![backend.entry_with("one", RULES), other.entry("two")],
            "one__",
        ),
    ] {
        let gateway = Gateway::start(&config(&entries)).await;
        let session = LegacySession::open(gateway.mcp).await;
        for _ in 0..2 {
            for name in ["CREATE", "Create", "create ", r"create\u0000", "cre-ate"] {
                let params = format!(r#""name":"{prefix}{name}","arguments":{{"owner":"evil"}}"#);
                let answer = session
                    .post(&legacy_request("1", "tools/call", &params))
                    .await
                    .text()
                    .await;
                assert!(answer.contains("\"error\""), "{name}: {answer}");
            }
            for method in ["Tools/Call", r"tools/call\u0000", "x/call"] {
                for name in ["create".to_owned(), format!("{prefix}create")] {
                    let params = format!(r#""name":"{name}","arguments":{{"owner":"evil"}}"#);
                    let answer = session
                        .post(&legacy_request("1", method, &params))
                        .await
                        .text()
                        .await;
                    assert!(answer.contains("\"error\""), "{method} {name}: {answer}");
                    assert!(backend.received("x/call").is_empty(), "{name}");
                }
            }
            session
                .post(&legacy_request("2", "tools/list", ""))
                .await
                .text()
                .await;
        }
        assert!(backend.received("tools/call").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_does_not_pass_fixed_arguments() {
    let backend = server(Era::Legacy, Transport::Http).await;
    let gateway = Gateway::start(&config(&[backend.entry_with("one", RULES)])).await;
    let session = LegacySession::open_as(gateway.mcp, "2025-03-26").await;
    let call = |id: &str, arguments: &str| {
        legacy_request(
            id,
            "tools/call",
            &format!(r#""name":"create","arguments":{arguments}"#),
        )
    };
    let batch = format!(
        "[{},{},{}]",
        call("1", r#"{"owner":"evil"}"#),
        call("2", "{}"),
        call("3", r#"{"Owner":"evil"}"#)
    );
    let mut answers = session.post(&batch).await.whole_text().await;
    answers.retain(|c| c != '\n');
    assert_eq!(answers.matches("-32602").count(), 2, "{answers}");
    let calls = backend.received("tools/call");
    assert_eq!(
        (calls.len(), calls[0].member("params.arguments")),
        (1, Some(r#"{"owner":"acme"}"#))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_cannot_carry_what_the_body_may_not() {
    let backend = server(Era::Modern, Transport::Http).await;
    let tools = TOOLS.replace(
        r#""owner":{"type":"string"}"#,
        r#""owner":{"type":"string","x-mcp-header":"Owner"}"#,
    );
    backend.on("tools/list", backend.list("tools", &tools));
    let gateway = Gateway::start(&config(&[backend.entry_with("one", RULES)])).await;
    let call = modern_request("1", "tools/call", r#""name":"create","arguments":{}"#, "");
    let headers = modern_headers(&call);
    let mut headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    headers.push(("Mcp-Param-Owner", "evil"));
    post(gateway.mcp, &headers, &call).await.text().await;
    for call in backend.received("tools/call") {
        assert_eq!(call.header("mcp-param-owner"), Some("acme"));
        assert_eq!(
            call.headers
                .iter()
                .filter(|(name, _)| name == "mcp-param-owner")
                .count(),
            1
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_and_body_cannot_say_two_things() {
    let backend = server(Era::Modern, Transport::Http).await;
    let tools = r#"{"name":"create","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},
        {"name":"two","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}},"inputSchema":{}},
        {"name":"plain","inputSchema":{"type":"object"}}"#;
    backend.on("tools/list", backend.list("tools", tools));
    let gateway = Gateway::start(&config(&[backend.entry("one")])).await;
    let session = LegacySession::open_as(gateway.mcp, "2025-06-18").await;
    let call = async |name: &str, arguments: &str| {
        let params = format!(r#""name":"{name}","arguments":{arguments}"#);
        session
            .post(&legacy_request("1", "tools/call", &params))
            .await
            .text()
            .await
    };
    let mut listed = session.post(&legacy_request("9", "tools/list", "")).await;
    assert!(!listed.text().await.contains("two"));
    for arguments in [
        r#"{"region":"eu","region":"us"}"#,
        r#"{"region":"eu","\u0072egion":"us"}"#,
        r#"{"region":"eu","x":{"a":1,"a":2}}"#,
    ] {
        let answer = call("create", arguments).await;
        assert!(answer.contains("-32602"), "{arguments}: {answer}");
    }
    assert!(backend.received("tools/call").is_empty());
    // Without anything that reads them, arguments pass as they are.
    let answer = call("plain", r#"{"region":"eu","region":"us","x":1e999}"#).await;
    assert!(answer.contains("result"), "{answer}");
    let calls = backend.received("tools/call");
    assert_eq!(
        calls[0].member("params.arguments"),
        Some(r#"{"region":"eu","region":"us","x":1e999}"#)
    );
}
