//! The resource usage of a process and its children, from `/proc`.

use std::time::Duration;
use std::{fs, io};

use crate::error::{Doing, Result};

/// Processor time and memory of a process and its descendants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time on a processor, to the nanosecond, of threads that have not ended.
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
}

impl Usage {
    /// The usage of `root` and all its descendants.
    pub(crate) fn of_tree(root: u32) -> Result<Self> {
        let mut sum = Self::of_process(root).doing(format!("reading what process {root} uses"))?;
        let mut parents = vec![root];
        let processes = parents_of_all().doing("reading /proc")?;
        while let Some(parent) = parents.pop() {
            for (child, _) in processes.iter().filter(|(_, of)| *of == parent) {
                // A child that has ended meanwhile uses nothing.
                let usage = Self::of_process(*child).unwrap_or_default();
                sum.cpu += usage.cpu;
                sum.resident += usage.resident;
                parents.push(*child);
            }
        }
        Ok(sum)
    }

    fn of_process(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let mut cpu = Duration::ZERO;
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            // The scheduler's own count, since ticks are too coarse for short work.
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let nanos = text
                .split_ascii_whitespace()
                .next()
                .and_then(|nanos| nanos.parse().ok());
            cpu += Duration::from_nanos(nanos.unwrap_or(0));
        }
        Ok(Self {
            cpu,
            resident: number_after(&status, "VmRSS:").unwrap_or(0) << 10,
        })
    }
}

/// Every process, and its parent.
fn parents_of_all() -> io::Result<Vec<(u32, u32)>> {
    let pids = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let with_parent = |pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some((pid, u32::try_from(number_after(&status, "PPid:")?).ok()?))
    };
    Ok(pids.filter_map(with_parent).collect())
}

/// The number in the line of `/proc/<pid>/status` that begins with `name`.
fn number_after(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Nanoseconds of a clock that all processes of this machine share.
pub(crate) fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn usage_includes_children() {
        let own = std::process::id();
        let alone = Usage::of_tree(own).unwrap();
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (tree, of_child) = (
            Usage::of_tree(own).unwrap(),
            Usage::of_tree(child.id()).unwrap(),
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alone.cpu > Duration::ZERO && of_child.resident > 0);
        assert!(tree.resident > of_child.resident);
    }

    #[test]
    fn monotonic_clock_does_not_go_back() {
        let first = monotonic_nanos();
        assert!(first > 0 && monotonic_nanos() >= first);
    }
}
