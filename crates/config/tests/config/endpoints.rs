//! `endpoints`: paths, servers, filters.

use std::path::Path;

use fanlight_config::{Config, ConfigErrors, parse};

fn read(endpoints: &str) -> Result<Config, ConfigErrors> {
    let text = format!(
        "{endpoints}\nmcpServers:\n  git: {{ command: git }}\n  files: {{ command: files }}\n"
    );
    parse(&text, Path::new("fanlight.yaml"), &|_| None).map(|loaded| loaded.config)
}

fn error(endpoints: &str) -> String {
    read(endpoints).unwrap_err().to_string()
}

#[test]
fn endpoints_are_read_in_order_with_their_filters() {
    let config = read(
        r#"endpoints:
  /mcp: {}
  /mcp/all:
  /mcp/readers:
    servers: [files]
    tools: { allow: ["files__read_*"], deny: ["*secret*"] }
    resources: { deny: ["file:///Private/*"] }
    prompts: { allow: [] }
    instructions: "Read only.""#,
    )
    .unwrap();
    let paths: Vec<_> = config
        .endpoints
        .iter()
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(paths, ["/mcp", "/mcp/all", "/mcp/readers"]);
    assert_eq!(config.endpoints[0].1, config.endpoints[1].1);
    let readers = &config.endpoints[2].1;
    assert_eq!(readers.servers.as_deref(), Some(&["files".to_owned()][..]));
    assert_eq!(readers.instructions.as_deref(), Some("Read only."));
    assert_eq!(
        readers.tools.allow.as_deref(),
        Some(&["files__read_*".to_owned()][..])
    );
    assert_eq!(
        (&*readers.tools.deny, &*readers.resources.deny),
        (
            &["*secret*".to_owned()][..],
            &["file:///Private/*".to_owned()][..]
        )
    );
    assert_eq!(readers.prompts.allow, Some(Vec::new()));
    let shown: serde_json::Value = serde_json::from_str(&config.masked_json()).unwrap();
    assert_eq!(
        shown["endpoints"]["/mcp/readers"]["tools"]["deny"][0],
        "*secret*"
    );
    assert_eq!(config.sse_path.as_deref(), Some("/sse"));
}

#[test]
fn paths_that_can_be_written_in_several_ways_are_refused() {
    for path in [
        "mcp", "/mcp/", "//mcp", "/a//b", "/a/../b", "/./a", "/a%62", "/a b", "/a?x", "/ä", "\"\"",
    ] {
        let message = error(&format!("endpoints: {{ {path}: {{}} }}"));
        assert!(
            message.contains("is not the path of an endpoint"),
            "{path}: {message}"
        );
    }
    assert!(read("endpoints: { /: {}, /mcp/A-b_c.d~e: {} }").is_ok());
}

#[test]
fn unknown_servers_and_options_are_reported() {
    let message = error("endpoints: { /mcp: { servers: [fils] } }");
    assert!(
        message.contains("no server is called \"fils\"")
            || message.contains("no server is called `fils`"),
        "{message}"
    );
    assert!(message.contains("did you mean `files`?"), "{message}");
    assert!(error("endpoints: { /mcp: { tool: {} } }").contains("did you mean `tools`?"));
    assert!(error("endpoints: [/mcp]").contains("must be a mapping of paths to endpoints"));
    assert!(error("endpoints: { /mcp: { tools: { allow: [\"\"] } } }").contains("is empty"));
}

#[test]
fn sse_transport_is_off_where_there_is_no_default_endpoint() {
    let other = read("endpoints: { /other: {}, /more: {} }").unwrap();
    assert_eq!(
        (other.sse_path.as_deref(), other.shown_path()),
        (None, "/other")
    );
    assert_eq!(
        read("endpoints: { /other: {}, /mcp: {} }")
            .unwrap()
            .shown_path(),
        "/mcp"
    );
    assert!(
        error("ssePath: /sse\nendpoints: { /other: {} }")
            .contains("`endpoints` has none at `/mcp`")
    );
    assert_eq!(
        read("endpoints: { /mcp: {}, /sse: {} }").unwrap().sse_path,
        None
    );
    assert!(error("ssePath: /sse\nendpoints: { /mcp: {}, /sse/message: {} }").contains("overlap"));
}

#[test]
fn pattern_with_what_is_special_elsewhere_is_an_error_in_each_place() {
    let places = [
        "endpoints: { /mcp: { tools: { allow: [\"PATTERN\"] } } }",
        "endpoints: { /mcp: { tools: { deny: [\"PATTERN\"] } } }",
        "endpoints: { /mcp: { prompts: { deny: [\"PATTERN\"] } } }",
        "endpoints: { /mcp: { resources: { allow: [\"PATTERN\"] } } }",
        "endpoints: { /mcp: { scopes: { tools: { \"PATTERN\": x } } } }",
        "auth: { keys: { file: keys.yaml }, scopes: { tools: { \"PATTERN\": [x] } } }",
    ];
    let servers = [
        "tools: { allow: [\"PATTERN\"] }",
        "tools: { deny: [\"PATTERN\"] }",
        "disabledTools: [\"PATTERN\"]",
        "includeTools: [\"PATTERN\"]",
        "excludeTools: [\"PATTERN\"]",
    ];
    let of_servers =
        servers.map(|place| format!("mcpServers: {{ git: {{ command: git, {place} }} }}"));
    let of_endpoints =
        places.map(|place| format!("{place}\nmcpServers: {{ git: {{ command: git }} }}"));
    for text in of_endpoints.iter().chain(&of_servers) {
        for pattern in [
            "read_?",
            "[rw]*",
            "{read,write}_*",
            "file:///pub/?.txt",
            "file:///{+path}",
            "x:a?b=c?d=e",
        ] {
            let text = format!("\n{}", text.replace("PATTERN", pattern));
            let errors = parse(&text, Path::new("fanlight.yaml"), &|_| None).unwrap_err();
            let problem = &errors.problems()[0];
            assert!(
                problem.message().ends_with("only `*` is special"),
                "{text}: {errors}"
            );
            assert_eq!(
                (problem.file(), problem.position().unwrap().line),
                (Path::new("fanlight.yaml"), 2),
                "{text}"
            );
        }
        for pattern in [
            "read_*",
            "git/read_*",
            "*",
            "files:x",
            "file:///x?q=*",
            "file:///x?line-no=4&x=y",
        ] {
            let text = text.replace("PATTERN", pattern);
            assert!(
                parse(&text, Path::new("fanlight.yaml"), &|_| None).is_ok(),
                "{text}"
            );
        }
    }
}
