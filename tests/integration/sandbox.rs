//! The confinement of a server's process: files, ports, memory, processes, open files, the user,
//! its privileges, and the processes that it can signal.
//!
//! If the kernel has no Landlock, its tests check that the server is refused.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::{assert_gone, backend};
use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{Connection, modern_request, post_modern};
use crate::scripted::{Era, Transport};
use fanlight_testkit::programs::sandbox_escape;

const SYSTEM: [&str; 6] = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];

async fn get(gateway: &Gateway, path: &str) -> Value {
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", path, &[], b"").await;
    serde_json::from_str(&connection.response().await.text().await).unwrap()
}

/// Runs this shell script as a sandboxed server, and returns its output lines until `end`.
async fn lines_of(script: &str, folder: &TempFile, sandbox: Value) -> Vec<String> {
    let script = format!("{{ {script}\n}} >&2; echo end >&2; exec sleep 1000");
    let entry = json!({
        "command": "bash", "args": ["-c", script], "env": { "F": folder.path() }, "sandbox": sandbox,
    });
    let config =
        json!({ "mcpServers": { "only": entry }, "x-limits": "startAttempts=1,processStop=1s" });
    lines_with(Gateway::start(&config.to_string()).await).await
}

/// The lines that the server has written until `end`.
async fn lines_with(gateway: Gateway) -> Vec<String> {
    let lines = within("the end of the script", async {
        loop {
            let log = get(&gateway, "/api/servers/only/log").await;
            let lines = log["lines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line["text"].as_str().unwrap().to_owned());
            let lines: Vec<String> = lines.collect();
            if lines
                .iter()
                .any(|line| line == "end" || line.starts_with("cannot start"))
            {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(gateway.terminate().await.success());
    lines
}

/// Whether the kernel cannot enforce the sandbox, in which case the server must not have been
/// started.
fn is_refused_by_the_kernel(lines: &[String]) -> bool {
    let is_refused = lines
        .iter()
        .any(|line| line.starts_with("cannot start: sandbox.landlock"));
    if is_refused {
        assert!(!lines.iter().any(|line| line == "end"), "{lines:?}");
        println!("skipped: {}", lines[0]);
    }
    is_refused
}

fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|found| found == line)
}

#[tokio::test]
async fn files_outside_of_the_sandbox_cannot_be_reached() {
    let folder = TempFile::folder();
    for part in ["read", "write"] {
        fs::create_dir(folder.path().join(part)).unwrap();
    }
    fs::write(folder.path().join("secret"), "s3cret").unwrap();
    fs::write(folder.path().join("read/file"), "known").unwrap();
    std::os::unix::fs::symlink("../secret", folder.path().join("write/link")).unwrap();
    let script = r#"
        cat "$F/read/file"; echo
        echo new > "$F/write/file" && cat "$F/write/file"
        : > /dev/null && echo null
        cat "$F/secret"; cat "$F/write/link"; cat "$F/read/../secret"; ls "$F"
        cat "/proc/$PPID/environ" | tr '\0' '\n'
        echo x > "$F/read/file"; echo x >> "$F/read/file"; truncate -s 0 "$F/read/file"
        rm "$F/read/file"; mv "$F/read/file" "$F/write/moved"; ln "$F/secret" "$F/write/hard"; mkdir "$F/dir"
        (setsid sh -c 'cat "$F/secret"')"#;
    let mut read = SYSTEM.map(|path| json!(path)).to_vec();
    read.extend([
        json!(folder.path().join("read")),
        json!(folder.path().join("nothing")),
    ]);
    let sandbox = json!({ "landlock": { "read": read, "write": [folder.path().join("write")] } });
    let lines = lines_of(script, &folder, sandbox).await;
    if is_refused_by_the_kernel(&lines) {
        return;
    }
    for line in ["known", "new", "null", "end"] {
        assert!(has(&lines, line), "{line:?} is missing: {lines:#?}");
    }
    assert!(
        !lines
            .iter()
            .any(|line| line.contains("s3cret") || line.starts_with("PATH=") || line == "secret"),
        "{lines:#?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("nothing does not exist")),
        "{lines:#?}"
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("read/file")).unwrap(),
        "known"
    );
    for made in ["write/moved", "write/hard", "dir"] {
        assert!(!folder.path().join(made).exists(), "{made}");
    }
}

#[tokio::test]
async fn ports_outside_of_the_sandbox_cannot_be_reached() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(": < /dev/tcp/127.0.0.1/{port} && echo connected");
    for (allowed, is_connected) in [
        (json!(null), true),
        (json!([]), false),
        (json!([port.to_string()]), true),
    ] {
        let sandbox = json!({ "landlock": { "connect": allowed } });
        let lines = lines_of(&script, &TempFile::folder(), sandbox).await;
        if is_refused_by_the_kernel(&lines) {
            return;
        }
        assert_eq!(
            has(&lines, "connected"),
            is_connected,
            "{allowed}: {lines:#?}"
        );
    }
}

/// The output of [`sandbox_escape`] in a sandbox.
async fn escape(arguments: &str, sandbox: Value) -> Vec<String> {
    let script = format!("\"$E\" {arguments} | cat");
    lines_of(
        &script.replace("$E", &sandbox_escape().display().to_string()),
        &TempFile::folder(),
        with_escape(sandbox),
    )
    .await
}

/// Permits reading the test's program if files are restricted.
fn with_escape(mut sandbox: Value) -> Value {
    if let Some(landlock) = sandbox.get_mut("landlock") {
        let mut read = SYSTEM.map(|path| json!(path)).to_vec();
        read.push(json!(sandbox_escape()));
        landlock["read"] = json!(read);
    }
    sandbox
}

#[tokio::test]
async fn ports_cannot_be_reached_around_the_sandbox() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("connect {port}");
    let free = escape(&connect, json!({ "files": 64 })).await;
    assert!(
        has(&free, "tcp yes") && has(&free, "fast-open yes"),
        "{free:#?}"
    );
    let allowed = escape(
        &connect,
        json!({ "landlock": { "connect": [port.to_string()] } }),
    )
    .await;
    if is_refused_by_the_kernel(&allowed) {
        return;
    }
    assert!(
        has(&allowed, "tcp yes") && !has(&allowed, "mptcp yes"),
        "{allowed:#?}"
    );
    for landlock in [
        json!({ "connect": [] }),
        json!({ "connect": ["1"] }),
        json!({ "connect": [], "bind": [] }),
    ] {
        let lines = escape(&connect, json!({ "landlock": landlock })).await;
        for way in ["tcp", "mptcp", "fast-open"] {
            assert!(
                lines
                    .iter()
                    .any(|line| line.starts_with(&format!("{way} no"))),
                "{way} {landlock}: {lines:#?}"
            );
        }
    }
}

#[tokio::test]
async fn server_without_ports_to_listen_on_cannot_listen_on_any() {
    let free = escape("listen", json!({ "files": 64 })).await;
    assert!(has(&free, "tcp yes") && has(&free, "unix yes"), "{free:#?}");
    for landlock in [
        json!({ "bind": [] }),
        json!({ "connect": [], "bind": [] }),
        json!({ "bind": [], "connect": ["1"] }),
    ] {
        let lines = escape("listen", json!({ "landlock": landlock })).await;
        if is_refused_by_the_kernel(&lines) {
            return;
        }
        assert!(has(&lines, "unix yes"), "{landlock}: {lines:#?}");
        for way in ["tcp", "mptcp"] {
            assert!(
                lines
                    .iter()
                    .any(|line| line.starts_with(&format!("{way} no"))),
                "{way} {landlock}: {lines:#?}"
            );
        }
    }
}

#[tokio::test]
async fn server_in_a_sandbox_has_no_capabilities() {
    let script = "grep -E '^(Cap|NoNewPrivs)' /proc/self/status";
    let mut sandboxes = vec![json!({ "files": 64 })];
    if rustix::process::getuid().is_root() {
        sandboxes.push(json!({ "user": "games" }));
        sandboxes.push(json!({ "user": "root" }));
    }
    for sandbox in sandboxes {
        let lines = lines_of(script, &TempFile::folder(), sandbox).await;
        for set in ["Inh", "Prm", "Eff", "Amb"] {
            assert!(
                has(&lines, &format!("Cap{set}: 0000000000000000")),
                "{set}: {lines:#?}"
            );
        }
        // Only a privileged process can drop capabilities from this set; others get nothing from it
        // in any case.
        if rustix::process::getuid().is_root() {
            assert!(has(&lines, "CapBnd: 0000000000000000"), "{lines:#?}");
        }
        assert!(has(&lines, "NoNewPrivs: 1"), "{lines:#?}");
    }
}

#[tokio::test]
async fn server_in_a_sandbox_cannot_end_its_guard() {
    let script = format!(
        r#"{} end $PPID | cat
        for thread in $(ls /proc/$PPID/task); do kill -9 $thread && echo killed; done; [ -d /proc/$PPID ] && echo alive"#,
        sandbox_escape().display()
    );
    let entry = json!({
        "command": "bash", "args": ["-c", format!("{{ {script}\n}} >&2; echo end >&2; exec sleep 1000")],
        "sandbox": { "files": 64 },
    });
    let config =
        json!({ "mcpServers": { "only": entry }, "x-limits": "startAttempts=1,processStop=1s" })
            .to_string();
    let with_landlock = lines_with(Gateway::start(&config).await).await;
    let without = lines_with(Gateway::start_without_landlock(&config, false).await).await;
    for lines in [with_landlock, without] {
        for way in ["limit", "slow", "processors", "namespace", "signal"] {
            let is_refused = |line: &String| line.starts_with(&format!("{way} no"));
            assert!(lines.iter().any(is_refused), "{way}: {lines:#?}");
        }
        assert!(
            has(&lines, "own yes") && has(&lines, "thread yes"),
            "{lines:#?}"
        );
        assert!(has(&lines, "alive") && !has(&lines, "killed"), "{lines:#?}");
    }
}

#[tokio::test]
async fn abstract_sockets_of_others_cannot_be_reached() {
    let number = std::process::id();
    let name = format!("fanlight-test-{number}");
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let connect = format!("abstract {number}");
    let lines = escape(&connect, json!({ "landlock": {} })).await;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    if is_refused_by_the_kernel(&lines) || version < (Some(6), Some(12)) {
        println!("skipped: Linux {release} cannot confine abstract sockets");
        return;
    }
    let is_refused = |line: &String| line.starts_with("abstract no");
    assert!(lines.iter().any(is_refused), "{lines:#?}");
}

#[tokio::test]
async fn files_of_fanlight_in_a_folder_of_the_system_are_out_of_reach() {
    if !rustix::process::getuid().is_root() {
        return println!("skipped: only root can write to /etc");
    }
    let folder = tempfile::Builder::new()
        .prefix("fanlight-test-")
        .tempdir_in("/etc")
        .unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("own.env"), "SECRET=s3cret\n").unwrap();
    fs::write(path("server.env"), "OTHER=s3cret\n").unwrap();
    fs::create_dir(path("state")).unwrap();
    fs::set_permissions(path("state"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(path("state/lists"), "s3cret").unwrap();
    fs::write(path("public"), "known").unwrap();
    let script = r#"cat "$F/public"; echo; for file in fanlight.yaml own.env server.env state/lists; do cat "$F/$file"; done
        cat /etc/passwd > /dev/null && echo passwd"#;
    let entry = json!({
        "command": "bash", "args": ["-c", format!("{{ {script}\n}} >&2; echo end >&2; exec sleep 1000")],
        "env": { "F": folder.path() }, "envFile": "server.env", "sandbox": { "landlock": {} },
    });
    let config = json!({ "envFile": "own.env", "stateDir": "state", "mcpServers": { "only": entry }, "x-limits": "startAttempts=1,processStop=1s" });
    fs::write(path("fanlight.yaml"), format!("# s3cret\n{config}")).unwrap();
    let lines = lines_with(Gateway::start_at(path("fanlight.yaml")).await).await;
    if is_refused_by_the_kernel(&lines) {
        return;
    }
    assert!(has(&lines, "known") && has(&lines, "passwd"), "{lines:#?}");
    assert!(
        !lines.iter().any(|line| line.contains("s3cret")),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn memory_and_open_files_are_limited() {
    let script = r#"
        head -c 200000000 /dev/zero | tail -c 150000000 > /dev/null || echo no memory
        echo "files $(ulimit -Hn)"; ulimit -n 4096 || echo not raised"#;
    let lines = lines_of(
        script,
        &TempFile::folder(),
        json!({ "memory": "64MiB", "files": 60 }),
    )
    .await;
    assert!(
        has(&lines, "files 60") && has(&lines, "not raised"),
        "{lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.contains("memory")),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn server_runs_as_another_user_with_limited_processes() {
    if !rustix::process::getuid().is_root() {
        let lines = lines_of("id", &TempFile::folder(), json!({ "user": "0" })).await;
        assert!(
            lines[0].contains("only root can start processes of another user"),
            "{lines:?}"
        );
        return;
    }
    let folder = TempFile::folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("secret"), "s3cret").unwrap();
    fs::set_permissions(
        folder.path().join("secret"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let script = r#"
        echo "user $(id -un) groups $(id -G) home $HOME $USER"
        cat "$F/secret"; su -c id root < /dev/null
        (for i in $(seq 30); do sleep 2 & done; wait) || true
        echo "processes $(ulimit -Hu)""#;
    let sandbox = json!({ "user": "games", "processes": 12 });
    let lines = lines_of(script, &folder, sandbox).await;
    assert!(
        has(&lines, "user games groups 60 home /usr/games games"),
        "{lines:#?}"
    );
    assert!(lines.iter().any(|line| line.contains("fork")), "{lines:#?}");
    assert!(
        !lines
            .iter()
            .any(|line| line.contains("s3cret") || line.contains("uid=0")),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn sandbox_that_cannot_be_enforced_starts_nothing() {
    let mut cases = vec![(json!({ "user": "no-such-user-at-all" }), "there is no user")];
    if rustix::process::getuid().is_root() {
        cases.push((
            json!({ "processes": 5 }),
            "does not limit the processes of root",
        ));
        cases.push((
            json!({ "processes": 5, "user": "0" }),
            "does not limit the processes of root",
        ));
    }
    // The server's program itself is not readable.
    cases.push((
        json!({ "landlock": { "read": ["/etc"] } }),
        "sandbox.landlock",
    ));
    for (sandbox, reason) in cases {
        let folder = TempFile::folder();
        let lines = lines_of("touch \"$F/ran\"", &folder, sandbox).await;
        assert!(
            lines.iter().any(|line| line.contains(reason)),
            "{reason}: {lines:?}"
        );
        assert!(!folder.path().join("ran").exists());
    }
}

#[tokio::test]
async fn server_in_a_sandbox_is_called_and_ended_like_any_other() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    let (program, _) = server.command(&[]);
    let mut read = SYSTEM.map(str::to_owned).to_vec();
    read.push(program.parent().unwrap().display().to_string());
    let sandbox = json!({ "landlock": { "read": read }, "memory": "1GiB", "files": 64 });
    let entry = server.entry_with("only", &format!(r#""sandbox":{sandbox}"#));
    let gateway = Gateway::start(&format!(r#"{{"mcpServers":{{{entry}}}}}"#)).await;
    let answer = post_modern(
        gateway.mcp,
        &modern_request("1", "tools/call", r#""name":"t""#, ""),
    )
    .await
    .messages()
    .await
    .1;
    if answer.contains("\"error\"") {
        let log = get(&gateway, "/api/servers/only/log").await.to_string();
        assert!(
            log.contains("cannot start: sandbox.landlock"),
            "{answer} {log}"
        );
        return println!("skipped: {log}");
    }
    let children = server.started();
    assert!(gateway.terminate().await.success());
    for pid in children {
        assert_gone(pid).await;
    }
}

#[tokio::test]
async fn server_is_refused_on_a_kernel_without_landlock() {
    for is_disabled in [false, true] {
        for landlock in [
            json!({}),
            json!({ "read": [], "write": ["/"] }),
            json!({ "connect": [] }),
        ] {
            let folder = TempFile::folder();
            let entry = |sandbox: Value| {
                json!({
                    "command": "sh", "args": ["-c", "echo started >> \"$F/$0\"; exec sleep 1000", "mark"],
                    "env": { "F": folder.path() }, "sandbox": sandbox,
                })
            };
            // Other limits do not make up for the missing Landlock, and a server without Landlock
            // is not affected.
            let mut unconfined = entry(json!({ "files": 64 }));
            unconfined["args"][2] = json!("other");
            let confined = entry(json!({ "landlock": landlock, "files": 64 }));
            let config = json!({
                "mcpServers": { "confined": confined, "unconfined": unconfined }, "x-limits": "connect=5s,startAttempts=1,processStop=1s",
            });
            let gateway = Gateway::start_without_landlock(&config.to_string(), is_disabled).await;
            let error = within("the refusal", async {
                loop {
                    let server = get(&gateway, "/api/overview").await["backends"][0].take();
                    if let Some(error) = server["error"].as_str() {
                        return error.to_owned();
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
            assert!(
                error.contains("sandbox.landlock") && error.contains("Linux 6.2"),
                "{landlock}: {error}"
            );
            within("the other server", async {
                while !folder.path().join("other").exists() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
            // Calls do not start it with less confinement either.
            let body = modern_request("1", "tools/call", r#""name":"confined__t""#, "");
            let answer = post_modern(gateway.mcp, &body).await.messages().await.1;
            assert!(
                answer.contains("\"error\"") && !answer.contains("landlock"),
                "{answer}"
            );
            assert!(
                !folder.path().join("mark").exists(),
                "{is_disabled} {landlock}"
            );
            assert!(gateway.terminate().await.success());
        }
    }
}
