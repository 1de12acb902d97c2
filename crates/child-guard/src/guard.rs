//! The life of a guard: it starts the server, waits, and ends the remaining processes.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid,
    kill_process, pidfd_open, set_child_subreaper, set_dumpable_behavior, wait,
};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::order::{self, Order, Unbuffered};

/// The pause between attempts to kill the remaining processes: one may have been started during the
/// last attempt.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// The pause between checks of the parent's id, on systems without pidfd.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How the server ended.
pub(crate) enum End {
    Exited(u8),
    Killed(i32),
    /// Unknown: the server could not be ended, or another process waited for it.
    Unknown,
}

impl End {
    /// Ends this process in the same way, so that its parent learns how the server ended.
    pub(crate) fn imitate(self) -> ExitCode {
        match self {
            Self::Exited(code) => ExitCode::from(code),
            Self::Killed(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // Twice, since the standard library's handler for faults passes only the second
                    // on.
                    let _ = kill_process(getpid(), signal);
                    let _ = kill_process(getpid(), signal);
                }
                // Signals that this process handles cannot end it; then use the exit status of
                // shells.
                ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
            }
            Self::Unknown => ExitCode::FAILURE,
        }
    }
}

pub(crate) fn run() -> io::Result<End> {
    // The order contains the server's secrets.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_child_subreaper(Some(getpid()))?;
    // The name in process lists; the guard works without it, too.
    let _ = rustix::thread::set_name(c"fanlight-guard");
    let order: Order = order::read(Unbuffered)?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(guard(&order))
}

async fn guard(order: &Order) -> io::Result<End> {
    // Install handlers first: a signal during the start must not end the guard alone.
    let mut requests = Requests::listen()?;
    let mut ended = signal(SignalKind::child())?;
    let mut parent_gone = parent_gone(order.parent)?;
    let server = start(order)?;
    // Otherwise the ends of the pipes would never be seen.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;

    let mut end = None;
    let mut orphaned = false;
    let mut ending = Ending {
        grace: order.grace,
        kill_at: None,
        give_up_at: None,
    };
    loop {
        let is_alone = reap(server, &mut end);
        if is_alone || ending.is_hopeless() {
            return Ok(end.unwrap_or(End::Unknown));
        }
        if end.is_some() {
            // The server has ended and left processes behind.
            ending.begin();
        }
        tokio::select! {
            _ = ended.recv() => {}
            request = requests.next() => match request {
                Request::End => ending.begin(),
                Request::Kill => ending.kill(),
            },
            _ = &mut parent_gone, if !orphaned => {
                orphaned = true;
                ending.begin();
            }
            () = ending.time_to_kill() => ending.kill(),
        }
    }
}

fn start(order: &Order) -> io::Result<Pid> {
    let mut command = order.command();
    // A separate group: servers signal their own group, which must not reach the guard.
    command.process_group(0);
    Ok(Pid::from_child(&command.spawn()?))
}

/// Waits for all processes that have ended, adopted ones included. Returns whether none is left.
fn reap(server: Pid, end: &mut Option<End>) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == server => *end = Some(outcome(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

fn outcome(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(number)) => End::Killed(number),
        (None, None) => End::Unknown,
    }
}

/// The steps of ending the server and its descendants.
struct Ending {
    grace: Duration,
    /// The time to kill the remaining processes; `None` until ending begins.
    kill_at: Option<Instant>,
    /// The time to leave unkillable processes behind, such as those that wait for a dead file
    /// server.
    give_up_at: Option<Instant>,
}

impl Ending {
    fn begin(&mut self) {
        if self.kill_at.is_none() {
            terminate_descendants();
            self.kill_at = Some(Instant::now() + self.grace);
        }
    }

    fn kill(&mut self) {
        kill_descendants();
        let now = Instant::now();
        self.kill_at = Some(now + KILL_AGAIN);
        self.give_up_at.get_or_insert(now + self.grace);
    }

    async fn time_to_kill(&self) {
        match self.kill_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn is_hopeless(&self) -> bool {
        self.give_up_at.is_some_and(|at| at <= Instant::now())
    }
}

/// Resolves when the process that the server is for has ended.
fn parent_gone(parent: u32) -> io::Result<oneshot::Receiver<()>> {
    let (gone, is_gone) = oneshot::channel();
    // A thread, since waiting for a descriptor otherwise needs `unsafe`. It ends with the guard.
    let watch = std::thread::Builder::new()
        .name("parent".to_owned())
        .stack_size(64 << 10);
    watch.spawn(move || {
        wait_for_parent(parent);
        // Fails if the guard is ending.
        let _ = gone.send(());
    })?;
    Ok(is_gone)
}

fn wait_for_parent(pid: u32) {
    let is_parent =
        || getppid().filter(|parent| u32::try_from(parent.as_raw_nonzero().get()) == Ok(pid));
    let file = is_parent().and_then(|parent| pidfd_open(parent, PidfdFlags::empty()).ok());
    // Checked after the descriptor was opened, so that it does not belong to a later process with
    // the same id.
    while is_parent().is_some() {
        match &file {
            // Readable once the process has ended.
            Some(file) => {
                let _ = poll(&mut [PollFd::new(file, PollFlags::IN)], None);
            }
            // The system has no pidfd.
            None => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

enum Request {
    End,
    Kill,
}

/// The signals with which Fanlight or an operator asks for the end.
struct Requests {
    terminate: Signals,
    interrupt: Signals,
    hangup: Signals,
    quit: Signals,
}

impl Requests {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.quit.recv() => Request::Kill,
            _ = self.terminate.recv() => Request::End,
            _ = self.interrupt.recv() => Request::End,
            _ = self.hangup.recv() => Request::End,
        }
    }
}

/// The maximum number of rounds of looking for processes that were started during the last round.
const ROUNDS: usize = 16;

/// Asks all descendants to end. Continues stopped ones, which could not end otherwise.
fn terminate_descendants() {
    for pid in descendants() {
        send(pid, Signal::TERM);
        send(pid, Signal::CONT);
    }
}

/// Kills all descendants. Stops them first, so that none can start another meanwhile.
fn kill_descendants() {
    let mut stopped = HashSet::new();
    for _ in 0..ROUNDS {
        let found: Vec<Pid> = descendants()
            .into_iter()
            .filter(|pid| stopped.insert(*pid))
            .collect();
        if found.is_empty() {
            break;
        }
        found.into_iter().for_each(|pid| send(pid, Signal::STOP));
    }
    stopped.into_iter().for_each(|pid| send(pid, Signal::KILL));
}

/// Signals a descendant. Ended descendants keep their ids until their parents or the guard have
/// waited for them. So an id that was just read can hardly belong to another process.
fn send(pid: Pid, signal: Signal) {
    // It may have just ended.
    let _ = kill_process(pid, signal);
}

fn descendants() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids {
        let parent = fs::read(format!("/proc/{pid}/stat"))
            .ok()
            .and_then(|stat| parent(&stat));
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = next.pop() {
        let of_parent = children.remove(&parent).unwrap_or_default();
        found.extend(of_parent.iter().filter_map(|pid| Pid::from_raw(*pid)));
        next.extend(of_parent);
    }
    found
}

/// The fourth field of `/proc/<pid>/stat`. The second is a name in parentheses, which may contain
/// anything.
fn parent(stat: &[u8]) -> Option<i32> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_read_after_any_name() {
        assert_eq!(parent(b"12 (a) R 5 6) S 7 12 12 0"), Some(7));
        assert_eq!(parent(b"12 (\xff\n) S 1 12"), Some(1));
        assert_eq!(parent(b"12 (a"), None);
        assert_eq!(parent(b"12 (a)"), None);
    }

    #[test]
    fn children_of_this_process_are_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        assert!(descendants().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants().contains(&pid));
    }
}
