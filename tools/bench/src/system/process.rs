//! A process under test, pinned to a processor, which ends with its owner.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::error::{BenchError, Doing, Result, within};

/// The number of unread output lines that are kept.
const LINES: usize = 1000;

/// The processors of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Only this one.
    One(usize),
    /// Any processor.
    Any,
}

/// A running process and the group of its descendants; dropping it kills them.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    pid: u32,
    lines: mpsc::Receiver<String>,
}

/// The folder and the variables of a process, besides those inherited from this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) variables: Vec<(String, String)>,
}

impl Process {
    /// Starts `program`.
    pub(crate) fn start(
        name: &str,
        program: &Path,
        args: &[OsString],
        cores: Cores,
    ) -> Result<Self> {
        Self::start_in(name, program, args, cores, &Surroundings::default())
    }

    /// Starts `program` in this folder and with these variables.
    pub(crate) fn start_in(
        name: &str,
        program: &Path,
        args: &[OsString],
        cores: Cores,
        surroundings: &Surroundings,
    ) -> Result<Self> {
        let mut process = Self::spawn(name, program, args, cores, false, surroundings)?;
        let (sender, lines) = mpsc::channel(LINES);
        if let Some(output) = process.child.stdout.take() {
            tokio::spawn(forward(output, sender.clone()));
        }
        if let Some(output) = process.child.stderr.take() {
            tokio::spawn(forward(output, sender));
        }
        process.lines = lines;
        Ok(process)
    }

    /// Starts `program` as a stdio server; its standard error is discarded.
    pub(crate) fn piped(
        name: &str,
        program: &Path,
        args: &[OsString],
        cores: Cores,
    ) -> Result<(Self, ChildStdin, ChildStdout)> {
        let mut process = Self::spawn(name, program, args, cores, true, &Surroundings::default())?;
        let missing = || BenchError::Other(format!("{name} has no pipes"));
        let input = process.child.stdin.take().ok_or_else(missing)?;
        let output = process.child.stdout.take().ok_or_else(missing)?;
        Ok((process, input, output))
    }

    fn spawn(
        name: &str,
        program: &Path,
        args: &[OsString],
        cores: Cores,
        piped: bool,
        surroundings: &Surroundings,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(args)
            .process_group(0)
            .kill_on_drop(true)
            .stdout(Stdio::piped());
        command.envs(
            surroundings
                .variables
                .iter()
                .map(|(name, value)| (name, value)),
        );
        if let Some(folder) = &surroundings.folder {
            command.current_dir(folder);
        }
        command.stdin(if piped { Stdio::piped() } else { Stdio::null() });
        command.stderr(if piped { Stdio::null() } else { Stdio::piped() });
        // Logging every request would distort the measurement.
        command.env_remove("RUST_LOG");
        let child = on_cores(cores, || command.spawn().doing(format!("starting {name}")))?;
        let pid = child
            .id()
            .ok_or_else(|| BenchError::Other(format!("{name} has ended at once")))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            pid,
            lines: mpsc::channel(1).1,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for an output line that contains `part`, and returns the rest of the line after it.
    pub(crate) async fn line_after(&mut self, part: &str) -> Result<String> {
        let mut seen = String::new();
        let name = self.name.clone();
        let found = async {
            while let Some(line) = self.lines.recv().await {
                if let Some((_, rest)) = line.split_once(part) {
                    return Ok(rest.trim().to_owned());
                }
                seen = seen + &line + "\n";
            }
            Err(BenchError::Other(format!(
                "{name} ended without saying {part:?}:\n{seen}"
            )))
        };
        within(&format!("{} to say {part:?}", self.name), 120, found).await
    }

    /// An error with its last output lines, if the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self
            .child
            .try_wait()
            .doing(format!("looking after {}", self.name))?
        else {
            return Ok(());
        };
        let mut lines = Vec::new();
        while let Ok(line) = self.lines.try_recv() {
            lines.push(line);
        }
        let last = lines.split_off(lines.len().saturating_sub(5)).join(" / ");
        Err(BenchError::Other(format!(
            "{} ended with {status}: {last}",
            self.name
        )))
    }

    /// Waits for the process's end for at most `seconds`; returns its output, or an error if it
    /// fails.
    pub(crate) async fn finish(mut self, seconds: u64) -> Result<Vec<String>> {
        let what = format!("{} to finish", self.name);
        let done = async {
            let mut lines = Vec::new();
            while let Some(line) = self.lines.recv().await {
                lines.push(line);
            }
            let status = self
                .child
                .wait()
                .await
                .doing(format!("waiting for {}", self.name))?;
            if status.success() {
                return Ok(lines);
            }
            let last = lines.split_off(lines.len().saturating_sub(5)).join(" / ");
            Err(BenchError::Other(format!(
                "{} ended with {status}: {last}",
                self.name
            )))
        };
        within(&what, seconds, done).await
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }

    /// Sends SIGTERM, and kills the process if it does not end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.terminate();
        self.lines.close();
        match tokio::time::timeout(Duration::from_secs(20), self.child.wait()).await {
            Ok(ended) => ended.map(drop).doing(format!("waiting for {}", self.name)),
            Err(_) => self
                .child
                .kill()
                .await
                .doing(format!("ending {}", self.name)),
        }
    }
}

impl Drop for Process {
    /// Kills descendants that it has left behind.
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

async fn forward(output: impl AsyncRead + Unpin, sender: mpsc::Sender<String>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // If the channel is closed or full, lines are dropped, so that the process does not block.
        let _ = sender.try_send(line);
    }
}

/// Runs `start` with this thread on the given processors, which children inherit.
pub(crate) fn on_cores<T>(cores: Cores, start: impl FnOnce() -> Result<T>) -> Result<T> {
    let Cores::One(core) = cores else {
        return start();
    };
    let before = sched_getaffinity(None).doing("asking where this process runs")?;
    pin(core)?;
    let started = start();
    sched_setaffinity(None, &before).doing("moving back to where this process ran")?;
    started
}

/// Keeps this thread on one processor.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).doing(format!("moving to processor {core}"))
}

/// The processors this process may run on.
pub(crate) fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(None).ok();
    (0..CpuSet::MAX_CPU)
        .filter(|core| allowed.is_some_and(|allowed| allowed.is_set(*core)))
        .collect()
}

/// Raises the limit on open files of this process and its children as far as the system allows;
/// returns it.
pub(crate) fn raise_file_limit(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: Some(wanted),
        maximum: Some(now.maximum.map_or(wanted, |most| most.max(wanted))),
    };
    if now.current.is_none_or(|current| current >= wanted)
        || setrlimit(Resource::Nofile, raised).is_ok()
    {
        return wanted;
    }
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: now.maximum,
            ..now
        },
    );
    getrlimit(Resource::Nofile).current.unwrap_or(wanted)
}
