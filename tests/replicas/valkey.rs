//! A `valkey-server` of a test.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::harness::{TempFile, within};
use crate::ports;

/// A running server; it is killed when this is dropped.
pub(crate) struct Valkey {
    pub(crate) address: SocketAddr,
    folder: TempFile,
    child: Child,
}

impl Valkey {
    /// One that writes everything to its disk at once.
    pub(crate) async fn start() -> Self {
        let (address, folder) = (ports::free(), TempFile::folder());
        let child = started(address, &folder).await;
        Self { address, folder, child }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("valkey://{}", self.address)
    }

    /// Kills it, so that it can finish nothing.
    pub(crate) async fn kill(&mut self) {
        within("the end of valkey-server", self.child.kill()).await.unwrap();
    }

    /// Starts it again after [`Self::kill`], with the data that it has written, or with none.
    pub(crate) async fn start_again(&mut self, keeps_data: bool) {
        if !keeps_data {
            self.folder = TempFile::folder();
        }
        self.child = started(self.address, &self.folder).await;
    }

    /// What it answers to a command that is one line.
    pub(crate) async fn ask(&self, command: &str) -> String {
        within("an answer of valkey-server", async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        })
        .await
    }
}

async fn started(address: SocketAddr, folder: &TempFile) -> Child {
    let program = std::env::var_os("VALKEY_SERVER").expect("VALKEY_SERVER names the program: use tests/replicas/run");
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", "", "--dir"]);
    command.arg(folder.path()).args([
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--repl-diskless-sync-delay",
        "0",
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
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
