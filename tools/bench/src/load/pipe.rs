//! Calls over the standard input and output of a child process, with a window of calls in flight.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};

use super::request::{Exchange, Id, Message, excerpt, id_of};
use crate::error::{BenchError, Doing, Result, within};

/// A client over pipes.
#[derive(Debug)]
pub(crate) struct Pipe {
    input: ChildStdin,
    output: ChildStdout,
    received: BytesMut,
    exchange: Exchange,
    /// The numbers of unanswered calls.
    open: HashSet<u64>,
    next: u64,
}

const PATIENCE: u64 = 60;

impl Pipe {
    /// Calls of `message`.
    pub(crate) fn new(input: ChildStdin, output: ChildStdout, message: &Message) -> Self {
        let (exchange, open) = (Exchange::line(message), HashSet::new());
        Self {
            input,
            output,
            received: BytesMut::new(),
            exchange,
            open,
            next: 0,
        }
    }

    /// The same pipe, with calls of another message from now on.
    pub(crate) fn then(self, message: &Message) -> Self {
        Self {
            exchange: Exchange::line(message),
            ..self
        }
    }

    /// Keeps `window` calls in flight for `time`, then waits for the last answers. Returns the
    /// number of calls and the duration.
    pub(crate) async fn run(&mut self, window: u64, time: Duration) -> Result<(u64, Duration)> {
        let start = Instant::now();
        let first = self.next;
        let work = async {
            self.send(window).await?;
            let mut flying = window;
            while flying > 0 {
                let answered = self.receive().await?;
                flying -= answered;
                if start.elapsed() < time {
                    self.send(answered).await?;
                    flying += answered;
                }
            }
            Ok(())
        };
        within("answers through the pipe", time.as_secs() + PATIENCE, work).await?;
        Ok((self.next - first, start.elapsed()))
    }

    async fn send(&mut self, count: u64) -> Result<()> {
        let mut lines = Vec::new();
        for _ in 0..count {
            let number = self.next;
            self.next += 1;
            lines.extend_from_slice(self.exchange.with_id(Id::number(number)));
            self.open.insert(number);
        }
        self.input
            .write_all(&lines)
            .await
            .doing("writing to a child")
    }

    /// Waits for at least one answer, and checks all that have arrived; returns their number.
    async fn receive(&mut self) -> Result<u64> {
        let mut answered = 0;
        while answered == 0 {
            self.received.reserve(64 << 10);
            if self
                .output
                .read_buf(&mut self.received)
                .await
                .doing("reading from a child")?
                == 0
            {
                return Err(BenchError::Closed("the child"));
            }
            while let Some(end) = memchr::memchr(b'\n', &self.received) {
                let line = self.received.split_to(end);
                self.received.advance(1);
                self.check(&line)?;
                answered += 1;
            }
        }
        Ok(answered)
    }

    fn check(&mut self, line: &[u8]) -> Result<()> {
        let number = id_of(line).ok_or_else(|| BenchError::Wrong(excerpt(line)))?;
        self.exchange.check(Id::number(number), line)?;
        let is_open = self.open.remove(&number);
        if is_open {
            Ok(())
        } else {
            Err(BenchError::Wrong(format!(
                "an answer to no call: {}",
                excerpt(line)
            )))
        }
    }
}
