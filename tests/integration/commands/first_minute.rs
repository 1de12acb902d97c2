//! The first minute: a file may have any name, one incomplete server does not stop the others, and
//! commands find the running gateway.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tokio::process::Child;

use super::run_in;
use crate::harness::{Gateway, Log, ShownLog, TempFile, fanlight};
use crate::scripted::{Backend, Era, Transport, config};
use crate::server_lives::ask;
use crate::starting::server_when;

async fn backend(transport: Transport) -> Backend {
    let backend = Backend::start(Era::Modern, transport).await;
    backend.offers_tools(&["t"]);
    backend
}

#[tokio::test]
async fn file_is_named_without_an_option() {
    let (folder, backend) = (TempFile::folder(), backend(Transport::Stdio).await);
    fs::write(
        folder.path().join("mcp.json"),
        config(&[backend.entry("only")]),
    )
    .unwrap();
    for command in [
        &["check", "mcp.json"][..],
        &["list", "mcp.json"],
        &["list", "tools", "mcp.json"],
    ] {
        let ran = run_in(folder.path(), command).await;
        assert!(
            ran.status == 0 && ran.out.contains("only"),
            "{command:?}: {}",
            ran.text()
        );
    }
    let ran = run_in(folder.path(), &["validate", "mcp.json"]).await;
    assert!(
        ran.status == 0 && ran.out.contains("mcp.json: valid"),
        "{}",
        ran.text()
    );
    for command in ["check", "validate", "list", "run", "stdio"] {
        let ran = run_in(folder.path(), &[command, "missing.json"]).await;
        assert!(
            ran.status == 2 && ran.err.contains("missing.json"),
            "{command}: {}",
            ran.text()
        );
    }
    let ran = run_in(folder.path(), &["list", "tols"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("tools, resources or prompts"),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn server_that_lacks_a_value_is_left_out_and_others_are_used() {
    let (folder, backend) = (TempFile::folder(), backend(Transport::Http).await);
    let url = backend.url();
    let servers = json!({
        "good": { "url": url },
        "process": { "command": "x", "env": { "TOKEN": "${NOT_SET_ANYWHERE}" } },
        "url": { "url": "https://${NOT_SET_EITHER}/mcp" },
        "file": { "command": "x", "envFile": "missing.env" },
        "off": { "command": "${NOT_SET_ANYWHERE}", "disabled": true },
    });
    let codex = format!(
        "[mcp_servers.good]\nurl = \"{url}\"\n[mcp_servers.process]\ncommand = \"x\"\n\
         [mcp_servers.process.env]\nTOKEN = \"${{NOT_SET_ANYWHERE}}\"\n"
    );
    for (name, text) in [
        (
            "fanlight.yaml",
            json!({ "mcpServers": servers }).to_string(),
        ),
        ("mcp.json", json!({ "mcpServers": servers }).to_string()),
        (
            ".vscode/mcp.json",
            json!({ "servers": servers }).to_string(),
        ),
        (".codex/config.toml", codex),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
        let gateway = Gateway::start_at(path.clone()).await;
        let list = ask(&gateway, "tools/list", "").await;
        assert!(list.contains("good__t"), "{name}: {list}");
        let mut expected = vec![("process", "`NOT_SET_ANYWHERE` is not set")];
        if !name.ends_with("toml") {
            expected.extend([
                ("url", "`NOT_SET_EITHER` is not set"),
                ("file", "missing.env"),
            ]);
        }
        for (server, why) in expected {
            let state = server_when(&gateway, server, |server| !server["failure"].is_null()).await;
            assert_eq!(state["state"], "failed", "{name}: {state}");
            assert!(
                state["failure"]["what"].as_str().unwrap().contains(why),
                "{name}: {state}"
            );
        }
        assert!(
            gateway
                .log
                .text()
                .contains("the server `process` is not used"),
            "{name}: {}",
            gateway.log.text()
        );
        assert!(gateway.terminate().await.success());
        let ran = run_in(folder.path(), &["validate", name]).await;
        assert!(
            ran.status == 2 && ran.err.contains("`NOT_SET_ANYWHERE` is not set"),
            "{name}: {}",
            ran.text()
        );
    }
    let ran = run_in(folder.path(), &["validate", "mcp.json"]).await;
    assert!(
        ran.out.contains("leaves out process, url, file,"),
        "{}",
        ran.text()
    );
    // Without any usable server there is nothing to serve.
    let only = json!({ "mcpServers": { "a": { "command": "${NOT_SET_ANYWHERE}" } } });
    fs::write(folder.path().join("only.json"), only.to_string()).unwrap();
    let ran = run_in(folder.path(), &["run", "only.json"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("`NOT_SET_ANYWHERE` is not set"),
        "{}",
        ran.text()
    );
    // A variable that the gateway itself needs is required.
    fs::write(
        folder.path().join("own.yaml"),
        "admin: {token: '${NOT_SET_ANYWHERE}'}\nmcpServers: {a: {command: x}}\n",
    )
    .unwrap();
    let ran = run_in(folder.path(), &["run", "own.yaml"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("`NOT_SET_ANYWHERE` is not set"),
        "{}",
        ran.text()
    );
}

/// A gateway started in a folder, with its default admin port.
struct Running {
    admin: String,
    out: ShownLog,
    _err: ShownLog,
    _child: Child,
}

impl Running {
    async fn start(folder: &Path) -> Self {
        let mut command = fanlight();
        command
            .args(["run", "--yes", "--listen", "127.0.0.1:0"])
            .current_dir(folder);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = Log::print("out", child.stdout.take().unwrap());
        let err = Log::print("err", child.stderr.take().unwrap());
        let admin = out.line_with("admin on").await;
        err.line_with("server is connected").await;
        Self {
            admin,
            out,
            _err: err,
            _child: child,
        }
    }
}

#[tokio::test]
async fn commands_act_on_the_gateway_of_their_configuration_alone() {
    let (first, second, third) = (TempFile::folder(), TempFile::folder(), TempFile::folder());
    let backend = backend(Transport::Stdio).await;
    for (folder, name) in [(&first, "one"), (&second, "two"), (&third, "three")] {
        fs::write(
            folder.path().join("fanlight.yaml"),
            config(&[backend.entry(name)]),
        )
        .unwrap();
    }
    let (one, two) = (
        Running::start(first.path()).await,
        Running::start(second.path()).await,
    );
    assert_ne!(one.admin, two.admin);
    for (folder, name) in [(&first, "one"), (&second, "two")] {
        let ran = run_in(folder.path(), &["status"]).await;
        assert!(
            ran.status == 0 && ran.out.contains(name),
            "{name}: {}",
            ran.text()
        );
        let ran = run_in(folder.path(), &["reload"]).await;
        assert_eq!(ran.status, 0, "{name}: {}", ran.text());
    }
    let ran = run_in(third.path(), &["status"]).await;
    assert!(
        ran.status == 1 && ran.err.contains("not the gateway with this configuration"),
        "{}",
        ran.text()
    );

    // The commands ask the running gateway and start nothing.
    let started = backend.started().len();
    for command in [&["list", "tools"][..], &["call", "t"], &["list", "--json"]] {
        let ran = run_in(first.path(), command).await;
        assert!(!ran.err.contains("starting"), "{command:?}: {}", ran.text());
        assert!(
            command[0] == "call" || (ran.status == 0 && ran.out.contains('t')),
            "{command:?}: {}",
            ran.text()
        );
    }
    assert_eq!(backend.started().len(), started);
    let url = one.out.line_with("listening on").await;
    let (_, url) = url.trim().split_once("listening on ").unwrap();
    for command in [
        &["list", "tools", "--url", url][..],
        &["call", "t", "--url", url],
    ] {
        let ran = run_in(third.path(), command).await;
        assert!(
            ran.status <= 1 && !ran.err.contains("starting") && !ran.err.contains("cannot"),
            "{}",
            ran.text()
        );
    }
    let ran = run_in(third.path(), &["list", "--yes"]).await;
    assert!(
        ran.status == 0 && ran.err.contains("starting its servers for this command"),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn admin_port_that_is_taken_is_an_error_where_the_file_names_it() {
    let (folder, backend) = (TempFile::folder(), backend(Transport::Http).await);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let servers = config(&[backend.entry("only")]);
    let text = format!(
        r#"{{"listen":"127.0.0.1:0","admin":{{"listen":"{address}"}},{}"#,
        &servers[1..]
    );
    fs::write(folder.path().join("fanlight.yaml"), text).unwrap();
    let ran = run_in(folder.path(), &["run"]).await;
    assert!(
        ran.status == 1 && ran.err.contains(&address.to_string()),
        "{}",
        ran.text()
    );
}
