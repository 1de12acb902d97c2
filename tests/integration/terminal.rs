//! Commands on a terminal: input, output and results. `script` of util-linux provides the terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use fanlight_testkit::authorization_server::AuthorizationServer;
use fanlight_testkit::browser::Browser;
use fanlight_testkit::scripted::Protection;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

use crate::harness::{Gateway, TempFile, within};
use crate::scripted::{Backend, Era, Transport};
use crate::starting::server_when;

/// A terminal that runs a shell command line.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    /// Everything that was written to the terminal.
    shown: watch::Receiver<String>,
}

impl Terminal {
    /// Runs a shell command line in a folder. `$fanlight` is the program.
    fn start(folder: &Path, line: &str) -> Self {
        let mut command = Command::new("script");
        command.kill_on_drop(true).args([
            "-qfec",
            &format!("stty cols 120 rows 40; {line}"),
            "/dev/null",
        ]);
        command
            .current_dir(folder)
            .env("fanlight", fanlight_testkit::programs::fanlight())
            .env("TERM", "xterm");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (text, shown) = watch::channel(String::new());
        tokio::spawn(async move {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes).await {
                text.send_modify(|text| text.push_str(&String::from_utf8_lossy(&bytes[..read])));
            }
        });
        Self {
            child,
            keyboard,
            shown,
        }
    }

    /// Waits until `part` appears; returns all output.
    async fn shows(&self, part: &str) -> String {
        let mut shown = self.shown.clone();
        let waited = tokio::time::timeout(
            crate::harness::PATIENCE,
            shown.wait_for(|text| text.contains(part)),
        )
        .await;
        match waited {
            Ok(Ok(text)) => text.clone(),
            _ => panic!("no `{part}` in {:?}", self.text()),
        }
    }

    fn text(&self) -> String {
        self.shown.borrow().clone()
    }

    async fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).await.unwrap();
    }

    /// Waits for the end of the command line; returns all output.
    async fn ended(mut self) -> (ExitStatus, String) {
        let status = within(
            &format!("the end; so far {:?}", self.text()),
            self.child.wait(),
        )
        .await
        .unwrap();
        // The last bytes may not have been read yet.
        while self.shown.changed().await.is_ok() {}
        (status, self.text())
    }
}

const CTRL_C: &str = "\x03";

/// A server that runs `script` after `initialize`. `$F` is the folder.
fn server(folder: &TempFile, before: &str, script: &str) -> Value {
    let answer = r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;
    let script = format!(
        r#"{before}
while read -r line; do
  id=${{line#*\"id\":}}; id=${{id%%[!0-9]*}}
  case $line in
    *'"initialize"'*) printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" '{answer}'
      {script} ;;
    *'"id"'*) printf '{{"jsonrpc":"2.0","id":%s,"error":{{"code":-32601,"message":"no"}}}}\n' "$id" ;;
  esac
done"#
    );
    json!({ "command": "sh", "args": ["-c", script.replace("${", "$${")], "env": { "F": folder.path() } })
}

/// Shell code that waits for a file, which the test creates.
fn until(name: &str) -> String {
    format!(r#"while [ ! -e "$F/{name}" ]; do sleep 0.05; done"#)
}

#[tokio::test]
async fn log_is_followed_until_ctrl_c_or_the_end_of_the_gateway() {
    let folder = TempFile::folder();
    let later = format!(
        "(echo second >&2; echo third >&2; {}; printf 'fourth \\033[2J\\n' >&2) &",
        until("go")
    );
    let entry = server(&folder, "echo first >&2", &later);
    let gateway = Gateway::start(&json!({ "mcpServers": { "only": entry } }).to_string()).await;
    server_when(&gateway, "only", |server| server["state"] == "ready").await;
    let follow = |more: &str| {
        format!(
            "exec \"$fanlight\" logs -f --admin http://{} {more}",
            gateway.admin
        )
    };
    let mut all = Terminal::start(folder.path(), &follow("only"));
    let shown = all.shows("third").await;
    assert!(
        shown.contains("first") && shown.contains("second") && !shown.contains("fourth"),
        "{shown:?}"
    );
    assert!(
        shown.contains("\x1b[1monly\x1b[0m"),
        "the name of the server is bold: {shown:?}"
    );
    let last = Terminal::start(folder.path(), &follow("-n 1 --json"));
    last.shows("third").await;
    fs::write(folder.path().join("go"), "").unwrap();
    let shown = all.shows("fourth").await;
    assert!(
        shown.contains("fourth \\u001b[2J") && !shown.contains("\x1b[2J"),
        "{shown:?}"
    );
    assert_eq!(shown.matches("third").count(), 1, "{shown:?}");
    last.shows("fourth").await;
    all.types(CTRL_C).await;
    let (status, shown) = all.ended().await;
    assert!(
        !status.success() && !shown.contains("error"),
        "{status} {shown:?}"
    );
    assert!(gateway.terminate().await.success());
    let (status, shown) = last.ended().await;
    assert!(
        status.code() == Some(1) && shown.contains("has ended the stream"),
        "{status} {shown:?}"
    );
    assert!(!shown.contains("second"), "{shown:?}");
    let lines: Vec<Value> = shown
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.iter().all(|line| line["server"] == "only"));
    assert!(lines.len() >= 2, "{shown:?}");
}

/// The output after the progress line of a slow start.
fn after_last_start(shown: &str) -> &str {
    shown.rsplit_once("starting (").map_or("", |(_, rest)| rest)
}

const INSTALL: &str = "i=0; while [ ! -e \"$F/go\" ]; do i=$((i+1)); echo \"npm http fetch $i\" >&2; sleep 0.05; done";

#[tokio::test]
async fn start_is_drawn_live_and_wiped_when_it_is_over() {
    for (command, end) in [
        ("run --listen 0 --admin 0 --no-watch", "listening on"),
        ("check", "only"),
    ] {
        let folder = TempFile::folder();
        let entry = server(&folder, INSTALL, "");
        fs::write(
            folder.path().join("fanlight.json"),
            json!({ "mcpServers": { "only": entry } }).to_string(),
        )
        .unwrap();
        let line = format!("exec \"$fanlight\" {command} --config fanlight.json");
        let mut terminal = Terminal::start(folder.path(), &line);
        for seconds in [0, 1, 2] {
            terminal
                .shows(&format!("only starting ({seconds} s): npm http fetch "))
                .await;
        }
        // The progress line is redrawn in place.
        let shown = terminal.text();
        let drawn = shown.matches("only starting (").count();
        assert!(
            drawn > 5 && shown.matches("\x1b[1A\x1b[J").count() > 3,
            "{shown:?}"
        );
        fs::write(folder.path().join("go"), "").unwrap();
        if command.starts_with("run") {
            // Neither line tears the other.
            terminal.shows("server is connected").await;
            assert!(terminal.text().contains(end));
            terminal.types(CTRL_C).await;
        }
        let (status, shown) = terminal.ended().await;
        assert!(status.success(), "{status} {shown:?}");
        let rest = after_last_start(&shown);
        assert!(rest.contains("\x1b[1A\x1b[J"), "it is not wiped: {rest:?}");
        assert!(shown.contains(end), "{shown:?}");
    }
}

/// A VS Code configuration whose only server writes its inputs into a file.
fn with_inputs(folder: &TempFile) {
    let inputs = json!([
        { "id": "token", "type": "promptString", "description": "The token\u{1b}[2J", "password": true },
        { "id": "region", "type": "pickString", "description": "The region", "options": ["eu", "us"] },
        { "id": "name", "type": "promptString", "description": "Your name", "default": "nobody" },
    ]);
    let mut entry = server(folder, "echo \"$TOKEN/$REGION/$NAME\" > \"$F/given\"", "");
    // The inputs are asked for in this order.
    for (name, input) in [
        ("NAME", "${input:name}"),
        ("REGION", "${input:region}"),
        ("TOKEN", "${input:token}"),
    ] {
        entry["env"][name] = json!(input);
    }
    fs::create_dir(folder.path().join(".vscode")).unwrap();
    let text = json!({ "inputs": inputs, "servers": { "only": entry } }).to_string();
    fs::write(folder.path().join(".vscode/mcp.json"), text).unwrap();
}

fn given(folder: &TempFile) -> String {
    fs::read_to_string(folder.path().join("given"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[tokio::test]
async fn inputs_of_an_editor_are_asked_for_and_secrets_are_not_shown() {
    let folder = TempFile::folder();
    with_inputs(&folder);
    let line = "\"$fanlight\" check --config .vscode/mcp.json; stty -a";
    let mut terminal = Terminal::start(folder.path(), line);
    terminal.shows("Your name [nobody]: ").await;
    terminal.types("\n").await;
    let shown = terminal.shows("2) us: ").await;
    assert!(shown.contains("The region\r\n  1) eu\r\n"), "{shown:?}");
    terminal.types("2\n").await;
    let shown = terminal.shows("The token\\u001b[2J: ").await;
    assert!(!shown.contains("\x1b[2J"), "{shown:?}");
    terminal.types("s3cret-typed\n").await;
    let (status, shown) = terminal.ended().await;
    assert!(status.success(), "{shown:?}");
    assert_eq!(given(&folder), "s3cret-typed/us/nobody", "{shown:?}");
    assert!(!shown.contains("s3cret-typed"), "{shown:?}");
    assert!(
        shown.contains(" echo ") && !shown.contains(" -echo "),
        "the terminal is as before: {shown:?}"
    );
}

#[tokio::test]
async fn inputs_come_from_variables_and_are_reported_missing_without_a_terminal() {
    let folder = TempFile::folder();
    with_inputs(&folder);
    let line = "INPUT_TOKEN=s3cret-set INPUT_REGION=eu INPUT_NAME=me \"$fanlight\" check --config .vscode/mcp.json";
    let (status, shown) = Terminal::start(folder.path(), line).ended().await;
    assert!(
        status.success() && !shown.contains("The token"),
        "{shown:?}"
    );
    assert_eq!(given(&folder), "s3cret-set/eu/me");
    let line = "\"$fanlight\" check --config .vscode/mcp.json < /dev/null";
    let (status, shown) = Terminal::start(folder.path(), line).ended().await;
    assert!(
        !status.success() && shown.contains("INPUT_TOKEN"),
        "{shown:?}"
    );
    // An empty answer is not accepted.
    let mut terminal = Terminal::start(
        folder.path(),
        "\"$fanlight\" check --config .vscode/mcp.json",
    );
    terminal.shows("Your name").await;
    terminal.types("me\n").await;
    terminal.shows("2) us: ").await;
    terminal.types("eu\n").await;
    terminal.shows("The token").await;
    terminal.types("\n").await;
    let (status, shown) = terminal.ended().await;
    assert!(
        !status.success() && shown.contains("INPUT_TOKEN") && !shown.contains("INPUT_REGION"),
        "{shown:?}"
    );
    // Colours appear, and no escaped ones.
    assert!(
        shown.contains("\x1b[1m\x1b[31merror\x1b[0m") && !shown.contains("u001b[3"),
        "{shown:?}"
    );
}

#[tokio::test]
async fn check_of_a_url_signs_in_on_a_terminal() {
    let authorization = Arc::new(AuthorizationServer::start().await);
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let valid = Arc::clone(&authorization);
    backend.protect(Protection::by_token(
        &backend.url(),
        authorization.url(),
        move |token| valid.is_valid(token),
    ));
    let folder = TempFile::folder();
    let opened = folder.path().join("opened");
    fs::write(
        folder.path().join("browser"),
        "#!/bin/sh\necho \"$1\" > opened.new && mv opened.new opened\n",
    )
    .unwrap();
    fs::set_permissions(
        folder.path().join("browser"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let environment = "BROWSER=$PWD/browser XDG_STATE_HOME=$PWD/state DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null";
    let terminal = Terminal::start(
        folder.path(),
        &format!("{environment} \"$fanlight\" check {}", backend.url()),
    );
    terminal.shows("opening in a browser:").await;
    let url = within("the browser", async {
        loop {
            if let Ok(url) = fs::read_to_string(&opened) {
                return url;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut browser = Browser::default();
    let back = browser.open(url.trim()).await.location();
    browser.open(&back).await;
    let (_, text) = terminal.ended().await;
    assert!(
        text.contains("capabilities: tools") && !text.contains("asks for a token"),
        "{text}"
    );
    assert!(!text.contains("token-1"), "{text}");
}
