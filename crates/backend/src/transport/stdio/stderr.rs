//! Keeps a process's standard error for operators, and logs it at debug level under the server's
//! name.
//!
//! A process never waits long for this: lines above the limit are dropped and counted.

use std::time::Duration;

use fanlight_protocol::line::{Line, LineDecoder};
use fanlight_telemetry::metrics::BackendMetrics;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, sleep_until};

use crate::log::excerpt;
use crate::process_log::ProcessLogWriter;
use fanlight_canonical::ProcessStream;

/// The maximum number of logged bytes per line.
const LINE: usize = 4096;

/// The minimum charge for a line: logging it takes longer than reading it.
const LEAST: usize = 1 << 10;

/// The time over which the rate is measured.
const INTERVAL: Duration = Duration::from_secs(1);

/// The shortest time between two mentions in the gateway's log.
const SAID: Duration = Duration::from_secs(60);

/// The maximum number of bytes read per interval, so that discarding a process's output takes no
/// processor time. A constant: a process that writes more is broken.
const FLOOD: usize = 16 << 20;

/// The charge per line, since finding its end takes time, too.
const LINE_COST: usize = 64;

/// Logs lines until the stream ends, at most `rate` bytes per second; counts the others.
pub(super) async fn log(
    name: &str,
    log: &ProcessLogWriter,
    rate: usize,
    mut stderr: impl AsyncRead + Unpin,
    counters: &BackendMetrics,
) {
    let mut lines = LineDecoder::new(LINE);
    let mut meter = Meter::new(rate);
    let mut dropped = Dropped {
        counters,
        unsaid: 0,
        said: None,
    };
    loop {
        lines.buffer_mut().reserve(LINE);
        tokio::select! {
            biased;
            // The end of a flood is reported, too.
            () = sleep_until(meter.since + INTERVAL), if meter.is_full() => {
                dropped.add(name, log, meter.begin());
                continue;
            }
            read = stderr.read_buf(lines.buffer_mut()), if meter.read < FLOOD => match read {
                Ok(more @ 1..) => {
                    log.is_writing();
                    meter.read += more;
                }
                Ok(0) | Err(_) => break,
            },
        }
        if meter.since.elapsed() >= INTERVAL {
            dropped.add(name, log, meter.begin());
        }
        while let Some(line) = lines.next_line() {
            if meter.takes(&line) {
                log_line(name, log, &line);
            }
        }
    }
    dropped.add(name, log, meter.begin());
    dropped.say(name);
    if let Some(line) = lines.finish() {
        log_line(name, log, &line);
    }
}

/// The amounts read and logged in the current interval.
struct Meter {
    rate: usize,
    since: Instant,
    read: usize,
    logged: usize,
    dropped: u64,
}

impl Meter {
    fn new(rate: usize) -> Self {
        Self {
            rate,
            since: Instant::now(),
            read: 0,
            logged: 0,
            dropped: 0,
        }
    }

    /// Begins an interval; returns the number of lines dropped in the last one.
    fn begin(&mut self) -> u64 {
        let dropped = self.dropped;
        *self = Self::new(self.rate);
        dropped
    }

    /// Whether something waits for the end of the interval.
    fn is_full(&self) -> bool {
        self.dropped > 0 || self.read >= FLOOD
    }

    /// Whether to log a line.
    fn takes(&mut self, line: &Line) -> bool {
        self.read += LINE_COST;
        if self.logged >= self.rate {
            self.dropped += 1;
            return false;
        }
        self.logged += line_len(line).max(LEAST);
        true
    }
}

/// The dropped lines.
struct Dropped<'a> {
    counters: &'a BackendMetrics,
    /// The number of lines since the last mention in the gateway's log.
    unsaid: u64,
    said: Option<Instant>,
}

impl Dropped<'_> {
    /// Adds the lines of an interval.
    fn add(&mut self, name: &str, log: &ProcessLogWriter, lines: u64) {
        if lines == 0 {
            return;
        }
        self.counters.lines_dropped(lines);
        let text =
            format!("({lines} lines were dropped here: the process wrote too much in a second)");
        log.add(ProcessStream::Stderr, &text);
        self.unsaid += lines;
        if self.said.is_none_or(|said| said.elapsed() >= SAID) {
            self.say(name);
        }
    }

    fn say(&mut self, name: &str) {
        if self.unsaid > 0 {
            let lines = std::mem::take(&mut self.unsaid);
            self.said = Some(Instant::now());
            tracing::warn!(
                backend = name,
                lines,
                "standard error of the process dropped: it wrote too much in a second"
            );
        }
    }
}

fn line_len(line: &Line) -> usize {
    match line {
        Line::Whole(text) => text.len(),
        Line::TooLong { head, .. } => head.len(),
    }
}

fn log_line(name: &str, log: &ProcessLogWriter, line: &Line) {
    let text = match line {
        Line::Whole(text) => excerpt(text, LINE),
        Line::TooLong { head, len, .. } => format!("{}… ({len} bytes)", excerpt(head, LINE)),
    };
    log.add(ProcessStream::Stderr, &text);
    tracing::debug!(target: "fanlight::child", backend = name, "{text}");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::process_log::ProcessLog;

    #[tokio::test(start_paused = true)]
    async fn lines_above_the_limit_are_dropped_and_counted_and_the_process_goes_on() {
        let kept = Arc::new(ProcessLog::new(64 << 20));
        let writer = ProcessLog::process(&kept, None);
        let (mut process, stderr) = tokio::io::duplex(4096);
        let began = Instant::now();
        let writing = async move {
            for number in 0..100_000 {
                process
                    .write_all(format!("line {number}\n").as_bytes())
                    .await
                    .unwrap();
            }
            let took = began.elapsed();
            tokio::time::sleep(2 * INTERVAL).await;
            process.write_all(b"last").await.unwrap();
            took
        };
        let counters = BackendMetrics::unregistered();
        let ((), took) = tokio::join!(log("b", &writer, 100 * LEAST, stderr, &counters), writing);
        assert_eq!(took, Duration::ZERO, "the process has waited");
        let output = kept.output();
        let texts: Vec<&str> = output.lines.iter().map(|line| &*line.text).collect();
        assert_eq!(
            (texts.len(), texts[99], texts[101]),
            (102, "line 99", "last")
        );
        assert!(
            texts[100].starts_with("(99900 lines were dropped here"),
            "{}",
            texts[100]
        );
        assert_eq!(counters.dropped_lines(), 99_900);
    }

    #[tokio::test(start_paused = true)]
    async fn process_that_floods_waits() {
        let kept = Arc::new(ProcessLog::new(0));
        let writer = ProcessLog::process(&kept, None);
        let (mut process, stderr) = tokio::io::duplex(1 << 20);
        let began = Instant::now();
        let writing = async move {
            let line = vec![b'x'; 1 << 20];
            for _ in 0..3 * (FLOOD >> 20) {
                process.write_all(&line).await.unwrap();
            }
            began.elapsed()
        };
        let counters = BackendMetrics::unregistered();
        let ((), took) = tokio::join!(log("b", &writer, LEAST, stderr, &counters), writing);
        assert!(took >= 2 * INTERVAL, "{took:?}");
    }
}
