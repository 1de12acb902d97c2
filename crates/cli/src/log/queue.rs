//! A queue of log lines in front of standard error, and the thread that writes them.
//!
//! Standard error may be a pipe that is read slowly or not at all, and a thread that serves clients
//! must never wait for it. A line that does not fit the queue is dropped and counted, and the log
//! reports this once it can be written again. `tracing-appender` would not do: it limits lines
//! instead of bytes, hides its count, and at the end waits endlessly for a stuck writer.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Queued lines of the log. Clones share the queue.
#[derive(Clone)]
pub struct LogQueue(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    /// Notified when lines are queued.
    queued: Condvar,
    /// Notified when all lines have been written.
    written: Condvar,
    /// The limit of waiting bytes.
    limit: AtomicUsize,
    /// The number of lines dropped since the start.
    dropped: Arc<AtomicU64>,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Box<[u8]>>,
    /// The bytes of `lines` and of the lines that are being written.
    bytes: usize,
}

impl LogQueue {
    /// Starts the thread that writes to `out`. It ends with the process. After lines were dropped
    /// and the queue has been written, `report` gets their number.
    pub fn start(
        out: impl Write + Send + 'static,
        limit: usize,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Self(Arc::new(Shared {
            waiting: Mutex::default(),
            queued: Condvar::new(),
            written: Condvar::new(),
            limit: AtomicUsize::new(limit),
            dropped: Arc::default(),
        }));
        let shared = Arc::clone(&queue.0);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || shared.write_to(out, &report))?;
        Ok(queue)
    }

    /// The counter of dropped lines.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.dropped)
    }

    /// Queues a line, or drops it if it does not fit.
    pub fn push(&self, line: &[u8]) {
        let limit = self.0.limit.load(Ordering::Relaxed);
        let mut waiting = self.0.waiting.lock();
        if waiting.bytes.saturating_add(line.len()) > limit {
            drop(waiting);
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        drop(waiting);
        self.0.queued.notify_one();
    }

    /// Waits until all lines have been written, at most for `limit`. Returns whether they were.
    pub fn flush(&self, limit: Duration) -> bool {
        let mut waiting = self.0.waiting.lock();
        let is_unwritten = |waiting: &mut Waiting| waiting.bytes > 0;
        let written = &self.0.written;
        !written
            .wait_while_for(&mut waiting, is_unwritten, limit)
            .timed_out()
    }
}

impl Shared {
    fn write_to(&self, mut out: impl Write, report: &impl Fn(u64)) {
        let mut reported = 0;
        loop {
            let mut waiting = self.waiting.lock();
            self.queued
                .wait_while(&mut waiting, |waiting| waiting.lines.is_empty());
            let lines = std::mem::take(&mut waiting.lines);
            drop(waiting);
            for line in lines {
                // A line that cannot be written is lost: reporting it would also go to standard
                // error.
                if out.write_all(&line).is_err() {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    reported += 1;
                }
                let mut waiting = self.waiting.lock();
                waiting.bytes -= line.len();
                if waiting.bytes == 0 {
                    self.written.notify_all();
                }
            }
            let dropped = self.dropped.load(Ordering::Relaxed);
            if dropped > reported {
                report(dropped - reported);
                reported = dropped;
            }
        }
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Takes each buffer as one line, since `tracing-subscriber` writes a formatted event at once.
impl Write for &LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Writes a line when the test receives it.
    struct Slow(mpsc::SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0
                .send(line.to_vec())
                .map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped_and_reported_once() {
        let (out, written) = mpsc::sync_channel(0);
        let (report, reports) = mpsc::channel();
        let queue =
            LogQueue::start(Slow(out), 30, move |dropped| report.send(dropped).unwrap()).unwrap();
        for _ in 0..10 {
            queue.push(b"0123456789");
        }
        assert_eq!(queue.dropped().load(Ordering::Relaxed), 7);
        assert!(!queue.flush(Duration::ZERO), "nothing has been written");
        for _ in 0..3 {
            assert_eq!(written.recv().unwrap(), b"0123456789");
        }
        assert_eq!(reports.recv().unwrap(), 7);
        assert!(queue.flush(Duration::from_secs(10)));
        queue.push(b"next");
        assert_eq!(written.recv().unwrap(), b"next");
        assert!(queue.flush(Duration::from_secs(10)));
        assert!(reports.try_recv().is_err(), "nothing was dropped since");
    }

    #[test]
    fn line_of_a_closed_output_is_lost_without_a_report() {
        let (out, closed) = mpsc::sync_channel(0);
        drop(closed);
        let queue = LogQueue::start(Slow(out), 30, |dropped| panic!("{dropped} reported")).unwrap();
        queue.push(b"lost");
        assert!(queue.flush(Duration::from_secs(10)));
        assert_eq!(queue.dropped().load(Ordering::Relaxed), 1);
    }
}
