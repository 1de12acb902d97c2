//! A walk through the configuration files of clients: the servers in each are started and called.
//! Apart from one URL, the files are the clients' own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use super::connect::FILES;
use crate::harness::{Gateway, TempFile};
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::server_lives::ask;

const URL: &str = "https://search.example/mcp";

/// Installs a program that notes how it was started and then becomes a process of `server`.
fn install(folder: &Path, name: &str, server: &Backend) {
    let (program, arguments) = server.command(&[]);
    let noted = folder.join(format!("{name}.started"));
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" \"A=$A\" \"NOTES_TOKEN=$NOTES_TOKEN\" \"$PWD\" > '{}'\nexec '{}' {}\n",
        noted.display(),
        program.display(),
        arguments.join(" ")
    );
    let path = folder.join("bin").join(name);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// How the program was started: its arguments, two variables, and its working directory.
fn started(folder: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.join(format!("{name}.started"))).unwrap();
    text.lines().map(str::to_owned).collect()
}

async fn server(era: Era, transport: Transport, tools: &[&str]) -> Backend {
    let server = Backend::start(era, transport).await;
    server.offers_tools(tools);
    server.on(
        "tools/call",
        Reply::result(era.complete(r#""content":[{"type":"text","text":"called"}]"#)),
    );
    server
}

#[tokio::test]
async fn servers_of_the_file_of_each_client_are_started_and_called() {
    let notes = server(Era::Legacy, Transport::Stdio, &["read", "drop"]).await;
    let search = server(Era::Modern, Transport::Http, &["find"]).await;
    let bridge = server(Era::Legacy, Transport::Stdio, &["find"]).await;
    for (client, name, text) in FILES {
        let folder = TempFile::folder();
        // The canonical path, since the system reports a process's working directory in that form.
        let folder = folder.path().canonicalize().unwrap();
        fs::create_dir(folder.join("bin")).unwrap();
        install(&folder, "notes", &notes);
        install(&folder, "npx", &bridge);
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(folder.join("notes.env"), "A=b\n").unwrap();
        let is_bridged = text.contains("mcp-remote");
        let text = if is_bridged {
            text.to_owned()
        } else {
            text.replace(URL, &search.url())
        };
        fs::write(&path, &text).unwrap();
        let paths = format!(
            "{}:{}",
            folder.join("bin").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let gateway = Gateway::start_at_with_env(path, "PATH", paths).await;

        let list: Value = serde_json::from_str(&ask(&gateway, "tools/list", "").await).unwrap();
        let tools: Vec<_> = list["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        let filters = [r#""disabledTools":["drop"]"#, r#""includeTools": ["read"]"#];
        let is_filtered = filters.iter().any(|filter| text.contains(filter));
        let expected: &[_] = match is_filtered {
            true => &["notes__read", "search__find"],
            false => &["notes__read", "notes__drop", "search__find"],
        };
        assert_eq!(tools, expected, "{client}");
        let searching = if is_bridged { &bridge } else { &search };
        for (tool, server) in [("notes__read", &notes), ("search__find", searching)] {
            let before = server.received("tools/call").len();
            let answer = ask(
                &gateway,
                "tools/call",
                &format!(r#""name":"{tool}","arguments":{{"x":"{client}"}}"#),
            )
            .await;
            assert!(answer.contains(r#""text":"called""#), "{client}: {answer}");
            let calls = server.received("tools/call");
            assert_eq!(calls.len(), before + 1, "{client}");
            assert_eq!(
                calls[before].member("params.arguments.x"),
                Some(&*format!("\"{client}\""))
            );
        }

        let how = started(&folder, "notes");
        assert_eq!(
            how[0],
            if text.contains("--db") {
                "--db a.db"
            } else {
                ""
            },
            "{client}"
        );
        let is_set = text.contains("envFile") || text.contains(r#""A": "b""#);
        assert_eq!(how[1], if is_set { "A=b" } else { "A=" }, "{client}");
        let token = if text.contains("NOTES_TOKEN") {
            "s3cret-notes-token"
        } else {
            ""
        };
        assert_eq!(how[2], format!("NOTES_TOKEN={token}"), "{client}");
        if text.contains("${workspaceFolder}") {
            assert_eq!(Path::new(&how[3]), folder, "{client}");
        }
        if is_bridged {
            assert_eq!(
                started(&folder, "npx")[0],
                format!("-y mcp-remote {URL}"),
                "{client}"
            );
        }
        if text.contains("SEARCH_TOKEN") {
            let calls = search.received("tools/call");
            assert_eq!(
                calls.last().unwrap().header("authorization"),
                Some("Bearer none"),
                "{client}"
            );
        }
        assert!(gateway.terminate().await.success(), "{client}");
    }
}
