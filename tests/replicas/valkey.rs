//! A `valkey-server` process for a test.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::balancer::page;
use crate::group::until;
use crate::harness::{TempFile, within};
use crate::ports;

/// The user and password of gateways, as in docs/replicas.md.
pub(crate) const USER: &str = "fanlight:password";

/// A running server on which gateways have exactly the rights in docs/replicas.md. Dropping it
/// kills the process.
pub(crate) struct Valkey {
    pub(crate) address: SocketAddr,
    folder: TempFile,
    more: Vec<String>,
    child: Child,
}

impl Valkey {
    /// Starts a server that writes every change to its disk at once.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// [`Self::start`] with more arguments.
    pub(crate) async fn start_with(more: &[&str]) -> Self {
        let (address, folder) = (ports::free(), TempFile::folder());
        let more: Vec<_> = more.iter().map(|&argument| argument.to_owned()).collect();
        let child = started(address, &folder, &more).await;
        Self {
            address,
            folder,
            more,
            child,
        }
    }

    /// A cluster of two servers, each with half of the slots.
    pub(crate) async fn cluster() -> [Self; 2] {
        // By default, the bus uses the port plus 10,000, which may be taken.
        let buses = [
            ports::free().port().to_string(),
            ports::free().port().to_string(),
        ];
        let start = async |bus: &str| {
            let announced = ["--cluster-announce-ip", "127.0.0.1"];
            Self::start_with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                bus,
                announced[0],
                announced[1],
            ])
            .await
        };
        let servers = [start(&buses[0]).await, start(&buses[1]).await];
        servers[0].ask("CLUSTER ADDSLOTSRANGE 0 8191").await;
        servers[1].ask("CLUSTER ADDSLOTSRANGE 8192 16383").await;
        servers[0]
            .ask(&format!(
                "CLUSTER MEET 127.0.0.1 {} {}",
                servers[1].address.port(),
                buses[1]
            ))
            .await;
        for server in &servers {
            until("the cluster", async || {
                server
                    .ask("CLUSTER INFO")
                    .await
                    .contains("cluster_state:ok")
            })
            .await;
        }
        servers
    }

    /// A cluster of one server, which announces this port.
    pub(crate) async fn whole_cluster(port: u16) -> Self {
        let (bus, port) = (ports::free().port().to_string(), port.to_string());
        let announced = [
            "--cluster-announce-ip",
            "127.0.0.1",
            "--cluster-announce-port",
            &port,
        ];
        let more = [
            &["--cluster-enabled", "yes", "--cluster-port", &bus],
            &announced[..],
        ]
        .concat();
        let server = Self::start_with(&more).await;
        server.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
        until("the cluster", async || {
            server
                .ask("CLUSTER INFO")
                .await
                .contains("cluster_state:ok")
        })
        .await;
        server
    }

    /// A replica of another server.
    pub(crate) async fn replica_of(primary: &Self) -> Self {
        let port = primary.address.port().to_string();
        let server = Self::start_with(&["--replicaof", "127.0.0.1", &port]).await;
        until("the replica", async || {
            server
                .ask("INFO replication")
                .await
                .contains("master_link_status:up")
        })
        .await;
        server
    }

    /// The URL of the server's cluster.
    pub(crate) fn cluster_url(&self) -> String {
        format!("valkey+cluster://{USER}@{}", self.address)
    }

    /// The server's URL.
    pub(crate) fn url(&self) -> String {
        format!("valkey://{USER}@{}", self.address)
    }

    /// Kills the server, so that it can finish nothing.
    pub(crate) async fn kill(&mut self) {
        within("the end of valkey-server", self.child.kill())
            .await
            .unwrap();
    }

    /// Sends the process a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self
            .child
            .id()
            .and_then(|pid| Pid::from_raw(pid.try_into().unwrap()))
            .unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Restarts the server after [`Self::kill`], with the data that it has written, or with none.
    pub(crate) async fn start_again(&mut self, keeps_data: bool) {
        if !keeps_data {
            self.folder = TempFile::folder();
        }
        self.child = started(self.address, &self.folder, &self.more).await;
    }

    /// The commands that clients send during `done`.
    pub(crate) async fn sent_during(&self, done: impl Future<Output = ()>) -> Vec<String> {
        const END: &str = "that is all";
        let mut monitor = BufReader::new(TcpStream::connect(self.address).await.unwrap());
        monitor.write_all(b"MONITOR\r\n").await.unwrap();
        let mut lines = monitor.lines();
        assert_eq!(
            within("an answer of valkey-server", lines.next_line())
                .await
                .unwrap()
                .unwrap(),
            "+OK"
        );
        done.await;
        self.ask(&format!("ECHO '{END}'")).await;
        let mut sent = Vec::new();
        loop {
            match within("a command", lines.next_line())
                .await
                .unwrap()
                .unwrap()
            {
                line if line.contains(END) => return sent,
                // Commands within scripts do not count.
                line if line.contains(" lua] ") => {}
                line => sent.push(line),
            }
        }
    }

    /// The answer to a one-line command.
    pub(crate) async fn ask(&self, command: &str) -> String {
        within("an answer of valkey-server", async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream
                .write_all(format!("{command}\r\nQUIT\r\n").as_bytes())
                .await
                .unwrap();
            let mut answer = String::new();
            // A server that becomes the primary ends its clients' connections.
            let _ = stream.read_to_string(&mut answer).await;
            answer
        })
        .await
    }
}

impl Drop for Valkey {
    /// Checks that Valkey has refused no command of a gateway for lack of a right.
    fn drop(&mut self) {
        let ask = || {
            let mut stream = std::net::TcpStream::connect(self.address)?;
            // A stopped server does not answer.
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"ACL LOG\r\nQUIT\r\n")?;
            std::io::read_to_string(stream)
        };
        if !std::thread::panicking() {
            let refused = ask().unwrap_or_default();
            assert!(!refused.contains("reason"), "{refused}");
        }
    }
}

/// A sentinel, which promotes a replica if the primary does not answer.
pub(crate) struct Sentinel {
    pub(crate) address: SocketAddr,
    _folder: TempFile,
    _child: Child,
}

impl Sentinel {
    /// Starts a sentinel that calls this primary `main`.
    pub(crate) async fn start(primary: &Valkey) -> Self {
        let (address, folder) = (ports::free(), TempFile::folder());
        let file = folder.path().join("sentinel.conf");
        let config = format!(
            "bind 127.0.0.1\nport {}\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 500\n\
             sentinel failover-timeout main 2000\nuser {}\n",
            address.port(),
            folder.path().display(),
            primary.address.port(),
            users()[1]
        );
        std::fs::write(&file, config).unwrap();
        let mut command = program();
        command
            .arg(file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap();
        until("the sentinel", async || {
            TcpStream::connect(address).await.is_ok()
        })
        .await;
        let sentinel = Self {
            address,
            _folder: folder,
            _child: child,
        };
        until("the sentinel to know the replica", async || {
            sentinel.knows_replica().await
        })
        .await;
        sentinel
    }

    async fn knows_replica(&self) -> bool {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream
            .write_all(b"SENTINEL REPLICAS main\r\n")
            .await
            .unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.contains("master-link-status") && answer.contains("ok")
    }

    /// The URL of `main`.
    pub(crate) fn url(&self) -> String {
        format!("valkey+sentinel://{USER}@{}/main", self.address)
    }
}

fn program() -> Command {
    let program = std::env::var_os("VALKEY_SERVER")
        .expect("VALKEY_SERVER names the program: use tests/replicas/run");
    let mut command = Command::new(program);
    command.kill_on_drop(true);
    command
}

/// The users of servers and of sentinels with their rights, as the page states them.
fn users() -> [String; 2] {
    let (page, command) = (page(), "ACL SETUSER ");
    let users: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix(command))
        .map(str::to_owned)
        .collect();
    users.try_into().expect("the users of the page")
}

async fn started(address: SocketAddr, folder: &TempFile, more: &[String]) -> Child {
    let mut command = program();
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &address.port().to_string(),
        "--save",
        "",
        "--dir",
    ]);
    command
        .arg(folder.path())
        .args(["--appendonly", "yes", "--appendfsync", "always"]);
    command
        .args(["--repl-diskless-sync-delay", "0", "--user"])
        .args(users()[0].split(' '))
        .args(more);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    within("valkey-server to be ready", async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line.contains("Ready to accept connections") {
                return;
            }
        }
        panic!("valkey-server has ended");
    })
    .await;
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    child
}
