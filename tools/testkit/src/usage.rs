//! A process's use of the machine, from `/proc`.

use std::time::Duration;
use std::{fs, io};

/// The unit of times in `/proc/<pid>/stat`: Linux shows hundredths of a second on every machine.
const TICK: Duration = Duration::from_millis(10);

/// The peak of the resident memory so far, in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// The resident memory, in bytes.
pub fn resident_memory(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    value.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The processor time of all threads so far.
pub fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in brackets may contain spaces. The state follows it; `utime` and `stime` are the
    // 14th and 15th fields of the line.
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let ticks = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u32>().unwrap())
        .sum::<u32>();
    TICK * ticks
}

/// The total time for which its threads have waited for a processor: the most that a loaded machine
/// adds to everything that the process does. Zero if the kernel does not count it.
pub fn processor_wait(pid: u32) -> Duration {
    of_threads(pid, 1)
}

/// The processor time of its threads that have not ended, to the nanosecond. Zero if the kernel
/// does not count it.
pub fn processor_time_of_threads(pid: u32) -> Duration {
    of_threads(pid, 0)
}

/// The sum of a field of `schedstat`, in nanoseconds.
fn of_threads(pid: u32, field: usize) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Duration::ZERO;
    };
    // A thread may have ended meanwhile.
    let one = |thread: io::Result<fs::DirEntry>| {
        let schedstat = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        schedstat
            .split_whitespace()
            .nth(field)?
            .parse()
            .ok()
            .map(Duration::from_nanos)
    };
    threads.filter_map(one).sum()
}

/// The number of open files.
pub fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The number of open TCP connections to a port of this machine, seen from the listener's side.
pub fn connections(port: u16) -> usize {
    const ESTABLISHED: &str = "01";
    const CLOSE_WAIT: &str = "08";
    let tables = ["tcp", "tcp6"]
        .map(|table| fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
    let local = format!(":{port:04X}");
    let is_open = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        fields
            .next()
            .is_some_and(|address| address.ends_with(&local))
            && fields
                .nth(1)
                .is_some_and(|state| [ESTABLISHED, CLOSE_WAIT].contains(&state))
    };
    tables
        .iter()
        .flat_map(|table| table.lines())
        .filter(is_open)
        .count()
}

/// The number of threads whose name begins with this text.
pub fn threads(pid: u32, name: &str) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names =
        threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).unwrap());
    names.filter(|own| own.starts_with(name)).count()
}

/// The soft and hard limit on open files.
pub fn max_files(pid: u32) -> (u64, u64) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .unwrap();
    let mut files = files
        .split_whitespace()
        .map_while(|number| number.parse().ok());
    (files.next().unwrap(), files.next().unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_plausible() {
        let own = std::process::id();
        assert!(resident_memory(own) > 0 && peak_memory(own) > 0);
        assert!(open_files(own) >= 3 && max_files(own).0 >= 3 && threads(own, "") >= 1);
        let before = processor_time(own);
        while processor_time(own) < before + TICK {}
    }
}
