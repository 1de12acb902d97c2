use super::*;
use crate::client_files::item::to_flow;
use crate::document::{Source, Syntax};

fn tree(text: &str) -> Node {
    crate::document::parse(&Source::new(text), Syntax::Json)
        .unwrap()
        .unwrap()
}

#[test]
fn package_of_each_registry_is_started_by_its_runner() {
    let package = |package: &str| {
        let text = format!(
            r#"{{"name": "io.github.me/weather", "version": "1.0.0", "packages": [{package}]}}"#
        );
        server_json(&tree(&text)).map(|server| to_flow(&server.value))
    };
    let npm = r#"{"registryType": "npm", "identifier": "@me/weather", "version": "1.2.3", "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "serve"}, {"type": "named", "name": "--unit", "default": "c"}],
        "environmentVariables": [{"name": "KEY", "isRequired": true, "isSecret": true}, {"name": "OPTIONAL"}]}"#;
    assert_eq!(
        package(npm).unwrap(),
        r#"{"command": "npx", "args": ["-y", "@me/weather@1.2.3", "serve", "--unit", "c"], "env": {"KEY": "${KEY}"}}"#
    );
    let pypi = r#"{"registryType": "pypi", "identifier": "weather", "version": "1.0", "runtimeHint": "uvx"}"#;
    assert_eq!(
        package(pypi).unwrap(),
        r#"{"command": "uvx", "args": ["weather@1.0"]}"#
    );
    let oci = r#"{"registryType": "oci", "identifier": "images.example/me/weather:1", "environmentVariables": [
        {"name": "KEY", "isSecret": true}]}"#;
    assert_eq!(
        package(oci).unwrap(),
        r#"{"command": "docker", "args": ["run", "-i", "--rm", "-e", "KEY", "images.example/me/weather:1"], "env": {"KEY": "${KEY}"}}"#
    );
    assert!(
        package(r#"{"registryType": "mcpb", "identifier": "https://h/x.mcpb"}"#)
            .unwrap_err()
            .contains("not supported")
    );
    assert!(
        package(r#"{"registryType": "npm", "identifier": "x", "transport": {"type": "sse"}}"#)
            .is_err()
    );
}

#[test]
fn remote_server_has_headers_with_variables() {
    let text = r#"{"server": {"name": "com.example/mail", "remotes": [
        {"type": "sse", "url": "https://h/sse"},
        {"type": "streamable-http", "url": "https://{tenant}.h/mcp", "variables": {"tenant": {"isRequired": true, "description": "Who"}},
         "headers": [{"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isSecret": true}}},
                     {"name": "X-Region", "default": "eu"}]}]}, "_meta": {}}"#;
    let server = server_json(&tree(text)).unwrap();
    assert_eq!(server.name, "mail");
    assert_eq!(
        to_flow(&server.value),
        r#"{"url": "https://${TENANT}.h/mcp", "headers": {"Authorization": "Bearer ${TOKEN}", "X-Region": "eu"}}"#
    );
    assert_eq!(
        server.variables,
        [
            ("TENANT".to_owned(), "Who".to_owned()),
            ("TOKEN".to_owned(), String::new())
        ]
    );
}
