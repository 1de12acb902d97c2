//! What a process and its children use, as the kernel counts it in `/proc`.
//!
//! Must not know: which process it is.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use crate::error::{Doing, Result};

/// What a tree of processes has used so far, and holds now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time on a processor, to the nanosecond. Of threads that are still there.
    pub(crate) cpu: Duration,
    /// The part of it spent in the process's own code, to a hundredth of a second.
    pub(crate) user: Duration,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
}

impl Usage {
    /// The usage of `root` and all its descendants.
    pub(crate) fn of_tree(root: u32) -> Result<Self> {
        let mut sum = Self::of_one(root)?;
        for child in descendants(root)? {
            // One that has ended meanwhile uses nothing.
            if let Ok(usage) = Self::of_one(child) {
                sum.cpu += usage.cpu;
                sum.user += usage.user;
                sum.resident += usage.resident;
            }
        }
        Ok(sum)
    }

    fn of_one(pid: u32) -> Result<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).doing(format!("process {pid}"));
        let status = read("status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).map_or(0, kibibytes);
        let ticks = Stat::parse(&read("stat")?).unwrap_or_default();
        // Ticks are a hundredth of a second: too coarse for what takes little. The scheduler's own count is not.
        let cpu = on_cpu(pid).unwrap_or_else(|| ticks.user + ticks.system);
        Ok(Self { cpu, user: ticks.user, resident })
    }
}

/// The time the threads of a process have been running, where the kernel tells.
fn on_cpu(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut nanos = 0;
    for thread in threads {
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        nanos += text.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
    }
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

/// The processes below `root`.
fn descendants(root: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").doing("reading /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).ok().and_then(|text| Stat::parse(&text));
        if let Some(stat) = stat {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        open.extend(&below);
        found.extend(below);
    }
    Ok(found)
}

/// What is read of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stat {
    parent: u32,
    user: Duration,
    system: Duration,
}

impl Stat {
    /// proc(5). The second field, the name, may hold spaces and parentheses; it ends at the last one.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let ticks = |index: usize| Some(Duration::from_millis(fields.get(index)?.parse::<u64>().ok()? * TICK_MILLIS));
        Some(Self { parent: fields.get(1)?.parse().ok()?, user: ticks(11)?, system: ticks(12)? })
    }
}

/// `USER_HZ` is 100 on every architecture that Fanlight runs on.
const TICK_MILLIS: u64 = 10;

fn kibibytes(text: &str) -> u64 {
    text.trim().trim_end_matches(" kB").parse::<u64>().map_or(0, |kib| kib << 10)
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
    fn a_name_may_hold_anything() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 150 25 0 0 20 0 1 0";
        let (user, system) = (Duration::from_millis(1500), Duration::from_millis(250));
        assert_eq!(Stat::parse(text), Some(Stat { parent: 7, user, system }));
        assert_eq!(Stat::parse("nonsense"), None);
    }

    #[test]
    fn this_process_uses_something_and_so_do_its_children() {
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let found = descendants(own).unwrap();
        let (alone, tree) = (Usage::of_one(own).unwrap(), Usage::of_tree(own).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()));
        assert!(alone.cpu > Duration::ZERO && alone.resident > 0);
        assert!(tree.resident > alone.resident);
    }

    #[test]
    fn the_clock_goes_forward() {
        let first = monotonic_nanos();
        assert!(first > 0 && monotonic_nanos() >= first);
    }
}
