use crate::document::{Source, Syntax};

use super::*;
use crate::client_files::places::System;

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
        server_json(&tree(&text)).map(|server| server.value.to_flow())
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
            .contains("bundle")
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
        server.value.to_flow(),
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

#[test]
fn bundle_is_started_where_it_is_unpacked() {
    let text = r#"{"manifest_version": "0.3", "name": "file tools", "version": "1.0.0",
        "server": {"type": "node", "entry_point": "server/index.js", "mcp_config": {
            "command": "node", "args": ["${__dirname}/server/index.js", "${user_config.folders}"],
            "env": {"API_KEY": "${user_config.api_key}", "LEVEL": "${user_config.level}"},
            "platform_overrides": {"win32": {"command": "node.exe"}}}},
        "user_config": {"folders": {"type": "directory", "multiple": true, "default": ["${HOME}/Desktop", "${DOCUMENTS}"]},
            "api_key": {"type": "string", "title": "Key", "sensitive": true, "required": true},
            "level": {"type": "string", "default": "info"}}}"#;
    let server = manifest(&tree(text), "/b", System::Linux).unwrap();
    assert_eq!(server.name, "file-tools");
    assert_eq!(
        server.value.to_flow(),
        r#"{"command": "node", "args": ["/b/server/index.js", "${HOME}/Desktop", "${HOME}/Documents"], "env": {"API_KEY": "${FILE_TOOLS_API_KEY}", "LEVEL": "${FILE_TOOLS_LEVEL:-info}"}}"#
    );
    assert_eq!(
        server.variables[0],
        ("FILE_TOOLS_API_KEY".to_owned(), "Key".to_owned())
    );
    let windows = manifest(&tree(text), "/b", System::Windows).unwrap();
    assert!(
        windows
            .value
            .to_flow()
            .starts_with(r#"{"command": "node.exe""#)
    );
    let short = r#"{"name": "x", "server": {"type": "python", "entry_point": "main.py"}}"#;
    assert_eq!(
        manifest(&tree(short), "/b", System::Linux)
            .unwrap()
            .value
            .to_flow(),
        r#"{"command": "python3", "args": ["/b/main.py"]}"#
    );
}
