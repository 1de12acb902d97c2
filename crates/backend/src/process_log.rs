//! The output of one server's processes besides messages. The last lines are kept for operators, up
//! to a limit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_canonical::{
    FailureDetails, ProcessLine, ProcessOutput, ProcessStream, RunningProcess,
};
use fanlight_protocol::secret::redacted_text;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// The overhead charged per line, in addition to its text.
const LINE_BYTES: usize = 64;
/// The number of lines of each stream that the error of a failed process repeats, and their length
/// in characters. The admin page shows the whole log.
const REPEATED: (usize, usize) = (4, 200);
/// How long to wait for the rest of a process's output. A constant: it delays only the error of a
/// failed start, which has its own timeout.
const REST: Duration = Duration::from_millis(300);

/// The lines of all processes of one server.
pub(crate) struct ProcessLog {
    /// The limit of all lines, in bytes.
    limit: usize,
    began: SystemTime,
    lines: Mutex<Lines>,
    /// Notified when a process stops writing.
    ended: Notify,
}

#[derive(Default)]
struct Lines {
    kept: VecDeque<ProcessLine>,
    bytes: usize,
    dropped: u64,
    /// The number of processes so far.
    processes: u64,
    /// The processes that still write.
    writing: HashMap<u64, Writing>,
}

/// A process that still writes.
struct Writing {
    /// The number of its [`ProcessLogWriter`]s.
    writers: usize,
    /// The process id.
    id: Option<u32>,
    /// The owner, for operators.
    owner: String,
    since: SystemTime,
    /// The time of its last output on standard error, or of its start.
    last: Instant,
    /// The last non-empty line on standard error.
    last_line: Option<Arc<str>>,
}

impl Lines {
    fn running(&self) -> Vec<RunningProcess> {
        let process = |(number, one): (&u64, &Writing)| RunningProcess {
            process: *number,
            id: one.id,
            owner: one.owner.clone(),
            since: one.since,
        };
        let mut running: Vec<RunningProcess> = self.writing.iter().map(process).collect();
        running.sort_unstable_by_key(|one| one.process);
        running
    }
}

impl ProcessLog {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            began: SystemTime::now(),
            lines: Mutex::default(),
            ended: Notify::new(),
        }
    }

    /// Adds a process with this process id, which begins to write.
    pub(crate) fn process(log: &Arc<Self>, id: Option<u32>) -> ProcessLogWriter {
        let mut lines = log.lines.lock();
        lines.processes += 1;
        let number = lines.processes;
        lines.writing.insert(
            number,
            Writing {
                writers: 1,
                id,
                owner: String::new(),
                since: SystemTime::now(),
                last: Instant::now(),
                last_line: None,
            },
        );
        ProcessLogWriter {
            log: Arc::clone(log),
            number,
        }
    }

    /// All kept lines, and the processes that still write.
    pub(crate) fn output(&self) -> ProcessOutput {
        let lines = self.lines.lock();
        ProcessOutput {
            lines: lines.kept.iter().cloned().collect(),
            dropped: lines.dropped,
            began: Some(self.began),
            running: lines.running(),
        }
    }

    /// The processes that still write.
    pub(crate) fn running_processes(&self) -> Vec<RunningProcess> {
        self.lines.lock().running()
    }

    /// The time of a process's last output on standard error, or of its start; `None` after its
    /// last output.
    pub(crate) fn last_written(&self, process: u64) -> Option<Instant> {
        self.lines
            .lock()
            .writing
            .get(&process)
            .map(|writing| writing.last)
    }

    /// The last standard error line of a process that still writes.
    pub(crate) fn last_line(&self, process: u64) -> Option<Arc<str>> {
        self.lines.lock().writing.get(&process)?.last_line.clone()
    }

    /// The last lines of a process that is ending.
    pub(crate) async fn last_of(&self, process: u64) -> FailureDetails {
        let ended = async {
            loop {
                let ended = self.ended.notified();
                if !self.lines.lock().writing.contains_key(&process) {
                    return;
                }
                ended.await;
            }
        };
        // A process that it left behind may hold the pipe open.
        let _ = timeout(REST, ended).await;
        let lines = self.lines.lock();
        let last = |stream| {
            let of_stream = lines
                .kept
                .iter()
                .rev()
                .filter(|line| line.process == process && line.stream == stream);
            let texts = of_stream
                .map(|line| &*line.text)
                .filter(|text| !text.trim().is_empty());
            let mut last: Vec<Arc<str>> = texts
                .take(REPEATED.0)
                .map(|text| quoted(&redacted_text(text)).into())
                .collect();
            last.reverse();
            last
        };
        FailureDetails {
            stderr: last(ProcessStream::Stderr),
            stdout: last(ProcessStream::Stdout),
            ..FailureDetails::default()
        }
    }
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(REPEATED.1) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Adds the lines of one process. The process counts as writing while it has a writer.
pub(crate) struct ProcessLogWriter {
    log: Arc<ProcessLog>,
    /// The number of the process.
    pub(crate) number: u64,
}

impl ProcessLogWriter {
    fn change(&self, change: impl FnOnce(&mut Writing)) {
        let mut lines = self.log.lines.lock();
        lines.writing.get_mut(&self.number).map(change);
    }

    /// Records whom the process serves.
    pub(crate) fn set_owner(&self, owner: String) {
        self.change(|writing| writing.owner = owner);
    }

    /// Records output on standard error, possibly only part of a line.
    pub(crate) fn is_writing(&self) {
        self.change(|writing| writing.last = Instant::now());
    }

    /// Adds a line, whose text must be visible and limited. The oldest lines make room for it.
    pub(crate) fn add(&self, stream: ProcessStream, text: &str) {
        let bytes = text.len() + LINE_BYTES;
        let mut lines = self.log.lines.lock();
        if stream == ProcessStream::Stderr
            && !text.trim().is_empty()
            && let Some(writing) = lines.writing.get_mut(&self.number)
        {
            writing.last_line = Some(quoted(text).into());
        }
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
        lines.kept.push_back(ProcessLine {
            at: SystemTime::now(),
            process: self.number,
            stream,
            text: text.into(),
        });
    }
}

impl Clone for ProcessLogWriter {
    fn clone(&self) -> Self {
        self.change(|writing| writing.writers += 1);
        Self {
            log: Arc::clone(&self.log),
            number: self.number,
        }
    }
}

impl Drop for ProcessLogWriter {
    fn drop(&mut self) {
        let mut lines = self.log.lines.lock();
        if let Some(writing) = lines.writing.get_mut(&self.number) {
            writing.writers -= 1;
            if writing.writers == 0 {
                lines.writing.remove(&self.number);
                self.log.ended.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &ProcessLog) -> Vec<String> {
        log.output()
            .lines
            .iter()
            .map(|line| line.text.to_string())
            .collect()
    }

    #[test]
    fn oldest_lines_leave_for_new_ones() {
        let log = Arc::new(ProcessLog::new(3 * LINE_BYTES + 3));
        let writer = ProcessLog::process(&log, None);
        ["a", "b", "c", "d"]
            .iter()
            .for_each(|text| writer.add(ProcessStream::Stderr, text));
        assert_eq!(texts(&log), ["b", "c", "d"]);
        writer.add(ProcessStream::Stderr, &"x".repeat(LINE_BYTES));
        assert_eq!(texts(&log).len(), 2);
        writer.add(ProcessStream::Stderr, &"x".repeat(1000));
        assert_eq!((texts(&log).len(), log.output().dropped), (0, 6));
    }

    #[test]
    fn short_lines_are_bounded_too() {
        let log = Arc::new(ProcessLog::new(64 << 10));
        let writer = ProcessLog::process(&log, None);
        (0..100_000).for_each(|_| writer.add(ProcessStream::Stderr, ""));
        assert_eq!(log.output().lines.len(), 1 << 10);
        let none = Arc::new(ProcessLog::new(0));
        ProcessLog::process(&none, None).add(ProcessStream::Stderr, "");
        assert_eq!(none.output().lines.len(), 0);
    }

    #[tokio::test]
    async fn last_lines_are_those_of_one_process() {
        let log = Arc::new(ProcessLog::new(1 << 20));
        let (one, two) = (
            ProcessLog::process(&log, None),
            ProcessLog::process(&log, None),
        );
        (0..9).for_each(|n| one.add(ProcessStream::Stderr, &n.to_string()));
        one.add(ProcessStream::Stdout, " ");
        one.add(ProcessStream::Stdout, "banner");
        two.add(ProcessStream::Stderr, &"y".repeat(300));
        drop(one);
        let last = log.last_of(1).await;
        assert_eq!(
            (last.stderr.join(" "), last.stdout.join(" ")),
            ("5 6 7 8".to_owned(), "banner".to_owned())
        );
        let waiting = log.last_of(2);
        let ending = async move { drop(two) };
        let (last, ()) = tokio::join!(waiting, ending);
        assert_eq!(last.stderr[0].chars().count(), 201);
        assert!(log.last_of(3).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn process_shows_what_it_wrote_last_until_it_ends() {
        let log = Arc::new(ProcessLog::new(0));
        let writer = ProcessLog::process(&log, None);
        let started = log.last_written(1);
        tokio::time::advance(Duration::from_secs(5)).await;
        writer.add(ProcessStream::Stderr, "npm warn");
        writer.add(ProcessStream::Stderr, " ");
        writer.add(ProcessStream::Stdout, "banner");
        writer.is_writing();
        assert_eq!(log.last_line(1).as_deref(), Some("npm warn"));
        let other = ProcessLog::process(&log, Some(7));
        let running = || {
            log.output()
                .running
                .into_iter()
                .map(|one| (one.process, one.id))
                .collect::<Vec<_>>()
        };
        assert_eq!(running(), [(1, None), (2, Some(7))]);
        drop(other);
        assert_eq!(running(), [(1, None)]);
        assert_eq!(
            log.last_written(1),
            started.map(|started| started + Duration::from_secs(5))
        );
        drop(writer);
        assert_eq!((log.last_line(1), log.last_written(1)), (None, None));
    }
}
