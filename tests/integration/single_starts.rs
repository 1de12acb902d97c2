//! The number of process starts within one attempt to connect: one, unless the process may have
//! ended because of its input.

use std::fs;

use serde_json::json;

use crate::harness::{Gateway, TempFile};
use crate::starting::server_when;

/// The configuration of a server that notes its start and runs `script`.
fn gateway_of(folder: &TempFile, script: &str) -> String {
    // `${` would refer to a variable in a configuration, so it is escaped.
    let script = format!("echo started >> \"$F/starts\"\n{script}").replace("${", "$${");
    let entry = json!({ "command": "sh", "args": ["-c", script], "env": { "F": folder.path() } });
    let limits = "probe=100ms,reconnect=60s,processStop=100ms";
    json!({ "mcpServers": { "only": entry }, "x-limits": limits }).to_string()
}

fn starts(folder: &TempFile) -> usize {
    fs::read_to_string(folder.path().join("starts"))
        .unwrap()
        .lines()
        .count()
}

/// A legacy server that exits on a request before `initialize`.
const EXITS_ON_PROBE: &str = r#"
read -r line
case $line in *'"server/discover"'*) echo 'unexpected message' >&2; exit 1 ;; esac
id=${line#*\"id\":}; id=${id%%[!0-9]*}
result='{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}'
printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
while read -r line; do :; done"#;

#[tokio::test]
async fn process_that_exits_without_having_read_anything_is_started_once() {
    for before in ["", "sleep 0.4\n"] {
        let folder = TempFile::folder();
        let script = format!("{before}echo 'Error: NOTES_KEY is not set' >&2; exit 3");
        let gateway = Gateway::start(&gateway_of(&folder, &script)).await;
        let server = server_when(&gateway, "only", |server| !server["failure"].is_null()).await;
        assert_eq!(starts(&folder), 1, "{server}");
        assert!(
            server["failure"]["what"]
                .as_str()
                .unwrap()
                .contains("exit status: 3"),
            "{server}"
        );
        assert_eq!(
            server["failure"]["stderr"],
            json!(["Error: NOTES_KEY is not set"])
        );
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn process_that_exits_on_the_probe_is_started_again_for_initialize() {
    for before in ["", "sleep 0.4\n"] {
        let folder = TempFile::folder();
        let gateway =
            Gateway::start(&gateway_of(&folder, &format!("{before}{EXITS_ON_PROBE}"))).await;
        server_when(&gateway, "only", |server| server["state"] == "ready").await;
        assert_eq!(starts(&folder), 2, "{before}");
        assert!(gateway.terminate().await.success());
    }
}
