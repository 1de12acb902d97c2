//! Commands for programs: JSON on standard output, exit statuses, and suggestions for mistyped
//! names.

use std::fs;

use serde_json::{Value, json};

use super::run_in;
use crate::harness::TempFile;
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// A folder whose configuration has two servers, each with a tool `flaky`.
async fn folder() -> (TempFile, Backend, Backend) {
    let (folder, shop, other) = (
        TempFile::folder(),
        Backend::start(Era::Modern, Transport::Http).await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    for backend in [&shop, &other] {
        backend.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[],"structuredContent":{"n":1.0}"#)),
        );
    }
    shop.offers_tools(&["flaky"]);
    other.offers_tools(&["steady"]);
    let servers = config(&[shop.entry("shop"), other.entry("other")]);
    let endpoints = r#""endpoints":{"/mcp":{},"/mcp/readers":{"servers":["shop"]}},"#;
    fs::write(
        folder.path().join("fanlight.yaml"),
        format!("{{{endpoints}{}", &servers[1..]),
    )
    .unwrap();
    (folder, shop, other)
}

#[tokio::test]
async fn check_gives_the_cost_of_each_definition() {
    let (folder, _shop, _other) = folder().await;
    let ran = run_in(folder.path(), &["check", "--json"]).await;
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    for (at, name) in ["shop__flaky", "other__steady"].into_iter().enumerate() {
        let server = &report["servers"][at];
        let bytes = server["toolBytes"].as_u64().unwrap();
        let tokens = &server["estimatedTokens"];
        let tool = json!({ "name": name, "bytes": bytes, "estimatedTokens": tokens });
        assert_eq!(server["tools"], json!([tool]));
        assert!(bytes > name.len() as u64);
    }
    let ran = run_in(folder.path(), &["check"]).await;
    let largest = "largest definitions: other__steady (";
    assert!(ran.out.contains(largest), "{}", ran.text());
}

#[tokio::test]
async fn wrong_names_get_suggestions() {
    let (folder, _shop, _other) = folder().await;
    // `call` also accepts the tool's own name if only one server has it.
    for (command, name) in [
        ("call", "shop_flaky"),
        ("diff", "flaky"),
        ("trace-test", "flaky"),
    ] {
        let ran = run_in(folder.path(), &[command, name]).await;
        assert!(
            ran.status == 2 && ran.err.contains("did you mean shop__flaky?"),
            "{command}: {}",
            ran.text()
        );
    }
    let ran = run_in(folder.path(), &["call", "weather"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("`fanlight list tools`"),
        "{}",
        ran.text()
    );
    let ran = run_in(folder.path(), &["list", "--endpoint", "/mcp/reader"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("did you mean /mcp/readers"),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn calls_and_differences_have_json() {
    let (folder, shop, _other) = folder().await;
    let ran = run_in(folder.path(), &["call", "shop__flaky", "--json"]).await;
    assert_eq!(
        (ran.status, &ran.json()["structuredContent"]),
        (0, &json!({ "n": 1.0 })),
        "{}",
        ran.text()
    );
    let ran = run_in(folder.path(), &["diff", "shop__flaky", "--json"]).await;
    assert_eq!(
        (ran.status, &ran.json()["identical"]),
        (0, &json!(true)),
        "{}",
        ran.text()
    );
    let calls = std::sync::atomic::AtomicUsize::new(0);
    shop.on(
        "tools/call",
        Reply::compute(move |_| {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Era::Modern.complete(&format!(
                r#""content":[],"structuredContent":{{"n":{call}}}"#
            ))
        }),
    );
    let ran = run_in(folder.path(), &["diff", "shop__flaky", "--json"]).await;
    let report = ran.json();
    assert_eq!(
        (ran.status, &report["identical"]),
        (1, &json!(false)),
        "{}",
        ran.text()
    );
    assert_eq!(report["direct"]["structuredContent"], json!({ "n": 0 }));
    assert_eq!(report["gateway"]["structuredContent"], json!({ "n": 1 }));
}

#[tokio::test]
async fn validation_has_json() {
    let (folder, _shop, _other) = folder().await;
    let ran = run_in(folder.path(), &["validate", "--json"]).await;
    assert_eq!(
        (ran.status, &ran.json()["valid"]),
        (0, &json!(true)),
        "{}",
        ran.text()
    );
    let ran = run_in(folder.path(), &["validate"]).await;
    assert!(
        ran.out.contains("valid, 2 servers, 2 enabled"),
        "{}",
        ran.text()
    );
    fs::write(
        folder.path().join("fanlight.yaml"),
        "mcpServers:\n  a:\n    comand: x\n",
    )
    .unwrap();
    let ran = run_in(folder.path(), &["validate", "--json"]).await;
    let report = ran.json();
    assert_eq!(
        (ran.status, &report["valid"]),
        (2, &json!(false)),
        "{}",
        ran.text()
    );
    assert!(
        report["problems"]
            .as_array()
            .unwrap()
            .iter()
            .any(|problem| problem["line"] == 3),
        "{report}"
    );
    fs::write(
        folder.path().join("fanlight.yaml"),
        "mcpServers: {a: {command: '${NOT_SET_ANYWHERE}'}}\n",
    )
    .unwrap();
    let ran = run_in(
        folder.path(),
        &["validate", "--json", "--allow-missing-env"],
    )
    .await;
    assert_eq!(
        (ran.status, &ran.json()["missingVariables"]),
        (0, &json!(true)),
        "{}",
        ran.text()
    );
}

/// `check` and `validate` find what `run` would refuse.
#[tokio::test]
async fn listener_that_run_refuses_is_found_by_checks() {
    let (folder, shop, _other) = folder().await;
    let servers = config(&[shop.entry("shop")]);
    let write = |options: &str| {
        fs::write(
            folder.path().join("fanlight.yaml"),
            format!("{{{options}{}", &servers[1..]),
        )
        .unwrap();
    };
    write(r#""listen":"0.0.0.0:0","allowedHosts":["example.com"],"#);
    for command in ["check", "validate"] {
        let ran = run_in(folder.path(), &[command]).await;
        assert!(
            ran.status != 0 && ran.text().contains("configure `auth`"),
            "{command}: {}",
            ran.text()
        );
    }
    let ran = run_in(folder.path(), &["validate", "--json"]).await;
    assert_eq!(
        (ran.status, &ran.json()["valid"]),
        (2, &json!(false)),
        "{}",
        ran.text()
    );
    write(r#""auth":{"certificates":true,"socket":true},"#);
    for command in ["check", "validate"] {
        let ran = run_in(folder.path(), &[command]).await;
        assert_eq!(ran.status, 0, "{command}: {}", ran.text());
        for warning in [
            "`auth.certificates` has no effect",
            "`auth.socket` has no effect",
        ] {
            assert!(ran.out.contains(warning), "{command}: {}", ran.text());
        }
    }
}

#[tokio::test]
async fn keys_have_json() {
    let folder = TempFile::folder();
    let made = run_in(
        folder.path(),
        &["keys", "new", "ci", "--json", "--file", "keys.yaml"],
    )
    .await;
    let key = made.json()["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("fanlight_"), "{}", made.text());
    assert!(
        !fs::read_to_string(folder.path().join("keys.yaml"))
            .unwrap()
            .contains(&key),
        "the key is not kept"
    );
    let listed = run_in(
        folder.path(),
        &["keys", "list", "--json", "--file", "keys.yaml"],
    )
    .await;
    assert_eq!(
        listed.json()[0]["sha256"],
        made.json()["entry"]["sha256"],
        "{}",
        listed.text()
    );
    let revoked = run_in(
        folder.path(),
        &["keys", "revoke", "ci", "--json", "--file", "keys.yaml"],
    )
    .await;
    assert_eq!(revoked.json()["revoked"], 1, "{}", revoked.text());
}

#[tokio::test]
async fn policy_test_expects_what_a_call_would_meet() {
    let folder = TempFile::folder();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let git = r#""git":{"url":"http://127.0.0.1:1/mcp","approval":{"tools":["delete_*"]}}"#;
    let config = format!(r#"{{"policy":{{"files":["p.cedar"]}},"mcpServers":{{{git}}}}}"#);
    file("fanlight.yaml", &config);
    file(
        "p.cedar",
        r#"permit(principal, action == Action::"call", resource);
           forbid(principal, action, resource == Tool::"git/delete_all");
           @ask("Push?") permit(principal, action == Action::"call", resource == Tool::"git/push");"#,
    );
    let case = |tool: &str, expect: &str| {
        format!("- {{principal: key#ann, tool: git/{tool}, expect: {expect}}}\n")
    };
    let cases = [
        ("push", "ask"),
        ("delete_branch", "ask"),
        ("delete_all", "hidden"),
        ("show", "allow"),
    ];
    file(
        "cases.yaml",
        &cases.map(|(tool, expect)| case(tool, expect)).concat(),
    );
    let ran = run_in(folder.path(), &["policy", "test", "cases.yaml"]).await;
    assert!(
        ran.status == 0 && ran.out.contains("4 cases passed"),
        "{}",
        ran.text()
    );
    let ran = run_in(folder.path(), &["policy", "show"]).await;
    for rule in [
        r#"// fanlight.yaml:1 mcpServers.git.approval: {"tools":["delete_*"]}"#,
        "// p.cedar:2\nforbid(",
    ] {
        assert!(ran.status == 0 && ran.out.contains(rule), "{}", ran.text());
    }
    file("cases.yaml", &case("delete_branch", "allow"));
    let ran = run_in(folder.path(), &["policy", "test", "cases.yaml"]).await;
    assert!(
        ran.status == 1
            && ran
                .out
                .contains("expected allow, found ask by p.cedar:1, `approval` of git"),
        "{}",
        ran.text()
    );
}
