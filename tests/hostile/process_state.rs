//! Principals that try to see the state that a modern stdio server, which has no sessions, keeps
//! for others.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};

use fanlight_testkit::signing_in::{ANN, BOB, KEYS, WITH_KEYS};
use fanlight_testkit::slicer::{member, plain_string};

use crate::harness::{Gateway, TempFile};
use crate::raw_client::{
    INITIALIZED, initialize, legacy_request, modern_headers, modern_request, post,
};
use crate::scripted::{Backend, Era, Reply, Transport};

const SECRET: &str = "of-ann";

/// A server whose processes each store the last text that was put, and return it to anybody by any
/// method.
async fn forgetful(era: Era) -> Backend {
    let server = Backend::start(era, Transport::Stdio).await;
    server.declares(r#"{"tools":{},"resources":{},"prompts":{},"completions":{}}"#);
    server.offers_tools(&["put", "get"]);
    server.on("prompts/list", server.list("prompts", r#"{"name":"get"}"#));
    server.on(
        "resources/list",
        server.list("resources", r#"{"uri":"a://get","name":"get"}"#),
    );
    let kept = Arc::new(Mutex::new(HashMap::new()));
    let answer = move |member_name: &'static str, around: (&'static str, &'static str)| {
        let kept = Arc::clone(&kept);
        Reply::compute(move |request| {
            let mut kept = kept.lock().unwrap();
            let process = request.process.unwrap();
            if let Some(text) = request
                .member("params.arguments.text")
                .and_then(plain_string)
            {
                kept.insert(process, text.to_owned());
            }
            let text = kept.get(&process).cloned().unwrap_or_default();
            era.complete(&format!(
                r#""{member_name}":{}{text}{}"#,
                around.0, around.1
            ))
        })
    };
    server.on(
        "tools/call",
        answer("content", (r#"[{"type":"text","text":""#, r#""}]"#)),
    );
    let private = r#""}],"ttlMs":0,"cacheScope":"private""#;
    server.on(
        "resources/read",
        answer("contents", (r#"[{"uri":"a://get","text":""#, private)),
    );
    let message = (
        r#"[{"role":"user","content":{"type":"text","text":""#,
        r#""}}]"#,
    );
    server.on("prompts/get", answer("messages", message));
    server.on(
        "completion/complete",
        answer("completion", (r#"{"values":[""#, r#""]}"#)),
    );
    server
}

/// The requests that return the stored text; `prefix` is the prefix of names.
fn ways(prefix: &str) -> [(&'static str, String); 4] {
    [
        ("tools/call", format!(r#""name":"{prefix}get""#)),
        ("resources/read", r#""uri":"a://get""#.to_owned()),
        ("prompts/get", format!(r#""name":"{prefix}get""#)),
        (
            "completion/complete",
            format!(
                r#""ref":{{"type":"ref/prompt","name":"{prefix}get"}},"argument":{{"name":"a","value":"o"}}"#
            ),
        ),
    ]
}

async fn modern(gateway: &Gateway, key: &str, method: &str, params: &str) -> String {
    let body = modern_request("1", method, params, "");
    let (mut headers, bearer) = (modern_headers(&body), format!("Bearer {key}"));
    headers.push(("Authorization".to_owned(), bearer));
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    post(gateway.mcp, &headers, &body).await.messages().await.1
}

/// The answer in a new session of a legacy client with these capabilities.
async fn legacy(
    gateway: &Gateway,
    key: &str,
    capabilities: &str,
    method: &str,
    params: &str,
) -> String {
    let bearer = format!("Bearer {key}");
    let opened = post(
        gateway.mcp,
        &[("Authorization", &bearer)],
        &initialize("2025-11-25", capabilities),
    )
    .await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let version = ("MCP-Protocol-Version", "2025-11-25");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Mcp-Session-Id", session.as_str()),
        version,
    ];
    assert_eq!(post(gateway.mcp, &headers, INITIALIZED).await.status, 202);
    post(
        gateway.mcp,
        &headers,
        &legacy_request("\"of a session\"", method, params),
    )
    .await
    .messages()
    .await
    .1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_a_process_is_seen_by_its_principal_alone() {
    for (others, limit) in [(0, 64), (1, 64), (1, 1)] {
        let (server, other) = (
            forgetful(Era::Modern).await,
            Backend::start(Era::Legacy, Transport::Http).await,
        );
        other.offers_tools(&["t"]);
        let folder = TempFile::folder();
        fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
        let entries = [server.entry("s"), other.entry("other")];
        let entries = entries[..=others].join(",");
        let config =
            format!("{WITH_KEYS}limits: {{processes: {limit}}}\nmcpServers: {{{entries}}}\n");
        fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
        let gateway = Gateway::start_at(folder.path().join("fanlight.yaml")).await;
        let prefix = if others == 0 { "" } else { "s__" };
        let put = format!(r#""name":"{prefix}put","arguments":{{"text":"{SECRET}"}}"#);
        assert!(member(&modern(&gateway, ANN, "tools/call", &put).await, "result").is_some());
        for (method, params) in ways(prefix) {
            // With a limit of one process, Ann's process ends for Bob, and its text is gone.
            let seen = modern(&gateway, ANN, method, &params).await;
            assert_eq!(
                seen.contains(SECRET),
                limit > 1 || method == "tools/call",
                "{method}: {seen}"
            );
            let mut answers = vec![modern(&gateway, BOB, method, &params).await];
            for capabilities in ["{}", r#"{"elicitation":{},"roots":{}}"#] {
                answers.push(legacy(&gateway, BOB, capabilities, method, &params).await);
            }
            for answer in answers {
                assert!(
                    member(&answer, "result").is_some() && !answer.contains(SECRET),
                    "{method}: {answer}"
                );
            }
        }
        for method in ["tools/list", "resources/list", "prompts/list"] {
            assert!(!modern(&gateway, BOB, method, "").await.contains(SECRET));
        }
    }
}
