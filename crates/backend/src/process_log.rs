//! What the processes of one server write besides messages: the last lines, kept for operators within a bound.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fanlight_canonical::{ProcessLine, ProcessOutput, ProcessStream};
use tokio::sync::Notify;
use tokio::time::timeout;

/// What a line counts besides its text.
const LINE_BYTES: usize = 64;
/// Lines of a failed process that its error repeats, and characters of each. No option: the whole log can be read, and
/// `limits.processLogKept` bounds it.
const REPEATED: (usize, usize) = (4, 200);
/// How long the rest of what a process wrote is waited for. No option: it delays only the error of a failed start,
/// which has its own time-out.
const REST: Duration = Duration::from_millis(300);

/// The lines of all processes of one server.
pub(crate) struct ProcessLog {
    /// Bytes of all lines.
    limit: usize,
    lines: Mutex<Lines>,
    /// A process writes no more.
    ended: Notify,
}

#[derive(Default)]
struct Lines {
    kept: VecDeque<ProcessLine>,
    bytes: usize,
    dropped: u64,
    /// Processes so far.
    processes: u64,
    /// Writers of the processes that still write.
    writers: HashMap<u64, usize>,
}

impl ProcessLog {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, lines: Mutex::default(), ended: Notify::new() }
    }

    /// A process begins to write.
    pub(crate) fn process(log: &Arc<Self>) -> ProcessLogWriter {
        let mut lines = log.lines();
        lines.processes += 1;
        let number = lines.processes;
        lines.writers.insert(number, 1);
        ProcessLogWriter { log: Arc::clone(log), number }
    }

    /// All lines that are kept.
    pub(crate) fn output(&self) -> ProcessOutput {
        let lines = self.lines();
        ProcessOutput { lines: lines.kept.iter().cloned().collect(), dropped: lines.dropped }
    }

    /// The last lines of a process that is ending, as one text; `None` if it wrote nothing.
    pub(crate) async fn last_of(&self, process: u64) -> Option<Arc<str>> {
        let ended = async {
            loop {
                let ended = self.ended.notified();
                if !self.lines().writers.contains_key(&process) {
                    return;
                }
                ended.await;
            }
        };
        // A process that it left behind may hold the pipe open.
        let _ = timeout(REST, ended).await;
        let lines = self.lines();
        let of_process = lines.kept.iter().rev().filter(|line| line.process == process && !line.text.trim().is_empty());
        let mut last: Vec<_> = of_process.take(REPEATED.0).map(|line| quoted(&line.text)).collect();
        last.reverse();
        (!last.is_empty()).then(|| last.join(" | ").into())
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(REPEATED.1) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Adds the lines of one process. Once all writers of the process are gone, it writes no more.
pub(crate) struct ProcessLogWriter {
    log: Arc<ProcessLog>,
    number: u64,
}

impl ProcessLogWriter {
    /// The number of the process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a line, whose text must be visible and bounded. The oldest lines leave for it.
    pub(crate) fn add(&self, stream: ProcessStream, text: &str) {
        let bytes = text.len() + LINE_BYTES;
        let mut lines = self.log.lines();
        while lines.bytes + bytes > self.log.limit
            && let Some(oldest) = lines.kept.pop_front()
        {
            lines.bytes -= oldest.text.len() + LINE_BYTES;
            lines.dropped += 1;
        }
        if bytes > self.log.limit {
            lines.dropped += 1;
            return;
        }
        lines.bytes += bytes;
        lines.kept.push_back(ProcessLine { at: SystemTime::now(), process: self.number, stream, text: text.into() });
    }
}

impl Clone for ProcessLogWriter {
    fn clone(&self) -> Self {
        *self.log.lines().writers.entry(self.number).or_default() += 1;
        Self { log: Arc::clone(&self.log), number: self.number }
    }
}

impl Drop for ProcessLogWriter {
    fn drop(&mut self) {
        let mut lines = self.log.lines();
        if let Some(writers) = lines.writers.get_mut(&self.number) {
            *writers -= 1;
            if *writers == 0 {
                lines.writers.remove(&self.number);
                self.log.ended.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &ProcessLog) -> Vec<String> {
        log.output().lines.iter().map(|line| line.text.to_string()).collect()
    }

    #[test]
    fn oldest_lines_leave_for_new_ones() {
        let log = Arc::new(ProcessLog::new(3 * LINE_BYTES + 3));
        let writer = ProcessLog::process(&log);
        ["a", "b", "c", "d"].iter().for_each(|text| writer.add(ProcessStream::Stderr, text));
        assert_eq!(texts(&log), ["b", "c", "d"]);
        writer.add(ProcessStream::Stderr, &"x".repeat(LINE_BYTES));
        assert_eq!(texts(&log).len(), 2);
        writer.add(ProcessStream::Stderr, &"x".repeat(1000));
        assert_eq!((texts(&log).len(), log.output().dropped), (0, 6));
    }

    #[test]
    fn short_lines_are_bounded_too() {
        let log = Arc::new(ProcessLog::new(64 << 10));
        let writer = ProcessLog::process(&log);
        (0..100_000).for_each(|_| writer.add(ProcessStream::Stderr, ""));
        assert_eq!(log.output().lines.len(), 1 << 10);
        let none = Arc::new(ProcessLog::new(0));
        ProcessLog::process(&none).add(ProcessStream::Stderr, "");
        assert_eq!(none.output().lines.len(), 0);
    }

    #[tokio::test]
    async fn last_lines_are_those_of_one_process() {
        let log = Arc::new(ProcessLog::new(1 << 20));
        let (one, two) = (ProcessLog::process(&log), ProcessLog::process(&log));
        (0..9).for_each(|n| one.add(ProcessStream::Stderr, &n.to_string()));
        one.add(ProcessStream::Stdout, " ");
        two.add(ProcessStream::Stderr, &"y".repeat(300));
        drop(one);
        assert_eq!(log.last_of(1).await.as_deref(), Some("5 | 6 | 7 | 8"));
        let waiting = log.last_of(2);
        let ending = async move { drop(two) };
        let (last, ()) = tokio::join!(waiting, ending);
        assert_eq!(last.unwrap().chars().count(), 201);
        assert_eq!(log.last_of(3).await, None);
    }
}
