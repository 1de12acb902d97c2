//! `endpoints`: paths, servers, filters.

use std::path::Path;

use fanlight_config::{Config, ConfigErrors, parse};

fn read(endpoints: &str) -> Result<Config, ConfigErrors> {
    let text = format!("{endpoints}\nmcpServers:\n  git: {{ command: git }}\n  files: {{ command: files }}\n");
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
    let paths: Vec<_> = config.endpoints.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/mcp", "/mcp/all", "/mcp/readers"]);
    assert_eq!(config.endpoints[0].1, config.endpoints[1].1);
    let readers = &config.endpoints[2].1;
    assert_eq!(readers.servers.as_deref(), Some(&["files".to_owned()][..]));
    assert_eq!(readers.instructions.as_deref(), Some("Read only."));
    let allowed = ["files__read_one", "files__read_secret", "read_one"].map(|name| readers.tools.permits(name));
    assert_eq!(allowed, [true, false, false]);
    assert!(readers.prompts.permits_nothing() && !readers.tools.permits_nothing());
    assert!(readers.resources.denies_lower_case("file:///private/x"));
    let shown: serde_json::Value = serde_json::from_str(&config.shown()).unwrap();
    assert_eq!(shown["endpoints"]["/mcp/readers"]["tools"]["deny"][0], "*secret*");
    assert_eq!(config.sse_path.as_deref(), Some("/sse"));
}

#[test]
fn paths_that_can_be_written_in_several_ways_are_refused() {
    for path in ["mcp", "/mcp/", "//mcp", "/a//b", "/a/../b", "/./a", "/a%62", "/a b", "/a?x", "/ä", "\"\""] {
        let message = error(&format!("endpoints: {{ {path}: {{}} }}"));
        assert!(message.contains("is not the path of an endpoint"), "{path}: {message}");
    }
    assert!(read("endpoints: { /: {}, /mcp/A-b_c.d~e: {} }").is_ok());
}

#[test]
fn unknown_servers_and_options_are_reported() {
    let message = error("endpoints: { /mcp: { servers: [fils] } }");
    assert!(
        message.contains("no server is called \"fils\"") || message.contains("no server is called `fils`"),
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
    assert_eq!((other.sse_path.as_deref(), other.shown_path()), (None, "/other"));
    assert_eq!(read("endpoints: { /other: {}, /mcp: {} }").unwrap().shown_path(), "/mcp");
    assert!(error("ssePath: /sse\nendpoints: { /other: {} }").contains("`endpoints` has none at `path`"));
    assert_eq!(read("endpoints: { /mcp: {}, /sse: {} }").unwrap().sse_path, None);
    assert!(error("ssePath: /sse\nendpoints: { /mcp: {}, /sse/message: {} }").contains("overlap"));
}
