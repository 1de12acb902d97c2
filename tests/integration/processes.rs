//! Child processes: what they inherit, and that they end with the gateway, with all their
//! descendants.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use fanlight_testkit::programs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::faults::{assert_gone, backend};
use crate::harness::{Log, ShownLog, TempFile, fanlight, fanlight_at, signal_and_wait, within};
use crate::raw_client::{
    LegacySession, NEWEST_LEGACY, legacy_request, modern_request, modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Fault, Gate, Reply, Transport};

const TOKEN: &str = "0123456789abcdef-s3cret";

/// The configuration of a scripted server that first runs this shell script. `$F` is a folder for
/// files.
fn config(server: &Backend, script: &str, folder: &TempFile, more: Value) -> String {
    let entry: Value = serde_json::from_str(&format!("{{{}}}", server.entry("only"))).unwrap();
    let mut entry = entry["only"].clone();
    let own = [entry["command"].clone(), entry["args"][0].clone()];
    entry["command"] = json!("sh");
    entry["args"] = json!([
        "-c",
        format!("{script}\nexec \"$0\" \"$@\""),
        own[0],
        own[1],
        entry["args"].get(1)
    ]);
    entry["args"]
        .as_array_mut()
        .unwrap()
        .retain(|argument| !argument.is_null());
    entry["env"] = json!({ "F": folder.path() });
    entry
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({ "mcpServers": { "only": entry }, "timeouts": { "drain": "1s" }, "x-limits": "processStop=1s" })
        .to_string()
}

struct Running {
    child: Child,
    mcp: std::net::SocketAddr,
    logs: [ShownLog; 2],
    _config: TempFile,
}

/// Starts the gateway with secrets in its environment, and waits until its server has answered a
/// call.
async fn start(config_text: &str, change: impl FnOnce(&mut Command)) -> Running {
    start_program(fanlight(), config_text, change).await
}

async fn start_program(
    mut command: Command,
    config_text: &str,
    change: impl FnOnce(&mut Command),
) -> Running {
    let config = TempFile::new("yaml", config_text);
    command
        .args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--config",
        ])
        .arg(config.path());
    command.envs([
        ("FANLIGHT_ADMIN_TOKEN", TOKEN),
        ("OTEL_EXPORTER_OTLP_HEADERS", TOKEN),
        ("TESTED_REGION", "r"),
    ]);
    command
        .env("LC_TIME", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    change(&mut command);
    let mut child = command.spawn().unwrap();
    let out = Log::print("out", child.stdout.take().unwrap());
    let err = Log::print("err", child.stderr.take().unwrap());
    let mcp = out.address("listening on http://", "/mcp").await;
    let running = Running {
        child,
        mcp,
        logs: [out, err],
        _config: config,
    };
    assert!(running.call().await.contains("result"));
    running
}

impl Running {
    async fn call(&self) -> String {
        post_modern(
            self.mcp,
            &modern_request("1", "tools/call", r#""name":"t""#, ""),
        )
        .await
        .messages()
        .await
        .1
    }
}

fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// The process ids in a file, once it has `count` of them.
async fn pids(folder: &TempFile, file: &str, count: usize) -> Vec<u32> {
    within("the process ids", async {
        loop {
            let text = fs::read_to_string(folder.path().join(file)).unwrap_or_default();
            let pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
            if pids.len() >= count {
                return pids;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}

fn variables(folder: &TempFile) -> Vec<String> {
    let text = fs::read_to_string(folder.path().join("env")).unwrap();
    // The shell adds these variables.
    let own = |line: &&str| {
        !["PWD=", "OLDPWD=", "SHLVL=", "_="]
            .iter()
            .any(|name| line.starts_with(name))
    };
    text.lines()
        .filter(own)
        .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
        .collect()
}

#[tokio::test]
async fn child_inherits_no_secret() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    for (more, inherited) in [
        (json!({}), None),
        (json!({"inheritEnv": ["TESTED_*"]}), Some("TESTED_REGION")),
    ] {
        let folder = TempFile::folder();
        let text = config(&server, "env > \"$F/env\"", &folder, more);
        let mut gateway = start(&text, |_| ()).await;
        let names = variables(&folder);
        let common = [
            "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "F",
        ];
        let is_known = |name: &String| common.contains(&name.as_str()) || name.starts_with("LC_");
        let others: Vec<_> = names
            .iter()
            .filter(|name| !is_known(name))
            .map(String::as_str)
            .collect();
        assert_eq!(others, inherited.into_iter().collect::<Vec<_>>());
        assert!(
            ["PATH", "LC_TIME", "F"]
                .iter()
                .all(|name| names.iter().any(|own| own == name)),
            "{names:?}"
        );
        signal_and_wait(&mut gateway.child, Signal::TERM).await;
    }
}

#[tokio::test]
async fn child_that_inherits_everything_gets_no_secret_of_fanlight() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    for inherit in [json!(["*"]), json!(true), json!(["F*", "O*", "T*"])] {
        let folder = TempFile::folder();
        let text = config(
            &server,
            "env > \"$F/env\"",
            &folder,
            json!({ "inheritEnv": inherit }),
        );
        let own = [
            ("FANLIGHT_KEY", TOKEN),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", TOKEN),
        ];
        let add = |command: &mut Command| {
            command.envs(own);
        };
        let mut gateway = start(&text, add).await;
        let names = variables(&folder);
        assert!(
            names.iter().any(|name| name == "TESTED_REGION"),
            "{names:?}"
        );
        assert!(
            !names
                .iter()
                .any(|name| name.starts_with("FANLIGHT_") || name.ends_with("_HEADERS")),
            "{names:?}"
        );
        assert!(
            !fs::read_to_string(folder.path().join("env"))
                .unwrap()
                .contains(TOKEN)
        );
        signal_and_wait(&mut gateway.child, Signal::TERM).await;
    }
}

#[tokio::test]
async fn child_whose_guard_is_killed_ends_with_it() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    let folder = TempFile::folder();
    let script = "echo $$ >> \"$F/server\"; echo $PPID >> \"$F/guard\"";
    let mut gateway = start(&config(&server, script, &folder, json!({})), |_| ()).await;
    let (child, guard) = (
        pids(&folder, "server", 1).await[0],
        pids(&folder, "guard", 1).await[0],
    );
    kill(guard, Signal::KILL);
    assert_gone(child).await;
    signal_and_wait(&mut gateway.child, Signal::TERM).await;
}

/// A server of the same user looks for secrets in `/proc`. Root may read everything, so the gateway
/// runs as another user.
#[tokio::test]
async fn child_cannot_read_the_environment_of_its_ancestors() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    let folder = TempFile::folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let script = r#"p=$PPID
        while [ "$p" -gt 1 ]; do
            echo "$p" >> "$F/seen"
            [ "$p" = "$(cat "$F/test")" ] && break
            cat "/proc/$p/environ" "/proc/$p/mem" "/proc/$p/maps" >> "$F/read" 2>/dev/null
            read -r _ _ _ p _ < "/proc/$p/stat"
        done"#;
    fs::write(folder.path().join("test"), std::process::id().to_string()).unwrap();
    let as_other = |command: &mut Command| {
        if rustix::process::getuid().is_root() {
            command.uid(65534).gid(65534);
        }
    };
    // The other user cannot reach the build folder. `cp` makes the copies, since a program cannot
    // start while a process forked by another test has it open for writing.
    let copy = |program: &Path| {
        let copy = folder.path().join(program.file_name().unwrap());
        assert!(
            std::process::Command::new("cp")
                .arg(program)
                .arg(&copy)
                .status()
                .unwrap()
                .success()
        );
        copy
    };
    let (own, copied) = (programs::scripted_stdio(), copy(programs::scripted_stdio()));
    let text = config(&server, script, &folder, json!({}))
        .replace(own.to_str().unwrap(), copied.to_str().unwrap());
    let mut gateway =
        start_program(fanlight_at(&copy(programs::fanlight())), &text, as_other).await;
    let seen = pids(&folder, "seen", 2).await;
    assert!(seen.contains(&gateway.child.id().unwrap()), "{seen:?}");
    assert_eq!(
        fs::read_to_string(folder.path().join("read")).unwrap_or_default(),
        ""
    );
    signal_and_wait(&mut gateway.child, Signal::TERM).await;
}

/// Starts processes that leave the process group. Only SIGKILL ends two of them; one has lost its
/// parent.
const LEAVE: &str = r#"
    setsid sh -c 'trap "" TERM HUP; echo $$ >> "$F/pids"; while :; do sleep 1; done' > /dev/null 2>&1 &
    (setsid sh -c 'trap "" TERM HUP; echo $$ >> "$F/pids"; while :; do sleep 1; done' &)
    setsid sleep 1000 & echo $! >> "$F/pids"
    echo $$ >> "$F/pids"
    while [ "$(wc -l < "$F/pids")" -lt 4 ]; do sleep 0.01; done"#;

#[tokio::test]
async fn descendants_in_sessions_of_their_own_end_with_the_gateway() {
    for (signal, stubborn) in [
        (Signal::TERM, false),
        (Signal::KILL, false),
        (Signal::TERM, true),
        (Signal::KILL, true),
    ] {
        let server = backend(Era::Modern, Transport::Stdio).await;
        let folder = TempFile::folder();
        let mut text = config(&server, LEAVE, &folder, json!({}));
        if stubborn {
            // The server ignores the end of its input and is stopped as well.
            let mut value: Value = serde_json::from_str(&text).unwrap();
            value["mcpServers"]["only"]["args"]
                .as_array_mut()
                .unwrap()
                .push(json!("stubborn"));
            text = value.to_string();
        }
        let mut gateway = start(&text, |_| ()).await;
        let pids = pids(&folder, "pids", 4).await;
        if stubborn {
            kill(pids[3], Signal::STOP);
        }
        signal_and_wait(&mut gateway.child, signal).await;
        for pid in pids {
            assert_gone(pid).await;
        }
    }
}

#[tokio::test]
async fn descendants_end_with_their_server() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    let folder = TempFile::folder();
    let mut gateway = start(&config(&server, LEAVE, &folder, json!({})), |_| ()).await;
    let first = pids(&folder, "pids", 4).await;
    kill(server.children(1).await[0], Signal::KILL);
    for pid in first {
        assert_gone(pid).await;
    }
    signal_and_wait(&mut gateway.child, Signal::TERM).await;
}

#[tokio::test]
async fn end_of_a_process_is_reported_as_it_was() {
    for (script, status) in [
        ("exit 3", "exit status: 3"),
        ("kill -9 $$", "signal: 9"),
        ("kill -SEGV $$", "signal: 11"),
    ] {
        let server = backend(Era::Modern, Transport::Stdio).await;
        let folder = TempFile::folder();
        let file = TempFile::new("yaml", &config(&server, script, &folder, json!({})));
        let output = within(
            "check",
            fanlight()
                .arg("check")
                .arg("--config")
                .arg(file.path())
                .output(),
        )
        .await
        .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(status), "{text}");
    }
}

#[tokio::test]
async fn command_that_cannot_be_started_is_named() {
    let folder = TempFile::folder();
    let plain = folder.path().join("plain");
    fs::write(&plain, "").unwrap();
    for (entry, reason) in [
        (
            json!({"command": "no-such-command-at-all"}),
            "no such command",
        ),
        (
            json!({"command": folder.path().join("missing")}),
            "no such command",
        ),
        (json!({"command": plain}), "ermission denied"),
        (
            json!({"command": "sh", "cwd": folder.path().join("missing")}),
            "working directory does not exist",
        ),
        (
            json!({"command": "sh", "env": {"PATH": "/nowhere"}}),
            "no such command",
        ),
    ] {
        let file = TempFile::new("yaml", &json!({"mcpServers": {"only": entry}}).to_string());
        let output = within(
            "check",
            fanlight()
                .arg("check")
                .arg("--config")
                .arg(file.path())
                .output(),
        )
        .await
        .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("cannot start") && text.contains(reason),
            "{reason}: {text}"
        );
    }
}

/// Calls until the server has been restarted; returns the first error.
async fn replaced(gateway: &Running, server: &Backend, starts: usize) -> String {
    let first = gateway.call().await;
    within("a result", async {
        while !gateway.call().await.contains("\"result\"") {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    server.children(starts).await;
    first
}

/// A configuration of this server with time-outs of half a second.
fn impatient(server: &Backend, script: &str, folder: &TempFile) -> String {
    let mut text: Value =
        serde_json::from_str(&config(server, script, folder, json!({"timeout": "500ms"}))).unwrap();
    text["x-limits"] = json!("processStop=1s,ping=500ms");
    text.to_string()
}

/// A gateway whose server process is stopped; also returns the process and the number of processes
/// so far.
async fn with_stopped_child(server: &Backend, folder: &TempFile) -> (Running, u32, usize) {
    let gateway = start(&impatient(server, "", folder), |_| ()).await;
    let stopped = server.received("tools/call")[0].process.unwrap();
    let starts = server.children(1).await.len();
    kill(stopped, Signal::STOP);
    (gateway, stopped, starts)
}

#[tokio::test]
async fn stopped_child_is_replaced_after_one_failed_call() {
    for era in [Era::Modern, Era::Legacy] {
        let server = backend(era, Transport::Stdio).await;
        let folder = TempFile::folder();
        let (mut gateway, stopped, starts) = with_stopped_child(&server, &folder).await;
        let error = replaced(&gateway, &server, starts + 1).await;
        assert!(error.contains("did not answer within"), "{era:?}: {error}");
        assert_gone(stopped).await;
        signal_and_wait(&mut gateway.child, Signal::TERM).await;
    }
}

/// The call fills the pipe, so that neither the call nor the ping can be written whole.
#[tokio::test]
async fn child_that_reads_no_more_is_replaced_after_one_failed_call() {
    for era in [Era::Modern, Era::Legacy] {
        let server = backend(era, Transport::Stdio).await;
        let folder = TempFile::folder();
        let (mut gateway, stopped, starts) = with_stopped_child(&server, &folder).await;
        let large = format!(
            r#""name":"t","arguments":{{"a":"{}"}}"#,
            "x".repeat(1 << 20)
        );
        let request = modern_request("1", "tools/call", &large, "");
        let error = post_modern(gateway.mcp, &request).await.messages().await.1;
        assert!(error.contains("did not answer within"), "{era:?}: {error}");
        replaced(&gateway, &server, starts + 1).await;
        let calls = server.received("tools/call");
        assert!(
            calls.iter().all(|call| call.text.len() < 1 << 20),
            "{era:?}: the failed call was sent again"
        );
        assert_gone(stopped).await;
        signal_and_wait(&mut gateway.child, Signal::TERM).await;
    }
}

/// The process of one client's session is replaced within the session; other processes stay.
#[tokio::test]
async fn stopped_child_of_a_session_is_replaced_within_the_session() {
    let server = backend(Era::Legacy, Transport::Stdio).await;
    let folder = TempFile::folder();
    let mut gateway = start(&impatient(&server, "", &folder), |_| ()).await;
    // A client with elicitation gets a process of its own.
    let capabilities = r#"{"elicitation":{}}"#;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = LegacySession::open_with(gateway.mcp, NEWEST_LEGACY, capabilities).await;
        let answer = session_call(&session).await;
        assert!(answer.contains("\"result\""), "{answer}");
        let process = server
            .received("tools/call")
            .last()
            .unwrap()
            .process
            .unwrap();
        sessions.push((session, process));
    }
    let [(first, stopped), (second, running)] = &sessions[..] else {
        unreachable!("two")
    };
    assert_ne!(stopped, running);
    kill(*stopped, Signal::STOP);
    let error = session_call(first).await;
    assert!(error.contains("did not answer within"), "{error}");
    within("a result", async {
        while !session_call(first).await.contains("\"result\"") {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_gone(*stopped).await;
    assert!(session_call(second).await.contains("\"result\""));
    assert_eq!(
        server.received("tools/call").last().unwrap().process,
        Some(*running)
    );
    signal_and_wait(&mut gateway.child, Signal::TERM).await;
}

async fn session_call(session: &LegacySession) -> String {
    session
        .post(&legacy_request("1", "tools/call", r#""name":"t""#))
        .await
        .messages()
        .await
        .1
}

/// The process answers pings but not calls: it is slow, and stays.
#[tokio::test]
async fn child_that_answers_a_ping_is_kept() {
    let server = backend(Era::Legacy, Transport::Stdio).await;
    server.on("ping", Reply::result("{}"));
    let folder = TempFile::folder();
    let mut gateway = start(
        &config(&server, "", &folder, json!({"timeout": "300ms"})),
        |_| (),
    )
    .await;
    let children = server.children(1).await;
    server.on("tools/call", Reply::fault(Fault::Hang));
    within("pings", async {
        // The answer to a ping may arrive during the next call, which then does not count as a
        // failure.
        while server.received("ping").len() < 3 {
            assert!(gateway.call().await.contains("did not answer within"));
        }
    })
    .await;
    assert_eq!(server.children(1).await, children);
    signal_and_wait(&mut gateway.child, Signal::TERM).await;
}

/// Output without a line end, and lines that are no messages, cost a bounded time.
#[tokio::test]
async fn child_that_floods_its_output_is_ended() {
    for flood in ["tr '\\0' x < /dev/zero", "yes"] {
        let server = backend(Era::Modern, Transport::Stdio).await;
        let folder = TempFile::folder();
        // The first process floods once the file exists; the next one is well-behaved.
        let script = format!(
            "(while [ ! -e \"$F/go\" ]; do sleep 0.01; done; rm \"$F/go\"; echo $$ >> \"$F/pids\"; exec {flood}) &"
        );
        let mut text: Value =
            serde_json::from_str(&config(&server, &script, &folder, json!({}))).unwrap();
        text["x-limits"] = json!("processStop=1s,invalidOutput=1MiB,message=1MiB");
        let mut gateway = start(&text.to_string(), |_| ()).await;
        let first = server.children(1).await[0];
        fs::write(folder.path().join("go"), "").unwrap();
        gateway.logs[1].line_with("given up").await;
        gateway.logs[1]
            .line_with("without a message among them")
            .await;
        assert_gone(first).await;
        replaced(&gateway, &server, 2).await;
        signal_and_wait(&mut gateway.child, Signal::TERM).await;
    }
}

/// A process that floods standard error blocks on its pipe, so it does not occupy a processor.
#[tokio::test]
async fn child_that_floods_standard_error_is_slowed_down() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    let folder = TempFile::folder();
    let mut text: Value =
        serde_json::from_str(&config(&server, "yes >&2 &", &folder, json!({}))).unwrap();
    text["x-limits"] = json!("processStop=1s,processLog=64KiB");
    let mut gateway = start(&text.to_string(), |_| ()).await;
    let ticks = || {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", gateway.child.id().unwrap())).unwrap();
        let fields: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|n| n.parse().unwrap())
            .collect();
        fields[0] + fields[1]
    };
    let before = ticks();
    // A bound on processor time needs some time to pass.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let used = ticks() - before;
    assert!(used < 150, "{used} hundredths of a second in 3 s");
    assert!(gateway.call().await.contains("\"result\""));
    signal_and_wait(&mut gateway.child, Signal::TERM).await;
}

/// Concurrent calls of a client with roots, and their answers.
async fn calls_at_once(mcp: std::net::SocketAddr, count: usize) {
    let request = modern_request_with(r#"{"roots":{}}"#, "1", "tools/call", r#""name":"t""#, "");
    let calls = (0..count).map(|_| async { post_modern(mcp, &request).await.messages().await.1 });
    for answer in futures_util::future::join_all(calls).await {
        assert!(answer.contains("result"), "{answer}");
    }
}

/// Calls of one client share its process, and wait for it to start.
#[tokio::test]
async fn calls_at_once_wait_for_a_process_that_is_free_before_another_has_started() {
    let server = backend(Era::Legacy, Transport::Stdio).await;
    let folder = TempFile::folder();
    let text = config(
        &server,
        "echo $$ >> \"$F/pids\"; sleep 3",
        &folder,
        json!({}),
    );
    let mut gateway = start(&text, |_| ()).await;
    for _ in 0..2 {
        calls_at_once(gateway.mcp, 8).await;
        assert_eq!(
            pids(&folder, "pids", 3).await.len(),
            3,
            "of the gateway itself, of its lists, and of the calls"
        );
    }
    signal_and_wait(&mut gateway.child, Signal::TERM).await;
}

#[tokio::test]
async fn call_does_not_wait_for_a_process_that_is_in_use_for_longer_than_a_start() {
    let server = backend(Era::Legacy, Transport::Stdio).await;
    let mut gateway = start(&config(&server, "", &TempFile::folder(), json!({})), |_| ()).await;
    let gate = Gate::new();
    server.on(
        "tools/call",
        Reply::result(Era::Legacy.complete(r#""content":[]"#)).gated(&gate),
    );
    tokio::join!(calls_at_once(gateway.mcp, 4), async {
        gate.reached(4).await;
        gate.open();
    });
    signal_and_wait(&mut gateway.child, Signal::TERM).await;
}
