//! What the processes of a backend have written besides messages, for operators.

use std::sync::Arc;
use std::time::SystemTime;

/// The last lines that the processes of a backend have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessOutput {
    /// Oldest first.
    pub lines: Vec<ProcessLine>,
    /// Earlier lines that are not kept any more.
    pub dropped: u64,
    /// When the log began; `None` if there is none. One that began at another time is another log, of a backend that was
    /// started anew.
    pub began: Option<SystemTime>,
    /// The processes that run, the oldest first.
    pub running: Vec<RunningProcess>,
}

/// A process of a backend that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningProcess {
    /// Its number in the log.
    pub process: u64,
    /// Its id in the system. On Linux, that of the guard that has started it and ends with it.
    pub id: Option<u32>,
    /// When it was started.
    pub since: SystemTime,
}

/// One line that a process has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLine {
    /// When it was read.
    pub at: SystemTime,
    /// Which process wrote it: processes of a backend are counted from 1.
    pub process: u64,
    /// Where it was written to.
    pub stream: ProcessStream,
    /// The line, with escapes for what cannot be seen; long lines are cut.
    pub text: Arc<str>,
}

/// Where a process writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessStream {
    /// Standard error.
    Stderr,
    /// Standard output: a line that was no message.
    Stdout,
}

impl ProcessStream {
    /// Its name in the operators' API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Stdout => "stdout",
        }
    }
}
