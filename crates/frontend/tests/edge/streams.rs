//! A client on a pair of byte streams, so that tests see each line.

use std::sync::Arc;

use fanlight_frontend::{FrontendError, FrontendSettings, serve_stdio};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::soon;
use crate::core::{Log, TestCore};

pub(crate) struct Stdio {
    pub(crate) input: Option<DuplexStream>,
    pub(crate) output: BufReader<DuplexStream>,
    pub(crate) core: Arc<TestCore>,
    pub(crate) log: Log,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<Result<(), FrontendError>>,
}

impl Stdio {
    pub(crate) fn start() -> Self {
        Self::with(FrontendSettings::default())
    }

    pub(crate) fn with(settings: FrontendSettings) -> Self {
        let (core, log) = TestCore::new();
        let (input, server_input) = duplex(1 << 16);
        let (output, server_output) = duplex(1 << 12);
        let shutdown = CancellationToken::new();
        let serve = serve_stdio(
            server_input,
            server_output,
            core.gateway(&[]),
            Arc::new(settings),
            None,
            shutdown.clone(),
        );
        let output = BufReader::new(output);
        Self {
            input: Some(input),
            output,
            core,
            log,
            shutdown,
            served: tokio::spawn(serve),
        }
    }

    pub(crate) async fn send(&mut self, message: &str) {
        soon(
            self.input
                .as_mut()
                .unwrap()
                .write_all(format!("{message}\n").as_bytes()),
        )
        .await
        .unwrap();
    }

    pub(crate) async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = soon(self.output.read_line(&mut line)).await.unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    pub(crate) async fn message(&mut self) -> Value {
        serde_json::from_str(&self.line().await.expect("the output has ended")).unwrap()
    }

    pub(crate) async fn ask(&mut self, message: &str) -> Value {
        self.send(message).await;
        self.message().await
    }

    pub(crate) async fn initialize(&mut self) -> Value {
        self.ask(r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#).await
    }

    /// Opens a session of a client with `capabilities`.
    pub(crate) async fn initialize_with(&mut self, capabilities: &str) {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        );
        assert!(self.ask(&message).await.get("result").is_some());
        self.log.began().await;
    }

    /// Ends the input; returns what is still written.
    pub(crate) async fn end(mut self) -> Vec<String> {
        drop(self.input.take());
        let mut rest = Vec::new();
        while let Some(line) = self.line().await {
            rest.push(line);
        }
        soon(self.served).await.unwrap().unwrap();
        rest
    }
}
