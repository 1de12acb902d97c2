//! A server that is a process.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Broken, LONGEST, is_answer, observe};
use crate::judge::observed::Observed;
use crate::process_group::ProcessGroup;

/// The most lines that wait to be read.
const LINES: usize = 64;
/// The most lines of standard error that are kept.
const LAST_WORDS: usize = 12;
/// How long the process may take to end by itself, and then after SIGTERM.
const STOP: Duration = Duration::from_secs(2);

/// A process and its streams. Dropping it ends the process and its children.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<Vec<u8>>,
    errors: Arc<Mutex<VecDeque<String>>>,
    group: ProcessGroup,
}

impl Process {
    pub(crate) fn start(program: &str, arguments: &[String]) -> Result<Self, Broken> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        // The server must not get Fanlight's secrets.
        for (name, _) in std::env::vars_os()
            .filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FANLIGHT_"))
        {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(|error| {
            let help = match error.kind() {
                std::io::ErrorKind::NotFound => "; is it installed, and in PATH?",
                _ => "",
            };
            Broken::Unreachable(format!("{program} cannot be started: {error}{help}"))
        })?;
        let group = ProcessGroup::new(&child);
        let (sender, lines) = mpsc::channel(LINES);
        let errors = Arc::<Mutex<VecDeque<String>>>::default();
        if let Some(output) = child.stdout.take() {
            tokio::spawn(read_lines(output, async move |line| {
                sender.send(line).await.is_ok()
            }));
        }
        if let Some(output) = child.stderr.take() {
            let errors = Arc::clone(&errors);
            tokio::spawn(read_lines(output, async move |line| {
                let mut errors = errors.lock();
                errors.truncate(LAST_WORDS - 1);
                errors.push_front(String::from_utf8_lossy(&line).trim_end().to_owned());
                true
            }));
        }
        let input = child.stdin.take();
        Ok(Self {
            child,
            input,
            lines,
            errors,
            group,
        })
    }

    pub(crate) async fn write(&mut self, message: &Value) -> Result<(), Broken> {
        self.write_line(message.to_string()).await
    }

    pub(crate) async fn write_line(&mut self, mut line: String) -> Result<(), Broken> {
        line.push('\n');
        let ended = || Broken::Ended("its standard input is closed".to_owned());
        let input = self.input.as_mut().ok_or_else(ended)?;
        // A server that does not read its input must not block forever.
        let written = timeout(Duration::from_secs(10), async {
            input.write_all(line.as_bytes()).await?;
            input.flush().await
        });
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.ended().await),
            Err(_) => Err(Broken::Silent(Duration::from_secs(10))),
        }
    }

    /// The lines of its standard output, which the caller reads instead.
    pub(crate) fn take_lines(&mut self) -> mpsc::Receiver<Vec<u8>> {
        std::mem::replace(&mut self.lines, mpsc::channel(1).1)
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) async fn request(
        &mut self,
        request: &Value,
        patience: Duration,
        observed: &mut Observed,
    ) -> Result<Value, Broken> {
        self.write(request).await?;
        let until = Instant::now() + patience;
        loop {
            let line = timeout_at(until, self.lines.recv())
                .await
                .map_err(|_| Broken::Silent(patience))?;
            let Some(line) = line else {
                return Err(self.ended().await);
            };
            let Some(message) = message_in(&line, observed) else {
                continue;
            };
            if is_answer(&message, request) {
                return Ok(message);
            }
            if let Some(reply) = observe(&message, observed) {
                self.write(&reply).await?;
            }
        }
    }

    /// Closes the input, waits, and ends the process.
    pub(crate) async fn close(mut self, observed: &mut Observed) {
        drop(self.input.take());
        // Further output must not keep the process from ending.
        self.lines.close();
        if timeout(STOP, self.child.wait()).await.is_err() {
            let what = "It does not end when its standard input is closed: clients and gateways have to kill it.";
            observed.warn(
                "does-not-end",
                what,
                format!("still running after {} s", STOP.as_secs()),
            );
            self.group.send(Signal::TERM);
            if timeout(STOP, self.child.wait()).await.is_err() {
                self.group.send(Signal::KILL);
                let _ = timeout(STOP, self.child.wait()).await;
            }
        }
    }

    pub(crate) fn last_words(&self) -> Vec<String> {
        let errors = self.errors.lock();
        errors
            .iter()
            .rev()
            .filter(|line| !line.trim().is_empty())
            .cloned()
            .collect()
    }

    async fn ended(&mut self) -> Broken {
        // The streams close slightly before the end is reported.
        let how = match timeout(STOP, self.child.wait()).await {
            Ok(Ok(status)) => format!("the process ended ({status})"),
            _ => "the process closed its standard output".to_owned(),
        };
        Broken::Ended(how)
    }
}

/// The message in a line. Adds a finding if the line contains none.
fn message_in(line: &[u8], observed: &mut Observed) -> Option<Value> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    match serde_json::from_slice::<Value>(line) {
        Ok(message @ Value::Object(_)) => Some(message),
        _ => {
            let what = "It writes other text than messages to its standard output. Logs belong on standard error: some clients end \
                        the connection.";
            observed.error("stdout-noise", what, String::from_utf8_lossy(line));
            None
        }
    }
}

/// Calls `take` with each line until it returns false, or the stream ends.
async fn read_lines(stream: impl AsyncRead + Unpin, take: impl AsyncFn(Vec<u8>) -> bool) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = (&mut reader)
            .take(LONGEST as u64)
            .read_until(b'\n', &mut line)
            .await;
        if !matches!(read, Ok(1..)) || !take(line).await {
            return;
        }
    }
}
