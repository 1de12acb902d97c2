//! What Fanlight and a service manager say to each other, and two processes at one address.

use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::Stdio;

use rustix::process::Signal;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};

use super::*;
use crate::harness::{Log, ShownLog, TempFile, fanlight, signal_and_wait, within};
use crate::scripted::config;

struct Running {
    child: Child,
    log: ShownLog,
    _err: ShownLog,
}

fn start(mut command: Command) -> Running {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let log = Log::shown("out", child.stdout.take().unwrap());
    let _err = Log::shown("err", child.stderr.take().unwrap());
    Running { child, log, _err }
}

async fn calls(mcp: std::net::SocketAddr) -> bool {
    let request = modern_request("1", "tools/call", r#""name":"t""#, "");
    post_modern(mcp, &request).await.messages().await.1.contains("result")
}

#[tokio::test]
async fn service_manager_is_notified() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let (folder, file) = (TempFile::folder(), TempFile::new("yaml", &config(&[only.entry("only")])));
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut command = fanlight();
    command.args(["run", "--listen", "127.0.0.1:0", "--admin", "off", "--config"]).arg(file.path());
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000").env_remove("WATCHDOG_PID");
    let mut running = start(command);
    let until = async |word: &str| {
        let mut buffer = [0; 512];
        within(word, async {
            loop {
                let length = socket.recv(&mut buffer).await.unwrap();
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if text.lines().any(|line| line.starts_with(word)) {
                    return text;
                }
            }
        })
        .await
    };
    until("READY=1").await;
    until("WATCHDOG=1").await;
    until("WATCHDOG=1").await;
    let pid = rustix::process::Pid::from_raw(running.child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    assert!(until("RELOADING=1").await.contains("MONOTONIC_USEC="));
    until("READY=1").await;
    let (status, _) = tokio::join!(signal_and_wait(&mut running.child, Signal::TERM), until("STOPPING=1"));
    assert!(status.success());
}

#[tokio::test]
async fn socket_of_the_service_manager_is_served() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let file = TempFile::new("yaml", &config(&[only.entry("only")]));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).unwrap();
    // Not every `sh` knows numbers of files above 9.
    let mut command = Command::new("bash");
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec \"$0\" \"$@\" 3<&{}",
        socket.as_raw_fd()
    );
    command.kill_on_drop(true).args(["-c", &script]).arg(fanlight_testkit::programs::fanlight());
    command.args(["run", "--admin", "off", "--config"]).arg(file.path());
    let mut running = start(command);
    let mcp = running.log.address("listening on http://", "/mcp").await;
    assert_eq!(mcp, address);
    // While the service manager has the socket, connections wait for the next process.
    assert!(calls(mcp).await);
    assert!(signal_and_wait(&mut running.child, Signal::TERM).await.success());
    drop(socket);
}

#[tokio::test]
async fn two_processes_listen_at_one_address() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let text = format!(r#"{},"reusePort":true}}"#, config(&[only.entry("only")]).strip_suffix('}').unwrap());
    let file = TempFile::new("yaml", &text);
    let command = |listen: &str| {
        let mut command = fanlight();
        command.args(["run", "--admin", "off", "--listen", listen, "--config"]).arg(file.path());
        command
    };
    let mut first = start(command("127.0.0.1:0"));
    let mcp = first.log.address("listening on http://", "/mcp").await;
    assert!(calls(mcp).await);
    let mut second = start(command(&mcp.to_string()));
    second.log.address("listening on http://", "/mcp").await;
    assert!(signal_and_wait(&mut first.child, Signal::TERM).await.success());
    assert!(calls(mcp).await, "by the second");
    assert!(signal_and_wait(&mut second.child, Signal::TERM).await.success());
}
