//! Runs the commands of the guide "Test your server in CI": by hand, and of each workflow.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Output, Stdio};

use fanlight_testkit::harness::{Gateway, TempFile, within};
use fanlight_testkit::programs;
use fanlight_testkit::raw_client::{LegacySession, legacy_request};
use fanlight_testkit::recorder::Recorder;
use serde_json::json;
use tokio::process::Command;

use crate::block::Block;
use crate::page::Page;

/// The commands of a block: of a workflow's steps, and of lines that a reader types.
fn commands(block: &Block) -> Vec<&str> {
    let lines = block.text.lines().map(str::trim);
    lines
        .filter_map(|line| match line.strip_prefix("- ") {
            Some(step) if step.starts_with("uses: ") => None,
            Some(step) => Some(step.strip_prefix("run: ").unwrap_or(step)),
            None => line.find("fanlight replay").map(|at| &line[at..]),
        })
        .collect()
}

/// A recording of the demo's library.
async fn recording() -> String {
    let library = json!({"command": programs::fanlight(), "args": ["demo-server", "legacy"]});
    let config = json!({"mcpServers": {"library": library}});
    let gateway = Gateway::start(&config.to_string()).await;
    let session = LegacySession::open(gateway.mcp).await;
    let recorder = Recorder::start(gateway.admin, &["--server", "library"]).await;
    let params = r#""name":"search_books","arguments":{"query":"sea"}"#;
    let mut answer = session
        .post(&legacy_request("1", "tools/call", params))
        .await;
    assert!(answer.messages().await.1.contains("\"result\""));
    recorder.finish().await
}

/// A checkout in which `node server.js` is a demo server. Fanlight is there as if the cache had it.
fn checkout(recording: &str, era: &str) -> TempFile {
    let folder = TempFile::folder();
    let path = folder.path();
    fs::write(path.join("recording.jsonl"), recording).unwrap();
    fs::create_dir_all(path.join(".cargo/bin")).unwrap();
    let fanlight = programs::fanlight();
    symlink(fanlight, path.join(".cargo/bin/fanlight")).unwrap();
    let server = format!(
        "test \"$1\" = server.js && exec '{}' demo-server {era}",
        fanlight.display()
    );
    for (name, script) in [("node", &*server), ("npm", ""), ("apt-get", "")] {
        let program = path.join(".cargo/bin").join(name);
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

async fn run(folder: &Path, commands: &str) -> Output {
    let programs = folder.join(".cargo/bin");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command
        .args(["-euc", commands])
        .current_dir(folder)
        .env("HOME", folder)
        .env("PATH", format!("{}:{path}", programs.display()))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    within("the commands", command.output()).await.unwrap()
}

#[tokio::test]
async fn workflows_of_the_guide_pass_until_the_server_changes() {
    let pages = Page::all();
    let guide = pages
        .iter()
        .find(|page| page.path.ends_with("guides/testing-servers.md"));
    let blocks = guide.unwrap().blocks();
    let blocks: Vec<&Block> = blocks
        .iter()
        .filter(|block| block.text.contains("-- node server.js"))
        .collect();
    assert_eq!(blocks.len(), 3, "by hand, GitHub and GitLab");
    let recording = recording().await;
    for (era, status) in [("legacy", 0), ("modern", 1)] {
        for block in &blocks {
            let folder = checkout(&recording, era);
            let output = run(folder.path(), &commands(block).join("\n")).await;
            assert_eq!(
                output.status.code(),
                Some(status),
                "{}: {output:?}",
                block.place
            );
            // The file that the workflow shows is there in both cases.
            if block.language == "yaml" {
                let report = fs::read_to_string(folder.path().join("replay.xml")).unwrap();
                assert!(report.contains("<testsuite"), "{report}");
                assert!(block.text.contains(": replay.xml }"), "{}", block.text);
            }
        }
    }
}
