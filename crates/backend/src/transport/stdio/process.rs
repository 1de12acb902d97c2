//! The life of one process: its tasks, its output and its end.
//!
//! Its standard error is kept for operators, and logged at debug level under the server's name. A
//! process never waits long for this: lines above the limit are dropped and counted.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{BackendError, ProcessStream};
use fanlight_fair::limit;
use fanlight_protocol::line::{Line, LineDecoder};
use fanlight_telemetry::metrics::{BackendMetrics, Direction};
use fanlight_telemetry::recording::{Captured, To};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::child::{Process, Spawned};
use super::writer::{self, CountingWriter, QueuedLine};
use crate::log::excerpt;
use crate::memory::Arriving;
use crate::process_log::ProcessLogWriter;
use crate::settings::process_stop;
use crate::transport::channel::{Reader, Shared};

/// How long to wait for the exit after the end of the output, and the reverse. A constant: it only
/// limits what follows either end.
const ALIGNMENT: Duration = Duration::from_millis(500);

/// Runs the tasks of a process, which end with it. The process ends when the channel asks it to.
pub(super) fn run(
    spawned: Spawned,
    queue: mpsc::Receiver<QueuedLine>,
    log: ProcessLogWriter,
    shared: &Arc<Shared>,
) {
    let Spawned {
        process,
        stdin,
        stdout,
        stderr,
        order,
    } = spawned;
    let tasks = &shared.context.tasks;
    let (end, replies) = (shared.end.clone(), shared.replies.clone());
    let context = Arc::clone(&shared.context);
    let (report, input) = oneshot::channel();
    tasks.spawn(async move {
        let mut stdin = CountingWriter::new(stdin);
        let orders = order.len();
        let last_replies = async {
            end.cancelled().await;
            replies.close();
            let _ = timeout(ALIGNMENT, replies.wait()).await;
        };
        let too_late = async {
            end.cancelled().await;
            sleep(2 * ALIGNMENT).await;
        };
        let record = |text: &Bytes, cause: u64| {
            context.record(text, |message| Captured {
                exchange: context.recorded_exchange(),
                to: To::Server,
                cause,
                ..message
            });
        };
        let counters = context.telemetry.metrics();
        let written = tokio::select! {
            written = writer::write(&mut stdin, order, queue, last_replies, counters, record) => written,
            // The process no longer reads its input.
            () = too_late => Ok(()),
        };
        let _ = report.send(is_unread(&stdin, orders));
        drop(stdin);
        // Dropping the pipe asks the process to end (2026-07-28 stdio, Shutdown).
        if written.is_err() {
            // Usually the end of the process is noticed next. A process that only stopped reading
            // is useless, too.
            let _ = timeout(ALIGNMENT, end.cancelled()).await;
            end.cancel();
        }
    });
    let (name, gone) = (Arc::clone(&shared.context.name), shared.gone.clone());
    let invalid = log.clone();
    let rate = limit("processLog", 4 << 20);
    let counting = Arc::clone(shared.context.telemetry.metrics());
    tasks.spawn(async move {
        let mut logging = pin!(log_output(&name, &log, rate, stderr, &counting));
        tokio::select! {
            () = &mut logging => {}
            // A process that was left behind may hold the pipe open for ever.
            () = gone.cancelled() => { let _ = timeout(ALIGNMENT, logging).await; }
        }
    });
    let minded = Arc::clone(shared);
    tasks.spawn(async move { watch(process, stdout, input, &invalid, &minded).await });
}

/// Whether the process certainly read no message: everything written after the `orders` bytes for
/// its guard is still in the pipe. Only Linux tells this to the writer of a pipe.
#[cfg(target_os = "linux")]
fn is_unread(stdin: &CountingWriter<ChildStdin>, orders: usize) -> bool {
    let unread = rustix::io::ioctl_fionread(&stdin.inner).unwrap_or_default();
    stdin.written.saturating_sub(unread) <= orders as u64
}

#[cfg(not(target_os = "linux"))]
fn is_unread(stdin: &CountingWriter<ChildStdin>, orders: usize) -> bool {
    let _ = &stdin.inner;
    stdin.written <= orders as u64
}

/// Reads the output until the process ends, and cleans up after it. `input` tells, after the last
/// write, whether the process read no message.
async fn watch(
    mut process: Process,
    stdout: ChildStdout,
    input: oneshot::Receiver<bool>,
    log: &ProcessLogWriter,
    shared: &Shared,
) {
    let mut reading = pin!(read(stdout, log, shared));
    let mut read_all = false;
    let status = tokio::select! {
        biased;
        () = &mut reading => {
            read_all = true;
            timeout(ALIGNMENT, process.wait()).await.ok().flatten()
        }
        status = process.wait() => {
            // Output from before its end still counts.
            read_all = timeout(ALIGNMENT, &mut reading).await.is_ok();
            status
        }
        () = shared.end.cancelled() => None,
    };
    // Irrelevant once the process has sent anything.
    if status.is_some() && shared.liveness.received() == 0 {
        shared.end.cancel();
        if matches!(timeout(ALIGNMENT, input).await, Ok(Ok(true))) {
            shared.set_unread();
        }
    }
    shared.close(&BackendError::Exited {
        status: status.map(|status| status.to_string()),
    });
    let mut ending = pin!(process.end(process_stop()));
    if read_all {
        return ending.await;
    }
    // A process that cannot write cannot end.
    tokio::select! {
        biased;
        () = &mut reading => ending.await,
        // Its last output is still in the pipe.
        () = &mut ending => { let _ = timeout(ALIGNMENT, reading).await; }
    }
}

/// The bytes reserved for one read.
const READ: usize = 16 << 10;

/// The number of characters of an invalid line that are kept for operators.
const SHOWN: usize = 400;

/// The minimum charge for an invalid line: refusing it takes longer than reading it.
const INVALID_LINE: usize = 1 << 10;

/// Reads until the stream ends, or until it had no message for too long. So an endless line or
/// other output outside of the protocol does not go on for ever.
pub(super) async fn read(
    mut stdout: impl AsyncRead + Unpin,
    log: &ProcessLogWriter,
    shared: &Shared,
) {
    let mut lines = LineDecoder::new(shared.context.limits.message_bytes);
    let mut reader = Reader::new(shared);
    let mut arriving = Arriving::messages(&shared.context.memory);
    let counters = shared.context.telemetry.metrics();
    let limits = &shared.context.limits;
    let most = limits
        .message_bytes
        .saturating_add(limit("invalidOutput", 64 << 20));
    let mut without_message: usize = 0;
    loop {
        lines.buffer_mut().reserve(READ);
        match stdout.read_buf(lines.buffer_mut()).await {
            Ok(read @ 1..) => {
                counters.io(Direction::Receive, read as u64);
                without_message = without_message.saturating_add(read);
            }
            Ok(0) | Err(_) => break,
        }
        while let Some(line) = lines.next_line() {
            let before = reader.valid;
            take(&mut reader, &mut arriving, log, line);
            without_message = if reader.valid == before {
                without_message.saturating_add(INVALID_LINE)
            } else {
                0
            };
        }
        if arriving.try_cover(lines.buffered()).is_err() {
            // Waiting would delay all other calls.
            lines.drop_line();
        }
        if without_message > most {
            shared.give_up(format!(
                "it wrote {most} bytes to its standard output without a message among them"
            ));
            return;
        }
    }
    // The last line is a message without its line break, or part of a message.
    if let Some(line) = lines.finish() {
        take(&mut reader, &mut arriving, log, line);
    }
    if reader.garbage > 1 {
        let (backend, lines) = (&*shared.context.name, reader.garbage);
        tracing::warn!(backend, lines, "invalid messages on standard output");
    }
}

fn take(reader: &mut Reader<'_>, arriving: &mut Arriving, log: &ProcessLogWriter, line: Line) {
    match line {
        Line::Whole(text) => {
            let Ok(text) = arriving.try_hold(text.clone()) else {
                return reader.take_dropped(&text, &text, text.len());
            };
            reader.record(&text);
            let (before, shown) = (reader.garbage, text.clone());
            reader.take_text(text);
            if reader.garbage > before {
                log.add(ProcessStream::Stdout, &excerpt(&shown, SHOWN));
            }
        }
        Line::TooLong { head, tail, len } => reader.take_dropped(&head, &tail, len),
    }
}

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
async fn log_output(
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
            sleep(2 * INTERVAL).await;
            process.write_all(b"last").await.unwrap();
            took
        };
        let counters = BackendMetrics::unregistered();
        let ((), took) = tokio::join!(
            log_output("b", &writer, 100 * LEAST, stderr, &counters),
            writing
        );
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
        let ((), took) = tokio::join!(log_output("b", &writer, LEAST, stderr, &counters), writing);
        assert!(took >= 2 * INTERVAL, "{took:?}");
    }
}
