//! A walk through the configuration files of clients. Fanlight accepts each file as it is, imports
//! it, and adds an entry for the gateway (`fanlight connect`); `--undo` restores the original
//! bytes.

use std::fs;

use serde_json::Value;

use super::run_in;
use crate::harness::TempFile;

/// The client, the name of its file, and the file's text. Each file has a command server called
/// `notes`, a URL server called `search`, and settings of the client.
pub(super) const FILES: [(&str, &str, &str); 14] = [
    (
        "claude-desktop",
        "claude_desktop_config.json",
        r#"{
  "mcpServers": {
    "notes": { "command": "notes", "args": ["--db", "a.db"], "env": { "NOTES_TOKEN": "s3cret-notes-token" } },
    "search": { "command": "npx", "args": ["-y", "mcp-remote", "https://search.example/mcp"] }
  },
  "globalShortcut": "Ctrl+Space"
}
"#,
    ),
    (
        "claude-code",
        ".mcp.json",
        r#"{"mcpServers": {"notes": {"type": "stdio", "command": "notes", "args": [], "env": {}},
  "search": {"type": "http", "url": "https://search.example/mcp", "headers": {"Authorization": "Bearer ${SEARCH_TOKEN:-none}"}}}}"#,
    ),
    (
        "cursor",
        ".cursor/mcp.json",
        "{\r\n\t\"mcpServers\": {\r\n\t\t\"notes\": {\"command\": \"notes\", \"envFile\": \"notes.env\"},\r\n\t\t\"search\": {\"url\": \"https://search.example/mcp\"}\r\n\t}\r\n}\r\n",
    ),
    (
        "vscode",
        ".vscode/mcp.json",
        r#"{
  // Servers of this project.
  "servers": {
    "notes": { "type": "stdio", "command": "notes", "cwd": "${workspaceFolder}" },
    "search": { "type": "http", "url": "https://search.example/mcp", "dev": { "watch": "src/**" } }, /* the last */
  },
  "inputs": []
}
"#,
    ),
    (
        "windsurf",
        "mcp_config.json",
        r#"{"mcpServers":{"notes":{"command":"notes","disabledTools":["drop"]},"search":{"serverUrl":"https://search.example/mcp"}}}"#,
    ),
    (
        "cline",
        "cline_mcp_settings.json",
        r#"{
  "mcpServers": {
    "notes": { "command": "notes", "disabled": false, "autoApprove": ["read"], "timeout": 60 },
    "search": { "type": "streamableHttp", "url": "https://search.example/mcp" }
  }
}
"#,
    ),
    (
        "roo",
        "mcp_settings.json",
        r#"{
  "mcpServers": {
    "notes": { "command": "notes", "alwaysAllow": ["read"], "watchPaths": ["a"] },
    "search": { "type": "streamable-http", "url": "https://search.example/mcp" }
  }
}
"#,
    ),
    (
        "gemini",
        ".gemini/settings.json",
        r#"{
  "theme": "GitHub",
  "mcpServers": {
    "notes": { "command": "notes", "trust": true, "includeTools": ["read"] },
    "search": { "httpUrl": "https://search.example/mcp", "timeout": 5000 }
  }
}
"#,
    ),
    (
        "codex",
        "config.toml",
        r#"model = "gpt-5" # the default

[mcp_servers.notes]
command = "notes"
args = ["--db", "a.db"]
startup_timeout_sec = 20

[mcp_servers.search]
url = "https://search.example/mcp"
"#,
    ),
    (
        "zed",
        "settings.json",
        r#"// Zed settings
{
  "buffer_font_size": 15,
  "context_servers": {
    "notes": { "command": "notes", "args": [], "env": {} },
    "search": { "url": "https://search.example/mcp" },
  },
}
"#,
    ),
    (
        "goose",
        "config.yaml",
        r#"GOOSE_MODEL: some-model
extensions:
  notes: # by hand
    enabled: true
    type: stdio
    name: notes
    cmd: notes
    args: []
    envs: {}
    timeout: 300
  search:
    enabled: true
    type: streamable_http
    name: search
    uri: https://search.example/mcp
  developer:
    enabled: true
    type: builtin
    name: developer
"#,
    ),
    (
        "opencode",
        "opencode.json",
        r#"{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "notes": { "type": "local", "command": ["notes", "--db", "a.db"], "environment": { "A": "b" } },
    "search": { "type": "remote", "url": "https://search.example/mcp", "enabled": true }
  }
}
"#,
    ),
    (
        "continue",
        "config.yaml",
        r#"name: Assistant
version: 1.0.0
schema: v1
mcpServers:
  - name: notes
    command: notes
    args: ["--db", "a.db"]
  - name: search
    type: streamable-http
    url: https://search.example/mcp
"#,
    ),
    (
        "lm-studio",
        "mcp.json",
        r#"{ "mcpServers": { "notes": { "command": "notes" }, "search": { "url": "https://search.example/mcp" } } }
"#,
    ),
];

#[tokio::test]
async fn file_of_each_client_is_a_configuration_and_its_entry_can_be_removed() {
    for (client, name, text) in FILES {
        let folder = TempFile::folder();
        let path = folder.path().join(name);
        let beside = path.parent().unwrap();
        fs::create_dir_all(beside).unwrap();
        fs::write(folder.path().join("notes.env"), "A=b\n").unwrap();
        fs::write(&path, text).unwrap();
        let file = path.to_str().unwrap();

        let validated = run_in(folder.path(), &["validate", "--config", file]).await;
        assert_eq!(validated.status, 0, "{client}: {}", validated.text());
        assert!(
            validated.out.contains("2 servers"),
            "{client}: {}",
            validated.text()
        );
        assert!(
            !validated.text().contains("s3cret"),
            "{client}: {}",
            validated.text()
        );

        let imported = run_in(
            folder.path(),
            &["import", "--from", file, "--output", "-", "--json"],
        )
        .await;
        assert_eq!(imported.status, 0, "{client}: {}", imported.text());
        assert!(
            !imported.text().contains("s3cret"),
            "{client}: {}",
            imported.text()
        );
        let servers = imported.json()["servers"].clone();
        assert_eq!(
            (&servers[0]["name"], &servers[1]["name"]),
            (&"notes".into(), &"search".into()),
            "{client}: {servers}"
        );

        let connect = ["connect", client, "--file", file];
        let url = ["--url", "http://127.0.0.1:8080/mcp"];
        let connected = run_in(folder.path(), &[&connect[..], &url].concat()).await;
        assert_eq!(connected.status, 0, "{client}: {}", connected.text());
        let changed = fs::read_to_string(&path).unwrap();
        assert!(
            changed.contains("fanlight") && changed.len() > text.len(),
            "{client}: {changed}"
        );
        // Everything else stays unchanged.
        let comments = [
            "// Servers of this project.",
            "/* the last */",
            "# the default",
            "// Zed settings",
            "# by hand",
        ];
        for comment in comments
            .into_iter()
            .filter(|comment| text.contains(comment))
        {
            assert!(changed.contains(comment), "{client}: {changed}");
        }
        let both = run_in(folder.path(), &["validate", "--config", file]).await;
        assert!(both.out.contains("3 servers"), "{client}: {}", both.text());
        let again = run_in(folder.path(), &[&connect[..], &url].concat()).await;
        assert_eq!(
            (again.status, fs::read_to_string(&path).unwrap()),
            (0, changed),
            "{client}: {}",
            again.text()
        );

        let undone = run_in(folder.path(), &[&connect[..], &["--undo"]].concat()).await;
        assert_eq!(undone.status, 0, "{client}: {}", undone.text());
        assert_eq!(fs::read(&path).unwrap(), text.as_bytes(), "{client}");
        let undone = run_in(folder.path(), &[&connect[..], &["--undo"]].concat()).await;
        assert_ne!(undone.status, 0, "{client}: {}", undone.text());
        let left: Vec<_> = fs::read_dir(beside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(
            left.iter()
                .all(|name| *name == *path.file_name().unwrap() || name == "notes.env"),
            "{client}: {left:?}"
        );
    }
}

#[tokio::test]
async fn other_changes_survive_an_undo_and_a_file_that_was_made_is_removed() {
    let folder = TempFile::folder();
    let path = folder.path().join("new").join("mcp.json");
    let connect = [
        "connect",
        "cursor",
        "--file",
        path.to_str().unwrap(),
        "--url",
        "http://127.0.0.1:8080/mcp",
    ];
    assert_eq!(run_in(folder.path(), &connect).await.status, 0);
    let made: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(
        made["mcpServers"]["fanlight"]["url"],
        "http://127.0.0.1:8080/mcp"
    );
    let undo = [&connect[..4], &["--undo"]].concat();
    assert_eq!(run_in(folder.path(), &undo).await.status, 0);
    assert!(!path.exists());

    fs::write(&path, r#"{"mcpServers": {"a": {"command": "a"}}}"#).unwrap();
    assert_eq!(run_in(folder.path(), &connect).await.status, 0);
    let changed = fs::read_to_string(&path)
        .unwrap()
        .replace("\"a\": {\"command\": \"a\"}", "\"b\": {\"command\": \"b\"}");
    fs::write(&path, &changed).unwrap();
    assert_eq!(run_in(folder.path(), &undo).await.status, 0);
    let left: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(
        left,
        serde_json::json!({"mcpServers": {"b": {"command": "b"}}})
    );

    fs::write(&path, "{ nonsense").unwrap();
    let refused = run_in(folder.path(), &connect).await;
    assert!(
        refused.status != 0 && refused.err.contains("nothing was changed"),
        "{}",
        refused.text()
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "{ nonsense");
}
