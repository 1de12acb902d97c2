//! The memory that the process may use: the least of the machine's memory, the limits of its
//! control groups (version 1 and 2), and its resource limit for the address space.

use std::fs;
use std::path::{Path, PathBuf};

use fanlight_config::{Budgets, Config};
use tracing::{debug, warn};

/// The shares of the memory.
pub fn budgets(config: &Config) -> Budgets {
    config.limits.budgets(half_of_memory())
}

/// Half of the memory that the process may use.
fn half_of_memory() -> usize {
    let bounds = [machine(), control_groups(), address_space()];
    let Some(least) = bounds.into_iter().flatten().min() else {
        warn!("cannot find out how much memory this machine has; set limits.memory");
        return UNKNOWN;
    };
    let half = usize::try_from(least / 2).unwrap_or(usize::MAX);
    debug!(
        memory = least,
        used = half,
        "memory for messages of clients and servers"
    );
    half
}

/// The assumption if the memory size is unknown.
const UNKNOWN: usize = 512 << 20;

/// The memory of the machine.
fn machine() -> Option<u64> {
    total(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn total(meminfo: &str) -> Option<u64> {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    total
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1 << 10)
}

fn address_space() -> Option<u64> {
    rlimit::Resource::AS
        .get_soft()
        .ok()
        .filter(|bytes| *bytes != rlimit::INFINITY)
}

/// The least limit of the process's control groups.
fn control_groups() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    least_limit(&groups, |path| fs::read_to_string(path).ok())
}

/// The least limit in `groups`, the content of `/proc/self/cgroup`. In a container the named path
/// may not exist below the mount; then the mount itself is the container's group.
fn least_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let files = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // A limit of any parent applies to its children.
        let parents: Vec<PathBuf> = Path::new(path.trim_start_matches('/'))
            .ancestors()
            .map(PathBuf::from)
            .collect();
        Some(
            parents
                .into_iter()
                .map(move |parent| Path::new(mount).join(parent).join(file)),
        )
    });
    // No limit is "max" in version 2, and in version 1 a number that no machine reaches.
    files
        .flatten()
        .filter_map(|file| read(&file)?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        least_limit(groups, |path| {
            files
                .iter()
                .find(|(name, _)| Path::new(name) == path)
                .map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn limit_is_the_least_of_a_group_and_its_parents() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/memory.max", "2000\n"),
        ];
        assert_eq!(limit("0::/a/b\n", &files), Some(1000));
        assert_eq!(limit("0::/elsewhere\n", &files), Some(2000));
        assert_eq!(limit("0::/\n", &[]), None);
    }

    #[test]
    fn limit_of_version_1_is_found_among_other_controllers() {
        let files = [
            (
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "512\n",
            ),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("/sys/fs/cgroup/cpu/docker/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(
            limit(
                "3:cpu,cpuacct:/docker\n2:hugetlb,memory:/docker\n0::/docker\n",
                &files
            ),
            Some(512)
        );
    }

    #[test]
    fn memory_of_the_machine_is_in_kibibytes() {
        assert_eq!(
            total("MemFree: 1 kB\nMemTotal:       24576 kB\n"),
            Some(24 << 20)
        );
        assert_eq!(total(""), None);
    }
}
