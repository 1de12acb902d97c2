//! The dialogue between Fanlight and a service manager, and two processes at one address.

use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::*;
use crate::harness::{Log, ShownLog, TempFile, fanlight, signal_and_wait, within};
use crate::scripted::config;

struct Running {
    child: Child,
    log: ShownLog,
    _err: ShownLog,
}

fn start(mut command: Command) -> Running {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = Log::print("out", child.stdout.take().unwrap());
    let _err = Log::print("err", child.stderr.take().unwrap());
    Running { child, log, _err }
}

async fn calls_succeed(mcp: std::net::SocketAddr) -> bool {
    let request = modern_request("1", "tools/call", r#""name":"t""#, "");
    post_modern(mcp, &request)
        .await
        .messages()
        .await
        .1
        .contains("result")
}

#[tokio::test]
async fn service_manager_is_notified() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let (folder, file) = (
        TempFile::folder(),
        TempFile::new("yaml", &config(&[only.entry("only")])),
    );
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut command = fanlight();
    command
        .args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--config",
        ])
        .arg(file.path());
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .env_remove("WATCHDOG_PID");
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
    let pid =
        rustix::process::Pid::from_raw(running.child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    assert!(until("RELOADING=1").await.contains("MONOTONIC_USEC="));
    until("READY=1").await;
    let (status, _) = tokio::join!(
        signal_and_wait(&mut running.child, Signal::TERM),
        until("STOPPING=1")
    );
    assert!(status.success());
}

/// Starts a process with a socket of the service manager, which the test plays.
fn activated(socket: &TcpListener, config: &std::path::Path) -> Running {
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).unwrap();
    // Some shells do not know file descriptors above 9.
    let mut command = Command::new("bash");
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec \"$0\" \"$@\" 3<&{}",
        socket.as_raw_fd()
    );
    command
        .kill_on_drop(true)
        .args(["-c", &script])
        .arg(fanlight_testkit::programs::fanlight());
    command
        .args(["run", "--admin", "off", "--config"])
        .arg(config);
    start(command)
}

#[tokio::test]
async fn socket_of_the_service_manager_is_served() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let file = TempFile::new("yaml", &config(&[only.entry("only")]));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut running = activated(&socket, file.path());
    let mcp = running.log.address("listening on http://", "/mcp").await;
    assert_eq!(mcp, address);
    // The service manager holds the socket, so connections wait for the next process.
    assert!(calls_succeed(mcp).await);
    assert!(
        signal_and_wait(&mut running.child, Signal::TERM)
            .await
            .success()
    );
    drop(socket);
}

/// Clients that open a new connection for each call until they are stopped. A failed call fails the
/// test.
struct Clients {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    running: Vec<JoinHandle<()>>,
}

impl Clients {
    fn start(mcp: std::net::SocketAddr) -> Self {
        let (stop, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |_| {
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    assert!(calls_succeed(mcp).await);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let running = (0..8).map(client).collect();
        Self {
            stop,
            calls,
            running,
        }
    }

    /// Waits for fifty more calls.
    async fn proceed(&self) {
        let enough = self.calls.load(Ordering::Relaxed) + 50;
        within("calls", async {
            while self.calls.load(Ordering::Relaxed) < enough
                && self.running.iter().all(|client| !client.is_finished())
            {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.running {
            client.await.expect("no call fails");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_the_same_socket_follow_each_other_without_a_lost_call() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let file = TempFile::new("yaml", &config(&[only.entry("only")]));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let mcp = socket.local_addr().unwrap();
    let mut current = activated(&socket, file.path());
    current.log.address("listening on http://", "/mcp").await;
    let clients = Clients::start(mcp);
    for _ in 0..4 {
        clients.proceed().await;
        assert!(
            signal_and_wait(&mut current.child, Signal::TERM)
                .await
                .success()
        );
        current = activated(&socket, file.path());
    }
    clients.proceed().await;
    clients.stop().await;
}
