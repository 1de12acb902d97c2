use serde_json::Value as Json;

use super::*;
use crate::client_files::edit::item;
use crate::client_files::item::to_flow;
use crate::document::{Source, Syntax};

/// A file's servers as JSON in one line, and the notes.
fn read(path: &str, text: &str) -> (&'static str, String, Vec<String>) {
    let path = Path::new(path);
    let root = crate::document::parse(&Source::new(text), Syntax::detect(path, text))
        .unwrap()
        .unwrap();
    let file = ClientFile::read(path, &root).unwrap();
    let servers = item(file.root.field("mcpServers").unwrap());
    (
        file.title,
        to_flow(&servers),
        file.notes.into_iter().map(|note| note.message).collect(),
    )
}

fn servers(path: &str, text: &str) -> String {
    let (_, servers, notes) = read(path, text);
    assert!(notes.is_empty(), "{notes:?}");
    servers
}

#[test]
fn files_are_recognised_by_name_or_content() {
    let of = |path: &str, text: &str| {
        let path = Path::new(path);
        let root = crate::document::parse(&Source::new(text), Syntax::detect(path, text))
            .unwrap()
            .unwrap();
        ClientFile::read(path, &root).and_then(|file| file.client)
    };
    let plain = r#"{"mcpServers": {}}"#;
    assert_eq!(of("/h/.cursor/mcp.json", plain), Some(Client::Cursor));
    assert_eq!(of("/h/.mcp.json", plain), Some(Client::ClaudeCode));
    assert_eq!(of("gemini-settings.json", plain), Some(Client::Gemini));
    assert_eq!(of("samples/cline.json", plain), Some(Client::Cline));
    assert_eq!(
        of("any.json", r#"{"context_servers": {}}"#),
        Some(Client::Zed)
    );
    assert_eq!(
        of("any.yaml", "mcpServers:\n- name: a\n"),
        Some(Client::Continue)
    );
    assert_eq!(
        of("any.json", r#"{"inputs": [], "servers": {}}"#),
        Some(Client::VsCode)
    );
    assert_eq!(of("any.toml", "a = 1"), Some(Client::Codex));
    assert_eq!(
        of("any.json", r#"{"mcp": {"a": {"type": "local"}}}"#),
        Some(Client::OpenCode)
    );
    for own in [
        "mcp.json",
        "fanlight.yaml",
        "fanlight-claude.json",
        "conf.d/a.json",
        "room/x.json",
    ] {
        assert_eq!(of(own, plain), None, "{own}");
    }
}

#[test]
fn codex_says_the_same_in_its_own_words() {
    let text = "model = \"gpt-5\"\n[mcp_servers.a]\ncommand = \"x\"\nenv_vars = [\"HOME\", { name = \"PATH\", source = \"local\" }]\n\
                startup_timeout_sec = 20\ntool_timeout_sec = 1.5\nenabled_tools = [\"t\"]\nrequired = true\n[mcp_servers.b]\n\
                url = \"http://h/\"\nbearer_token_env_var = \"TOKEN\"\nhttp_headers = { X = \"1\" }\nenv_http_headers = { Y = \"Z\" }\n\
                enabled = false\n";
    assert_eq!(
        servers("config.toml", text),
        r#"{"a": {"command": "x", "inheritEnv": ["HOME", "PATH"], "startTimeout": "20s", "timeout": "1.5s", "includeTools": ["t"]}, "b": {"url": "http://h/", "headers": {"Authorization": "Bearer ${TOKEN}", "X": "1", "Y": "${Z}"}, "enabled": false}}"#
    );
}

#[test]
fn gemini_prefers_http_and_counts_milliseconds() {
    let text = r#"{"theme": "x", "mcp": {"excluded": ["b"]}, "mcpServers": {
        "a": {"httpUrl": "http://h/$PART", "url": "http://h/sse", "timeout": 30000, "trust": true},
        "b": {"command": "x", "env": {"K": "$KEY-${OTHER}"}}}}"#;
    assert_eq!(
        servers(".gemini/settings.json", text),
        r#"{"a": {"httpUrl": "http://h/${PART}", "timeout": "30000ms"}, "b": {"command": "x", "env": {"K": "${KEY}-${OTHER}"}, "disabled": true}}"#
    );
}

#[test]
fn zed_has_commands_in_two_forms_and_leaves_extensions_out() {
    let text = r#"{"theme": "x", "context_servers": {
        "a": {"command": {"path": "x", "args": ["1"], "env": null}, "settings": {}},
        "b": {"source": "custom", "command": "y", "enabled": false},
        "c": {"source": "extension", "settings": {"k": "v"}}}}"#;
    let (title, servers, notes) = read("settings.json", text);
    assert_eq!(title, "Zed");
    assert_eq!(
        servers,
        r#"{"a": {"command": "x", "args": ["1"]}, "b": {"command": "y", "enabled": false}}"#
    );
    assert_eq!(
        notes,
        ["the server `c` is of an extension of Zed and is left out"]
    );
}

#[test]
fn goose_leaves_what_is_built_in_out() {
    let text = "GOOSE_MODEL: x\nextensions:\n  developer: {type: builtin, enabled: true, bundled: true}\n  a:\n    type: stdio\n    \
                cmd: x\n    args: ['1']\n    envs: {K: $V}\n    env_keys: [TOKEN]\n    timeout: 300\n    available_tools: []\n  b: \
                {type: streamable_http, uri: 'http://h/', envs: {}, env_keys: [], enabled: false}\n";
    assert_eq!(
        servers("config.yaml", text),
        r#"{"a": {"type": "stdio", "command": "x", "args": ["1"], "env": {"K": "${V}"}, "inheritEnv": ["TOKEN"], "timeout": "300s"}, "b": {"type": "http", "url": "http://h/", "enabled": false}}"#
    );
}

#[test]
fn opencode_has_commands_as_lists_in_both_versions() {
    let server = r#""a": {"type": "local", "command": ["x", "1"], "environment": {"K": "{env:V}"}, "timeout": 5000}"#;
    let expected = r#"{"a": {"command": "x", "args": ["1"], "env": {"K": "${V:-}"}, "startTimeout": "5000ms"}}"#;
    for text in [
        format!("{{\"mcp\": {{{server}}}}}"),
        format!("{{\"mcp\": {{\"servers\": {{{server}}}}}}}"),
    ] {
        assert_eq!(servers("opencode.json", &text), expected);
    }
    let (_, servers, notes) = read("opencode.json", r#"{"mcp": {"jira": {"enabled": true}}}"#);
    assert_eq!((servers.as_str(), notes.len()), ("{}", 1));
}

#[test]
fn continue_has_a_list_and_secrets() {
    let text = "name: x\nmcpServers:\n- name: a\n  command: x\n  connectionTimeout: 5000\n- name: b\n  type: streamable-http\n  url: \
                http://h/\n  requestOptions:\n    headers:\n      Authorization: Bearer ${{ secrets.TOKEN }}\n- uses: hub/block\n";
    let (_, servers, notes) = read(".continue/config.yaml", text);
    assert_eq!(
        servers,
        r#"{"a": {"command": "x", "startTimeout": "5000ms"}, "b": {"type": "streamable-http", "url": "http://h/", "headers": {"Authorization": "Bearer ${TOKEN}"}}}"#
    );
    assert_eq!(notes.len(), 1);
}

#[test]
fn servers_of_projects_of_claude_code_are_taken_with_their_folders() {
    let text = r#"{"numStartups": 3, "mcpServers": {"a": {"type": "http", "url": "http://h/"}}, "projects": {
        "/projects/one": {"mcpServers": {"b": {"type": "stdio", "command": "x"}}, "disabledMcpServers": ["b"]},
        "/projects/two": {"mcpServers": {"a": {"url": "http://other/"}}, "allowedTools": []}}}"#;
    assert_eq!(
        servers(".claude.json", text),
        r#"{"a": {"type": "http", "url": "http://h/"}, "b": {"type": "stdio", "command": "x", "cwd": "/projects/one", "disabled": true}, "a-two": {"url": "http://other/"}}"#
    );
}

#[test]
fn shared_notation_keeps_what_has_a_meaning() {
    let text = r#"{"inputs": [{"id": "key", "type": "promptString", "description": "Key", "password": true}], "servers": {
        "a": {"type": "stdio", "command": "${workspaceFolder:app}${/}x", "env": {"K": "${input:key}", "GONE": null}, "sandbox": {}}}}"#;
    let path = Path::new("/p/.vscode/mcp.json");
    let root = crate::document::parse(&Source::new(text), Syntax::Json)
        .unwrap()
        .unwrap();
    let file = ClientFile::read(path, &root).unwrap();
    assert_eq!(file.project.as_deref(), Some(Path::new("/p")));
    assert_eq!(file.inputs.len(), 1);
    assert!(file.inputs[0].is_secret && file.inputs[0].description == "Key");
    assert_eq!(Input::variable(&file.inputs[0].id), "INPUT_KEY");
    let Json::Object(members) = item(&file.root) else {
        panic!("no mapping")
    };
    assert_eq!(members.len(), 1, "{members:?}");
    assert_eq!(
        to_flow(&members["mcpServers"]),
        r#"{"a": {"type": "stdio", "command": "${workspaceFolder}/x", "env": {"K": "${input:key}"}}}"#
    );
    let cline = r#"{"mcpServers": {"a": {"url": "http://h/", "type": "streamableHttp", "timeout": 60, "tools": ["t"]}}}"#;
    assert_eq!(
        servers("cline_mcp_settings.json", cline),
        r#"{"a": {"url": "http://h/", "type": "streamableHttp", "timeout": "60s", "includeTools": ["t"]}}"#
    );
}

#[test]
fn files_of_other_programs_keep_their_meaning() {
    let crush = r#"{"$schema": "https://charm.land/crush.json", "mcp": {"x": {"type": "stdio", "command": "p", "args": ["1"],
        "env": {"A": "$B"}, "timeout": 1200, "disabled_tools": ["slow"]}, "y": {"type": "http", "url": "http://h/", "disabled": true}}}"#;
    let copilot = r#"{"mcpServers": {"a": {"type": "local", "command": "x", "args": [], "tools": ["*"], "timeout": 500, "env": {"K": "$V"}}}}"#;
    let amazon_q = r#"{"name": "q", "prompt": "p", "tools": ["*"], "hooks": {}, "allowedTools": [], "mcpServers":
        {"a": {"command": "x", "timeout": 500, "disabled": true}}}"#;
    let meta_mcp = r#"{"mcpServers": {"a": {"type": "STDIO", "command": "x"}, "b": {"type": "STREAMABLE_HTTP", "url": "http://h/",
        "bearerToken": "t"}}}"#;
    let libre_chat = "version: 1.2.1\nmcpSettings: {allowedDomains: [h]}\nendpoints: {}\nmcpServers:\n  a: {type: streamable-http, url: 'http://h/', \
                      timeout: 500, initTimeout: 10000, iconPath: x, chatMenu: false, headers: {X: '${T}'}}\n";
    let cherry = r#"{"mcpServers": {"id1": {"name": "n", "type": "streamableHttp", "isActive": false, "baseUrl": "http://h/", "command": "",
        "args": [], "env": {}, "timeout": 1200, "disabledTools": ["t"], "longRunning": true}, "id2": {"name": "m", "type": "inMemory", "isActive": true}}}"#;
    let qwen = r#"{"mcp": {"excluded": ["b"]}, "mcpServers": {"a": {"httpUrl": "http://h/$P", "timeout": 500, "trust": true}, "b": {"command": "x"}}}"#;
    let proxy = r#"{"mcpProxy": {"addr": ":9090", "options": {"authTokens": ["t"]}}, "mcpServers": {"a": {"transportType": "streamable-http",
        "url": "http://h/", "timeout": 10000000000, "options": {"logEnabled": true, "toolFilter": {"mode": "block", "list": ["t"]}}}}}"#;
    let litellm = "model_list: []\nmcp_servers:\n  a: {url: 'http://h/', transport: http, auth_type: api_key, auth_value: os.environ/KEY, \
                   allowed_tools: [t], static_headers: {X: '1'}}\n";
    let hub = r#"{"users": [], "mcpServers": {"a": {"command": "x", "enabled": true, "options": {"timeout": 500},
        "tools": {"t": {"enabled": false}, "u": {"enabled": true}}}}}"#;
    let editor = r#"{"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"a": {"command": "x", "args": ["1"], "env": {"K": "v"}}}}}"#;
    let plain = r#"{"weather": {"transport": "streamable_http", "url": "http://h/", "headers": {"A": "b", "//": "c"}}, "//": "d"}"#;
    let fast_mcp = r#"{"mcpServers": {"a": {"url": "http://h/", "transport": "http", "auth": "token"}, "//": "x",
        "b": {"transport": "stdio", "_comment": "c", "command": "python", "args": ["s.py"], "keep_alive": true}}}"#;
    for (path, text, title, expected) in [
        (
            "crush.json",
            crush,
            "Crush",
            r#"{"x": {"type": "stdio", "command": "p", "args": ["1"], "env": {"A": "${B}"}, "timeout": "1200s", "disabledTools": ["slow"]}, "y": {"type": "http", "url": "http://h/", "disabled": true}}"#,
        ),
        ("any.json", crush, "Crush", ""),
        (
            "mcp-config.json",
            copilot,
            "Copilot CLI",
            r#"{"a": {"command": "x", "args": [], "includeTools": ["*"], "timeout": "500ms", "env": {"K": "${V}"}}}"#,
        ),
        (
            "default.json",
            amazon_q,
            "Amazon Q",
            r#"{"a": {"command": "x", "timeout": "500ms", "disabled": true}}"#,
        ),
        (
            "export.json",
            meta_mcp,
            "",
            r#"{"a": {"type": "stdio", "command": "x"}, "b": {"type": "http", "url": "http://h/", "headers": {"Authorization": "Bearer t"}}}"#,
        ),
        (
            "any.yaml",
            libre_chat,
            "LibreChat",
            r#"{"a": {"type": "streamable-http", "url": "http://h/", "timeout": "500ms", "startTimeout": "10000ms", "headers": {"X": "${T}"}}}"#,
        ),
        (
            "any.json",
            cherry,
            "Cherry Studio",
            r#"{"id1": {"type": "streamableHttp", "enabled": false, "url": "http://h/", "args": [], "env": {}, "timeout": "1200s", "disabledTools": ["t"]}}"#,
        ),
        (
            "/p/.qwen/settings.json",
            qwen,
            "Qwen Code",
            r#"{"a": {"httpUrl": "http://h/${P}", "timeout": "500ms"}, "b": {"command": "x", "disabled": true}}"#,
        ),
        (
            "config.json",
            proxy,
            "mcp-proxy",
            r#"{"a": {"type": "streamable-http", "url": "http://h/", "timeout": "10000ms", "disabledTools": ["t"]}}"#,
        ),
        (
            "config.yaml",
            litellm,
            "LiteLLM",
            r#"{"a": {"url": "http://h/", "type": "http", "headers": {"X-API-Key": "${KEY}", "X": "1"}, "includeTools": ["t"]}}"#,
        ),
        (
            "mcp_settings.json",
            hub,
            "MCPHub",
            r#"{"a": {"command": "x", "enabled": true, "timeout": "500ms", "disabledTools": ["t"]}}"#,
        ),
        (
            "/h/Code/User/settings.json",
            editor,
            "VS Code",
            r#"{"a": {"command": "x", "args": ["1"], "env": {"K": "v"}}}"#,
        ),
        ("any.json", editor, "VS Code", ""),
        (
            "servers.json",
            plain,
            "",
            r#"{"weather": {"type": "http", "url": "http://h/", "headers": {"A": "b"}}}"#,
        ),
        (
            "mcp.json",
            fast_mcp,
            "",
            r#"{"a": {"url": "http://h/", "type": "http", "headers": {"Authorization": "Bearer token"}}, "b": {"type": "stdio", "command": "python", "args": ["s.py"], "keep_alive": true}}"#,
        ),
    ] {
        let (found, servers, _) = read(path, text);
        assert_eq!(found, title, "{path}");
        assert!(
            expected.is_empty() || servers == expected,
            "{path}: {servers}"
        );
    }
    let (_, _, notes) = read("any.json", cherry);
    assert!(notes[0].contains("`inMemory`"), "{notes:?}");
    let (_, _, notes) = read("any.json", proxy);
    assert!(notes[0].contains("`mcpProxy`"), "{notes:?}");
}

#[test]
fn oddities_of_files_are_no_errors() {
    let text = r#"{"mcpServers": {"github.com/upstash/context7": {"command": "x", "cwd": "", "enabled": true, "disabled": false},
        "a/b": {"command": "x", "enabled": true, "disabled": true, "timeout": "30"}, "b": {"command": "y"}}}"#;
    let (_, servers, notes) = read("cline_mcp_settings.json", text);
    assert_eq!(
        servers,
        r#"{"context7": {"command": "x", "enabled": true}, "a-b": {"command": "x", "timeout": "30s", "disabled": true}, "b": {"command": "y"}}"#
    );
    assert_eq!(notes.len(), 2, "{notes:?}");
}
