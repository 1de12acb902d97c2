//! Standard error and the trace file cannot be written for a while: nothing waits for them, and
//! later output consists of whole lines.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use fanlight_testkit::slicer::member;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tokio::process::Child;

use crate::faults::backend;
use crate::harness::{Log, ShownLog, TempFile, fanlight, set_limits, signal_and_wait};
use crate::raw_client::{Connection, modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// More lines of [`LINE`] bytes than a pipe holds.
const CALLS: usize = 64;
const LINE: usize = 4000;

struct Unread {
    child: Child,
    /// The gateway's standard error.
    log: PipeReader,
    mcp: SocketAddr,
    admin: SocketAddr,
    _out: ShownLog,
    _config: TempFile,
}

/// Starts the gateway with a standard error that nobody reads.
async fn start(config_text: &str, more: &[&str]) -> Unread {
    let (log, stderr) = std::io::pipe().unwrap();
    let config = TempFile::new("yaml", config_text);
    let mut command = fanlight();
    command
        .args(["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args(more);
    command.arg("--config").arg(config.path());
    set_limits(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    drop(command);
    let out = Log::print("out", child.stdout.take().unwrap());
    let mcp = out.address("listening on http://", "/mcp").await;
    let admin = out.address("admin on http://", "").await;
    Unread {
        child,
        log,
        mcp,
        admin,
        _out: out,
        _config: config,
    }
}

/// A server that writes a long line to standard error during each call.
async fn talkative() -> Backend {
    let talkative = backend(Era::Modern, Transport::Stdio).await;
    let line = format!("{}\n", "x".repeat(LINE));
    let result = Era::Modern.complete(r#""content":[]"#);
    talkative.on(
        "tools/call",
        Reply::result(result).complaining(line.as_bytes()),
    );
    talkative
}

async fn assert_serves(gateway: &Unread) {
    for _ in 0..CALLS {
        let body = modern_request("1", "tools/call", r#""name":"t""#, "");
        let answer = post_modern(gateway.mcp, &body).await.messages().await.1;
        assert!(member(&answer, "result.content").is_some(), "{answer}");
    }
    let mut admin = Connection::open(gateway.admin).await;
    admin.request("GET", "/healthz", &[], b"").await;
    assert_eq!(admin.response().await.status, 200);
}

#[tokio::test]
async fn unread_standard_error_stops_neither_calls_nor_shutdown() {
    for more in [
        &["--log", "trace"][..],
        &["--trace-console"],
        &["--trace-console", "--log-format", "text"],
    ] {
        let talkative = talkative().await;
        let mut gateway = start(&config(&[talkative.entry("b")]), more).await;
        assert_serves(&gateway).await;
        let begun = std::time::Instant::now();
        assert_eq!(
            signal_and_wait(&mut gateway.child, Signal::TERM)
                .await
                .code(),
            Some(0),
            "{more:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{more:?}: {:?}",
            begun.elapsed()
        );
    }
}

#[tokio::test]
async fn log_says_how_many_lines_were_dropped() {
    let talkative = talkative().await;
    let text = format!(
        r#"{{"mcpServers":{{{}}},"x-limits":"logBytes=16KiB"}}"#,
        talkative.entry("b")
    );
    let mut gateway = start(&text, &["--log", "info,fanlight::child=debug"]).await;
    assert_serves(&gateway).await;
    // Reading begins: the queued lines come first, then the count of the dropped ones.
    let log = gateway.log.try_clone().unwrap();
    let (dropped, whole) = tokio::task::spawn_blocking(move || {
        let mut whole = 0;
        for line in BufReader::new(log).lines() {
            let line = line.unwrap();
            assert!(member(&line, "level").is_some(), "a line is broken: {line}");
            if line.contains("log lines dropped") {
                return (
                    member(&line, "fields.lines")
                        .unwrap()
                        .parse::<usize>()
                        .unwrap(),
                    whole,
                );
            }
            whole += usize::from(line.contains("xxx"));
        }
        panic!("the log has ended")
    })
    .await
    .unwrap();
    assert!(
        whole > 10 && dropped > 10,
        "{whole} lines and {dropped} dropped"
    );
    let mut admin = Connection::open(gateway.admin).await;
    admin.request("GET", "/metrics", &[], b"").await;
    let metrics = admin.response().await.text().await;
    let counted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("fanlight_log_dropped_total"))
        .unwrap();
    assert!(
        counted
            .trim()
            .rsplit(' ')
            .next()
            .unwrap()
            .parse::<usize>()
            .unwrap()
            >= dropped,
        "{counted}"
    );
    assert_eq!(
        signal_and_wait(&mut gateway.child, Signal::TERM)
            .await
            .code(),
        Some(0)
    );
    // The last lines are written before the process ends.
    let mut rest = String::new();
    gateway.log.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("stopped"), "{rest}");
}

/// A limit on the size of files stands for a file system that is full for a while.
#[tokio::test]
async fn trace_file_has_only_whole_lines_after_a_full_disk() {
    let server = backend(Era::Modern, Transport::Http).await;
    let folder = TempFile::folder();
    let file = folder.path().join("traces.jsonl");
    // The rest of a line, as a crash may leave it.
    std::fs::write(&file, "{\"resourceSpans\":[]}\n{\"cut").unwrap();
    let config = TempFile::new("yaml", &config(&[server.entry("b")]));
    // The limit comes with a signal that would end the process; a full disk sends none.
    let mut command = tokio::process::Command::new("sh");
    command
        .kill_on_drop(true)
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(fanlight_testkit::programs::fanlight());
    command
        .args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--trace-file",
        ])
        .arg(&file);
    command.arg("--config").arg(config.path());
    set_limits(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = Log::print("out", child.stdout.take().unwrap());
    let log = Log::print("err", child.stderr.take().unwrap());
    let mcp = out.address("listening on http://", "/mcp").await;
    let call = async |number: usize| {
        let body = modern_request(&number.to_string(), "tools/call", r#""name":"t""#, "");
        post_modern(mcp, &body).await.messages().await;
    };
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(pid.try_into().unwrap()));
    let limit = |bytes| {
        prlimit(
            pid,
            Resource::Fsize,
            Rlimit {
                current: bytes,
                maximum: None,
            },
        )
        .unwrap()
    };
    call(0).await;
    let lines = |wanted: usize| {
        let file = file.clone();
        async move {
            loop {
                let text = std::fs::read_to_string(&file).unwrap();
                if text.lines().count() >= wanted {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let before = crate::harness::within("a span", lines(3)).await;
    limit(Some(before.len() as u64 + 100));
    call(1).await;
    log.line_with("cannot write traces").await;
    limit(None);
    let have = std::fs::read_to_string(&file).unwrap().lines().count();
    call(2).await;
    crate::harness::within("a later span", lines(have + 1)).await;
    assert_eq!(
        signal_and_wait(&mut child, Signal::TERM).await.code(),
        Some(0)
    );
    let text = std::fs::read_to_string(&file).unwrap();
    let broken: Vec<&str> = text
        .lines()
        .filter(|line| serde_json::from_str::<serde_json::Value>(line).is_err())
        .collect();
    assert_eq!(broken, ["{\"cut"], "{text}");
    assert!(text.ends_with("}\n"), "{text}");
}
