//! Unusual standard streams of the process. The other tests use pipes and read them to the end.

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;
use std::process::Stdio;

use fanlight_tests::slicer::member;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::harness::{Log, TempFile, fanlight, signal_and_wait, within};
use crate::raw_client::{modern_request, post_modern};

const OPENING: &str = r#"{"jsonrpc":"2.0","id":"é","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

fn check(answer: &str) {
    assert_eq!(member(answer, "id"), Some("\"é\""), "{answer}");
    assert!(
        member(answer, "result.capabilities.tools").is_some(),
        "{answer}"
    );
}

#[tokio::test]
async fn stdio_works_over_a_pair_of_sockets() {
    let (ours, theirs) = Socket::pair().unwrap();
    let end = || Stdio::from(OwnedFd::from(theirs.try_clone().unwrap()));
    let mut child = fanlight()
        .arg("stdio")
        .stdin(end())
        .stdout(end())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(theirs);
    ours.set_nonblocking(true).unwrap();
    let mut ours = UnixStream::from_std(ours).unwrap();
    ours.write_all(format!("{OPENING}\n").as_bytes())
        .await
        .unwrap();
    let ours = ours.into_std().unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    within(
        "the answer",
        UnixStream::from_std(ours)
            .unwrap()
            .read_to_string(&mut answer),
    )
    .await
    .unwrap();
    check(answer.trim_end());
    assert!(within("the end", child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn files() {
    let (input, output) = (TempFile::new("in", OPENING), TempFile::new("out", ""));
    let answers = File::options().write(true).open(output.path()).unwrap();
    let mut child = fanlight();
    child
        .arg("stdio")
        .stdin(File::open(input.path()).unwrap())
        .stdout(answers)
        .stderr(Stdio::null());
    assert!(within("the end", child.status()).await.unwrap().success());
    check(std::fs::read_to_string(output.path()).unwrap().trim_end());
}

/// The reader of standard error has exited, as after a crash of the parent process.
#[tokio::test]
async fn closed_standard_error_breaks_neither_calls_nor_shutdown() {
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    let folder = TempFile::folder();
    let mut command = fanlight();
    // Without a configuration, the demo runs. A request also causes log lines.
    command.current_dir(folder.path()).args([
        "run",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "off",
        "--log",
        "debug",
    ]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(unread)
        .spawn()
        .unwrap();
    let output = Log::print("out", child.stdout.take().unwrap());
    let address = output.address("listening on http://", "/mcp").await;
    let listed = post_modern(address, &modern_request("1", "tools/list", "", ""))
        .await
        .messages()
        .await
        .1;
    assert!(member(&listed, "result.tools").is_some(), "{listed}");
    assert!(
        signal_and_wait(&mut child, rustix::process::Signal::TERM)
            .await
            .success()
    );
}
