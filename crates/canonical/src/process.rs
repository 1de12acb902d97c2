//! The output of a server's processes apart from messages, for operators.

use std::sync::Arc;
use std::time::SystemTime;

/// The last lines that a server's processes have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessOutput {
    /// The lines, oldest first.
    pub lines: Vec<ProcessLine>,
    /// The number of earlier lines that are no longer kept.
    pub dropped: u64,
    /// The time when the log began; `None` if there is none. Another time means another log, of a
    /// server that was restarted.
    pub began: Option<SystemTime>,
    /// The running processes, oldest first.
    pub running: Vec<RunningProcess>,
}

/// A running process of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningProcess {
    /// The number in the log.
    pub process: u64,
    /// The process id. On Linux, the id of the guard that started the process and ends with it.
    pub id: Option<u32>,
    /// The owner: Fanlight, a principal or a kind of clients.
    pub owner: String,
    /// When it was started.
    pub since: SystemTime,
}

/// One line that a process has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLine {
    /// The time when the line was read.
    pub at: SystemTime,
    /// The process that wrote it. A server's processes are counted from 1.
    pub process: u64,
    /// The stream that it was written to.
    pub stream: ProcessStream,
    /// The line, with invisible characters escaped; long lines are cut.
    pub text: Arc<str>,
}

fanlight_protocol::named! {
    /// A stream that a process writes to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProcessStream {
        /// Standard error.
        Stderr = "stderr",
        /// Standard output, for a line that was not a message.
        Stdout = "stdout",
    }
}
