//! Starting a child process in a process group of its own, and ending it with all it started.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};

use super::ProcessSettings;
use crate::log::excerpt;
use fanlight_canonical::BackendError;

/// The interval for polling whether the remaining processes of a group have ended.
const POLL: Duration = Duration::from_millis(20);

/// A process that was just started.
pub(super) struct Spawned {
    pub(super) process: Process,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// A running process and its group.
pub(super) struct Process {
    child: Box<dyn ChildWrapper>,
    group: Option<Pid>,
}

/// Starts the process. Errors name the command, but neither its arguments nor its environment.
pub(super) fn spawn(settings: &ProcessSettings) -> Result<Spawned, BackendError> {
    let mut command = CommandWrap::with_new(&settings.command, |command| {
        command.args(&settings.args).envs(settings.env.iter().map(|(name, value)| (name, value.expose())));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(cwd) = &settings.cwd {
            command.current_dir(cwd);
        }
    });
    let spawned = command.wrap(ProcessGroup::leader()).wrap(KillOnDrop).spawn();
    let mut child = spawned.map_err(|error| unreachable(settings, &reason(&error, settings)))?;
    let pipes = (child.stdin().take(), child.stdout().take(), child.stderr().take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(unreachable(settings, "it has no pipes"));
    };
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    Ok(Spawned { process: Process { child, group }, stdin, stdout, stderr })
}

fn unreachable(settings: &ProcessSettings, reason: &str) -> BackendError {
    let file = Path::new(&settings.command).file_name().unwrap_or_default().to_string_lossy();
    BackendError::Unreachable { reason: format!("cannot start {:?}: {reason}", excerpt(file.as_bytes(), 80)) }
}

fn reason(error: &io::Error, settings: &ProcessSettings) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if settings.cwd.as_ref().is_some_and(|cwd| !cwd.is_dir()) => {
            "its working directory does not exist".into()
        }
        io::ErrorKind::NotFound => "no such command".into(),
        _ => error.to_string(),
    }
}

impl Process {
    /// Waits until the process ends.
    pub(super) async fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Waits for the process, whose standard input has been closed, and makes it end if it does
    /// not; then ends what is left of its group. Bounded, and leaves no zombie. `grace` is the time
    /// that it has to end by itself, then after SIGTERM, then after SIGKILL.
    pub(super) async fn end(&mut self, grace: Duration) {
        if timeout(grace, self.wait()).await.is_err() {
            self.signal(Signal::TERM);
            if timeout(grace, self.wait()).await.is_err() {
                self.signal(Signal::KILL);
                let _ = timeout(grace, self.wait()).await;
            }
        }
        self.end_group(grace).await;
    }

    /// Processes that the child started and left behind are not children of this process: their end can only be polled
    /// for.
    async fn end_group(&mut self, grace: Duration) {
        if self.group_exists() {
            self.signal(Signal::TERM);
            let deadline = Instant::now() + grace;
            while self.group_exists() && Instant::now() < deadline {
                tokio::time::sleep(POLL).await;
            }
            if self.group_exists() {
                self.signal(Signal::KILL);
            }
        }
        // From here on the system may give the number to other processes.
        self.group = None;
    }

    fn group_exists(&self) -> bool {
        self.group.is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The group may have ended just now.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    /// Where there is no time to end it properly, it is killed with all it started.
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
