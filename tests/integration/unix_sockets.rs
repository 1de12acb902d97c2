//! Listeners on Unix sockets.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::harness::{Log, ShownLog, TempFile, fanlight, signal_and_wait, within};
use crate::raw_client::{Connection, LISTEN, Response, modern_request, post_modern_on};
use crate::scripted::{Backend, Era, Reply, Transport, config};

struct Running {
    child: Child,
    log: ShownLog,
    err: ShownLog,
    folder: TempFile,
    _backend: Backend,
}

impl Running {
    /// Starts a process whose configuration is these options, each followed by a comma.
    async fn start(options: &str) -> Self {
        let (folder, backend) = (
            TempFile::folder(),
            Backend::start(Era::Modern, Transport::Http).await,
        );
        backend.offers_tools(&["t"]);
        backend.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)),
        );
        let file = folder.path().join("fanlight.yaml");
        fs::write(&file, text(options, &backend)).unwrap();
        let mut command = fanlight();
        command.args(["run", "--no-watch", "--config"]).arg(&file);
        let (child, log, err) = spawn(command);
        Self {
            child,
            log,
            err,
            folder,
            _backend: backend,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Reloads with these options.
    async fn reload(&mut self, options: &str) {
        let before = self.err.text().matches("configuration reloaded").count();
        fs::write(self.path("fanlight.yaml"), text(options, &self._backend)).unwrap();
        let pid =
            rustix::process::Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        self.err.line_with("configuration reloaded").await;
        assert_eq!(before, 0, "one reload for each process");
    }

    async fn stop(mut self) {
        assert!(
            signal_and_wait(&mut self.child, rustix::process::Signal::TERM)
                .await
                .success()
        );
    }
}

fn text(options: &str, backend: &Backend) -> String {
    format!("{{{options}{}", &config(&[backend.entry("only")])[1..])
}

fn spawn(mut command: Command) -> (Child, ShownLog, ShownLog) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let log = Log::print("out", child.stdout.take().unwrap());
    let err = Log::print("err", child.stderr.take().unwrap());
    (child, log, err)
}

async fn connection(path: &Path, host: &str) -> Connection {
    let stream = within("a connection", UnixStream::connect(path))
        .await
        .unwrap();
    Connection::at_host(stream, host)
}

async fn call(path: &Path, host: &str) -> Response {
    post_modern_on(
        connection(path, host).await,
        &modern_request("1", "tools/call", r#""name":"t""#, ""),
    )
    .await
}

async fn get(path: &Path, target: &str) -> (u16, String) {
    let mut connection = connection(path, "localhost").await;
    connection.request("GET", target, &[], b"").await;
    let mut response = connection.response().await;
    (response.status, response.text().await)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

const BOTH: &str = r#""listen":"unix:clients.sock","admin":{"listen":"unix:admin.sock"},"#;

#[tokio::test]
async fn clients_and_operators_are_served_on_unix_sockets() {
    let running = Running::start(BOTH).await;
    let (clients, operators) = (running.path("clients.sock"), running.path("admin.sock"));
    let line = running.log.line_with("listening on").await;
    assert!(
        line.contains(&format!("unix:{}", clients.display())) && line.contains("/mcp"),
        "{line}"
    );
    running
        .log
        .line_with(&format!("admin on unix:{}", operators.display()))
        .await;
    assert_eq!((mode(&clients), mode(&operators)), (0o660, 0o660));
    assert!(
        call(&clients, "localhost")
            .await
            .messages()
            .await
            .1
            .contains("result")
    );
    assert_eq!(call(&clients, "evil.example.com").await.status, 403);
    assert_eq!(get(&operators, "/healthz").await, (200, "ok".to_owned()));
    assert_eq!(get(&operators, "/api/overview").await.0, 200);

    let request = modern_request(
        "2",
        LISTEN,
        r#""notifications":{"toolsListChanged":true}"#,
        "",
    );
    let mut stream = post_modern_on(connection(&clients, "localhost").await, &request).await;
    assert!(
        stream
            .event()
            .await
            .unwrap()
            .unwrap()
            .contains("acknowledged")
    );
    running.stop().await;
    assert!(
        within("the end of the stream", stream.event())
            .await
            .unwrap()
            .unwrap()
            .contains("complete")
    );
    assert!(
        !clients.exists() && !operators.exists(),
        "the files are removed"
    );
}

#[tokio::test]
async fn abandoned_socket_is_replaced_and_one_in_use_is_not() {
    let first = Running::start(BOTH).await;
    first.log.line_with("listening on").await;
    let path = first.path("clients.sock");
    let mut command = fanlight();
    let address = format!("unix:{}", path.display());
    command
        .args(["run", "--admin", "off", "--listen", &address, "--config"])
        .arg(first.path("fanlight.yaml"));
    let output = within("the end", command.stdin(Stdio::null()).output())
        .await
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && err.contains("another process listens there"),
        "{err}"
    );
    assert!(
        call(&path, "localhost")
            .await
            .messages()
            .await
            .1
            .contains("result"),
        "the first goes on"
    );

    // The killed process leaves the socket file.
    let Running {
        mut child,
        folder,
        _backend,
        ..
    } = first;
    signal_and_wait(&mut child, rustix::process::Signal::KILL).await;
    assert!(path.exists());
    let mut command = fanlight();
    command
        .args(["run", "--config"])
        .arg(folder.path().join("fanlight.yaml"));
    let (mut child, log, _err) = spawn(command);
    log.line_with("listening on").await;
    assert!(
        call(&path, "localhost")
            .await
            .messages()
            .await
            .1
            .contains("result")
    );
    assert!(
        signal_and_wait(&mut child, rustix::process::Signal::TERM)
            .await
            .success()
    );
}

#[tokio::test]
async fn listener_moves_between_unix_sockets_and_ports() {
    let mut running = Running::start(BOTH).await;
    running.log.line_with("listening on").await;
    let (old, new) = (running.path("clients.sock"), running.path("new.sock"));
    let open = connection(&old, "localhost").await;
    running
        .reload(r#""listen":"unix:new.sock","admin":{"listen":"127.0.0.1:0"},"#)
        .await;
    assert!(
        call(&new, "localhost")
            .await
            .messages()
            .await
            .1
            .contains("result")
    );
    assert_eq!(mode(&new), 0o660);
    assert!(!old.exists() && !running.path("admin.sock").exists());
    assert_eq!(within("the end of the connection", open.rest()).await, "");
    assert!(
        running.err.text().contains("127.0.0.1:"),
        "where operators are now"
    );
    running.stop().await;
    assert!(!new.exists());
}

#[tokio::test]
async fn tls_is_refused_on_a_unix_socket() {
    let running = Running::start(r#""listen":"unix:s","tls":{"cert":"c","key":"k"},"#).await;
    let line = running.err.line_with("Unix sockets have no TLS").await;
    assert!(line.contains("remove `tls`"), "{line}");
}

#[tokio::test]
async fn unix_socket_of_the_service_manager_is_served_and_kept() {
    let (folder, backend) = (
        TempFile::folder(),
        Backend::start(Era::Modern, Transport::Http).await,
    );
    backend.offers_tools(&["t"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let file = folder.path().join("fanlight.yaml");
    fs::write(&file, config(&[backend.entry("only")])).unwrap();
    let path = folder.path().join("passed.sock");
    let socket = UnixListener::bind(&path).unwrap();
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).unwrap();
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
        .arg(&file);
    let (mut child, log, _err) = spawn(command);
    log.line_with("listening on unix:").await;
    assert!(
        call(&path, "localhost")
            .await
            .messages()
            .await
            .1
            .contains("result")
    );
    assert!(
        signal_and_wait(&mut child, rustix::process::Signal::TERM)
            .await
            .success()
    );
    assert!(path.exists(), "it belongs to the service manager");
}
