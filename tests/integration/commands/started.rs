//! The defaults of `run` and `stdio` without a named configuration.

use std::fs;
use std::process::Stdio;

use super::{run_in, shell};
use crate::harness::{Log, TempFile, fanlight};
use crate::scripted::{Backend, Era, Transport, config};

async fn backend() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    backend
}

#[tokio::test]
async fn configuration_of_the_folder_is_used_and_named() {
    for name in [".mcp.json", ".cursor/mcp.json", "mcp.json", "fanlight.yaml"] {
        let (folder, backend) = (TempFile::folder(), backend().await);
        fs::create_dir(folder.path().join(".cursor")).unwrap();
        fs::write(folder.path().join(name), config(&[backend.entry("only")])).unwrap();
        for arguments in [&["run", "--listen", "0", "--admin", "off"][..], &["stdio"]] {
            let mut command = fanlight();
            command.args(arguments).current_dir(folder.path());
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let err = Log::print("err", child.stderr.take().unwrap());
            err.line_with(&format!("no --config: using {name} of this folder"))
                .await;
            child.kill().await.unwrap();
        }
        let ran = run_in(folder.path(), &["list", "tools"]).await;
        assert!(
            ran.status == 0 && ran.out.contains("only"),
            "{name}: {}",
            ran.text()
        );
    }
}

#[tokio::test]
async fn configuration_of_fanlight_comes_before_those_of_clients() {
    let (folder, backend) = (TempFile::folder(), backend().await);
    for (name, server) in [
        ("fanlight.yaml", "first"),
        ("mcp.json", "second"),
        (".mcp.json", "third"),
    ] {
        fs::write(folder.path().join(name), config(&[backend.entry(server)])).unwrap();
    }
    for server in ["first", "second", "third"] {
        let ran = run_in(folder.path(), &["list", "tools"]).await;
        assert!(ran.out.contains(server), "{server}: {}", ran.text());
        let next = ["fanlight.yaml", "mcp.json", ".mcp.json"].map(|name| folder.path().join(name));
        fs::remove_file(next.iter().find(|path| path.exists()).unwrap()).unwrap();
    }
    let ran = run_in(folder.path(), &["list", "tools"]).await;
    assert!(
        ran.out.contains("library__") && ran.err.contains("DEMO"),
        "{}",
        ran.text()
    );
}

/// A client's file names Fanlight itself, which would start itself endlessly.
#[tokio::test]
async fn entry_of_a_client_for_fanlight_itself_is_left_out() {
    let (folder, backend) = (TempFile::folder(), backend().await);
    let program = fanlight_testkit::programs::fanlight();
    let own = format!(
        r#""fanlight":{{"command":{:?},"args":["stdio"]}}"#,
        program.display().to_string()
    );
    let listener = r#""proxy":{"url":"http://localhost:8080/mcp"}"#.to_owned();
    fs::write(
        folder.path().join(".mcp.json"),
        config(&[own.clone(), listener, backend.entry("only")]),
    )
    .unwrap();
    let ran = run_in(folder.path(), &["check"]).await;
    assert_eq!(ran.status, 0, "{}", ran.text());
    assert!(
        ran.out.contains(r#"server "fanlight" is not enabled"#),
        "{}",
        ran.text()
    );
    assert!(
        ran.out.contains(r#"server "proxy" is not enabled"#),
        "{}",
        ran.text()
    );
    fs::write(folder.path().join(".mcp.json"), config(&[own])).unwrap();
    let ran = run_in(folder.path(), &["list"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("no server is enabled"),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn port_without_an_address_is_one_of_this_machine() {
    for listen in ["0", ":0", "localhost:0", "127.0.0.1:0"] {
        let folder = TempFile::folder();
        let mut command = fanlight();
        command
            .args(["--listen", listen, "--admin", "off"])
            .current_dir(folder.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = Log::print("out", child.stdout.take().unwrap());
        out.line_with("listening on http://127.0.0.1:").await;
        child.kill().await.unwrap();
    }
    let ran = run_in(std::path::Path::new("/"), &["--listen", "example.com:80"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("0.0.0.0:8080"),
        "{}",
        ran.text()
    );
}

/// `script` gives the gateway a terminal.
#[tokio::test]
async fn log_has_no_colours_where_no_color_is_set() {
    for (variable, has_colours) in [("", true), ("NO_COLOR=1 ", false)] {
        let folder = TempFile::folder();
        let program = fanlight_testkit::programs::fanlight();
        let line = format!(
            "TERM=xterm {variable}{} stdio --demo < /dev/null",
            program.display()
        );
        let ran = shell(
            folder.path(),
            format!("script -qec '{line}' /dev/null < /dev/null"),
        )
        .await;
        assert!(ran.out.contains("DEMO: "), "{}", ran.text());
        assert_eq!(
            ran.out.contains('\u{1b}'),
            has_colours,
            "{variable}: {:?}",
            ran.out
        );
    }
}
