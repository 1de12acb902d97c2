//! The descendants of this process, found by the parents in `/proc`.

use std::collections::{BTreeMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process};

/// The maximum number of rounds of looking for processes that were started during the last round.
const ROUNDS: usize = 16;

/// Asks all descendants to end. Continues stopped ones, which could not end otherwise.
pub(crate) fn terminate() {
    for pid in all() {
        signal(pid, Signal::TERM);
        signal(pid, Signal::CONT);
    }
}

/// Kills all descendants. Stops them first, so that none can start another meanwhile.
pub(crate) fn kill() {
    let mut stopped = HashSet::new();
    for _ in 0..ROUNDS {
        let found: Vec<Pid> = all()
            .into_iter()
            .filter(|pid| stopped.insert(*pid))
            .collect();
        if found.is_empty() {
            break;
        }
        found.into_iter().for_each(|pid| signal(pid, Signal::STOP));
    }
    stopped
        .into_iter()
        .for_each(|pid| signal(pid, Signal::KILL));
}

/// Signals a descendant. Ended descendants keep their ids until their parents or the guard have
/// waited for them. So an id that was just read can hardly belong to another process.
fn signal(pid: Pid, signal: Signal) {
    // It may have just ended.
    let _ = kill_process(pid, signal);
}

fn all() -> Vec<Pid> {
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
        assert!(all().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!all().contains(&pid));
    }
}
