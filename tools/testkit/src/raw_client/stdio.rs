//! Newline-delimited messages over a child's pipes.

use crate::slicer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use super::{INITIALIZED, initialize};
use crate::harness::StdioGateway;
use crate::patience::within;
use crate::schema::Peer;

/// A client over standard input and output: one message per line.
pub struct StdioClient {
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    peer: Option<Peer>,
}

impl StdioClient {
    /// The client of a gateway, whose messages are checked against the schema.
    pub fn new(gateway: &mut StdioGateway) -> Self {
        let pipes = (
            gateway.stdin.take().unwrap(),
            gateway.stdout.take().unwrap(),
        );
        Self {
            peer: Some(gateway.checks.peer("stdio")),
            ..Self::unchecked(pipes.0, pipes.1)
        }
    }

    /// The client of a server other than a gateway.
    pub fn unchecked(stdin: ChildStdin, stdout: ChildStdout) -> Self {
        Self {
            stdin: Some(stdin),
            stdout: BufReader::new(stdout),
            peer: None,
        }
    }

    /// Sends one message and a line break.
    pub async fn send(&mut self, message: &str) {
        if let Some(peer) = &self.peer {
            peer.sent(message, None);
        }
        let line = format!("{}\n", message.replace(['\n', '\r'], " "));
        let stdin = self.stdin.as_mut().expect("input is open");
        within("the server to read", stdin.write_all(line.as_bytes()))
            .await
            .unwrap();
    }

    /// The next line without its break; `None` at the end.
    pub async fn receive(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = within("a line", self.stdout.read_line(&mut line))
            .await
            .unwrap();
        let line = (length > 0).then(|| line.trim_end_matches('\n').to_owned())?;
        if let Some(peer) = &self.peer {
            peer.received(&line);
        }
        Some(line)
    }

    /// Sends a request and returns the messages before its response, and the response.
    pub async fn call(&mut self, request: &str) -> (Vec<String>, String) {
        let id = slicer::member(request, "id").expect("an id").to_owned();
        self.send(request).await;
        let mut before = Vec::new();
        loop {
            let line = self.receive().await.expect("a response before the end");
            if slicer::member(&line, "id") == Some(&id) && slicer::member(&line, "method").is_none()
            {
                return (before, line);
            }
            before.push(line);
        }
    }

    /// Completes a legacy handshake and returns the raw result.
    pub async fn initialize(&mut self, revision: &str) -> String {
        self.initialize_with(revision, "{}").await
    }

    /// [`Self::initialize`] with these raw capabilities.
    pub async fn initialize_with(&mut self, revision: &str, capabilities: &str) -> String {
        let (_, answer) = self.call(&initialize(revision, capabilities)).await;
        self.send(INITIALIZED).await;
        slicer::member(&answer, "result")
            .unwrap_or_else(|| panic!("initialize failed: {answer}"))
            .to_owned()
    }

    /// Ends the input, as a client does to end a server.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }
}
