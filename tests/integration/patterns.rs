//! Patterns that match nothing, and names that a change of the configuration affects.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Backend, Era, Transport};
use crate::server_lives::api;

/// A server with an entry in each list.
async fn server(transport: Transport) -> Backend {
    let server = Backend::start(Era::Legacy, transport).await;
    server.declares(r#"{"tools":{},"resources":{},"prompts":{}}"#);
    server.offers_tools(&["read_graph", "delete_entities"]);
    server.on("prompts/list", server.list("prompts", r#"{"name":"ask"}"#));
    server.on(
        "resources/list",
        server.list("resources", r#"{"name":"key","uri":"file:///private/key"}"#),
    );
    server
}

/// Reads all lists of a gateway, as a client does.
async fn read_lists(gateway: &Gateway) {
    let session = LegacySession::open(gateway.mcp).await;
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        let answer = session
            .post(&legacy_request("1", method, ""))
            .await
            .messages()
            .await
            .1;
        assert!(answer.contains("\"result\""), "{answer}");
    }
}

/// Runs a command with a configuration and returns its output.
async fn command(arguments: &[&str], config: &str) -> String {
    let file = TempFile::new("json", config);
    let mut command = fanlight();
    command
        .args(arguments)
        .arg("--config")
        .arg(file.path())
        .stdin(Stdio::null());
    let output = within(&format!("{arguments:?}"), command.output())
        .await
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn config(entries: &[String], more: &Value) -> String {
    let mut config: Value =
        serde_json::from_str(&format!(r#"{{"mcpServers":{{{}}}}}"#, entries.join(","))).unwrap();
    config
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    config.to_string()
}

/// Rules of each kind that match nothing.
const SLIPS: &str = r#""tools":{"allow":["red_graph","delete_*"]},"rename":{"delete_entity":"remove"},"override":{"graph":{"title":"G"}}"#;

fn slips_of_an_endpoint() -> Value {
    json!({"endpoints": {"/mcp": {
        "tools": {"deny": ["memory__delte_*", "memry/delete_*", "memory/read_*"]},
        "prompts": {"allow": ["asks", "time/ask"]},
        "resources": {"deny": ["file:///pirvate/*", "file:///private/*"]},
        "scopes": {"tools": {"memory/delet_entities": ["x"], "delete_*": ["y"]}},
    }}})
}

/// The reports about these rules.
const SAID: [&str; 8] = [
    r#"mcpServers.memory.tools.allow: "red_graph" matches no tool of "memory"; did you mean read_graph?"#,
    r#"mcpServers.memory.rename: "delete_entity" matches no tool or prompt of "memory"; did you mean delete_entities?"#,
    r#"mcpServers.memory.override: "graph" matches no tool of "memory""#,
    r#"endpoints./mcp.tools.deny: "memory__delte_*" matches no tool of "memory"; did you mean memory__delete_entities?"#,
    r#"endpoints./mcp.tools.deny: no server matches "memry/delete_*"; did you mean memory/delete_entities?"#,
    r#"endpoints./mcp.prompts.allow: "asks" matches no prompt; did you mean ask?"#,
    r#"endpoints./mcp.resources.deny: "file:///pirvate/*" matches no resource; did you mean file:///private/key?"#,
    r#"endpoints./mcp.scopes.tools: "memory/delet_entities" matches no tool of "memory"; did you mean memory/delete_entities?"#,
];

fn assert_says(text: &str, lines: impl IntoIterator<Item = &'static str>) {
    for line in lines {
        assert!(text.contains(line), "`{line}` missing in {text}");
    }
    for rule in [
        r#""memory/read_*""#,
        r#""time/ask""#,
        r#""file:///private/*""#,
        r#""delete_*" matches"#,
    ] {
        assert!(!text.contains(rule), "{rule} matches something: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pattern_that_matches_nothing_is_warned_of_with_the_nearest_name() {
    let (memory, time) = (server(Transport::Http).await, server(Transport::Http).await);
    let slips = config(
        &[memory.entry_with("memory", SLIPS), time.entry("time")],
        &slips_of_an_endpoint(),
    );
    assert_says(&command(&["check"], &slips).await, SAID);

    // A reload and the page check against the lists that a running gateway has read.
    let right = config(&[memory.entry("memory"), time.entry("time")], &json!({}));
    let gateway = Gateway::start(&right).await;
    read_lists(&gateway).await;
    gateway.configure(&slips);
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 200, "{report}");
    let warnings = |report: &Value| {
        report["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap())
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_says(&warnings(&serde_json::from_str(&report).unwrap()), SAID);
    assert_says(
        &warnings(&api(&gateway, "/api/config").await["reload"]),
        SAID,
    );
    gateway
        .log
        .line_with("did you mean memory__delete_entities?")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pattern_about_an_unknown_list_is_not_warned_of() {
    let (memory, time) = (server(Transport::Http).await, server(Transport::Http).await);
    let rules = json!({"endpoints": {"/mcp": {"tools": {"deny": ["time/none", "nothing_*", "memory/none"]}}}});
    let text = command(
        &["check"],
        &config(
            &[
                memory.entry("memory"),
                time.entry_with("time", r#""enabled":false"#),
            ],
            &rules,
        ),
    )
    .await;
    // The lists of the disabled server are unknown, so its patterns are not reported.
    assert!(text.contains(r#""memory/none" matches no tool"#), "{text}");
    assert!(
        !text.contains("time/none") && !text.contains("nothing_*"),
        "{text}"
    );
    let text = command(&["validate"], &config(&[memory.entry("memory")], &rules)).await;
    assert!(!text.contains("matches no"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_an_edit_changes_are_told_from_old_to_new() {
    let (memory, time) = (
        server(Transport::Stdio).await,
        server(Transport::Stdio).await,
    );
    let folder = TempFile::folder();
    let state = json!({"stateDir": folder.path().join("state")});
    let first = config(&[memory.entry("memory"), time.entry("time")], &state);
    let gateway = Gateway::start(&first).await;
    read_lists(&gateway).await;
    let edited = config(
        &[
            memory.entry_with("memory", r#""prefix":"m-","rename":{"read_graph":"graph"}"#),
            time.entry("time"),
        ],
        &state,
    );
    gateway.configure(&edited);
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 200, "{report}");
    let report: Value = serde_json::from_str(&report).unwrap();
    let names = report["renamed"]["names"].as_array().unwrap();
    for (from, to) in [
        ("memory__read_graph", "m-graph"),
        ("memory__delete_entities", "m-delete_entities"),
        ("memory__ask", "m-ask"),
    ] {
        assert!(
            names.contains(&json!({"server": "memory", "from": from, "to": to})),
            "{report}"
        );
    }
    assert_eq!(
        (names.len(), &report["renamed"]["more"]),
        (3, &json!(0)),
        "{report}"
    );
    gateway
        .log
        .line_with("memory__delete_entities → m-delete_entities")
        .await;
    assert!(gateway.terminate().await.success());

    // `check` finds the last running configuration also after the gateway has ended.
    let text = command(&["check"], &first).await;
    assert!(
        text.contains("changed since the last run: m-graph → memory__read_graph"),
        "{text}"
    );
    let again = command(&["check"], &edited).await;
    assert!(!again.contains("changed since the last run"), "{again}");
    let gateway = Gateway::start(&first).await;
    gateway
        .log
        .line_with("m-delete_entities → memory__delete_entities")
        .await;
    assert!(gateway.terminate().await.success());

    // `validate` uses stored lists.
    let slip = config(
        &[
            memory.entry_with("memory", r#""tools":{"deny":["delte_*"]}"#),
            time.entry("time"),
        ],
        &state,
    );
    let text = command(&["validate"], &slip).await;
    assert!(
        text.contains(r#""delte_*" matches no tool of "memory"; did you mean delete_entities?"#),
        "{text}"
    );
}
