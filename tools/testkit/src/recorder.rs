//! `fanlight record` on a running gateway.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::harness::{TempFile, fanlight, signal_and_wait};
use crate::patience::within;

/// A running recording.
pub struct Recorder {
    child: Child,
    folder: TempFile,
}

impl Recorder {
    /// Starts to record the gateway with this admin listener. Further messages are in the recording.
    pub async fn start(admin: SocketAddr, more: &[&str]) -> Self {
        let folder = TempFile::folder();
        let mut command = fanlight();
        command
            .arg("record")
            .arg(folder.path().join("recording.jsonl"))
            .args(["--admin", &format!("http://{admin}")])
            .args(more)
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = within("the recording", lines.next_line()).await.unwrap();
        let first = first.unwrap_or_default();
        assert!(first.starts_with("recording to "), "{first}");
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, folder }
    }

    /// The path of the file.
    pub fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("recording.jsonl")
    }

    /// Interrupts the command; returns the text of the file.
    pub async fn finish(mut self) -> String {
        let status = signal_and_wait(&mut self.child, rustix::process::Signal::INT).await;
        assert!(status.success(), "{status}");
        read(&self.path())
    }

    /// Waits for the command's own end; returns the text of the file.
    pub async fn ended(mut self) -> String {
        let status = within("the end", self.child.wait()).await.unwrap();
        assert!(status.success(), "{status}");
        read(&self.path())
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The lines of a recording.
pub fn lines(text: &str) -> Vec<Value> {
    let parsed = text.lines().map(serde_json::from_str);
    parsed.collect::<Result<_, _>>().unwrap()
}
