//! The confinement of a server's processes.

use std::path::PathBuf;

/// The confinement of a server's process. Absent members restrict nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// The reachable files and ports.
    pub landlock: Option<Landlock>,
    /// The most bytes of private memory of each process.
    pub memory: Option<u64>,
    /// The most processes and threads of its user on the whole machine.
    pub processes: Option<u64>,
    /// The most open files of each process.
    pub files: Option<u64>,
    /// The name or number of the process's user.
    pub user: Option<String>,
}

/// The files and TCP ports that a process and its descendants can reach; the kernel enforces this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landlock {
    /// Readable and executable files, and folders with their contents.
    pub read: Vec<PathBuf>,
    /// Readable, executable and writable files, and folders with their contents.
    pub write: Vec<PathBuf>,
    /// TCP ports to which it may connect; `None` for any.
    pub connect: Option<Vec<u16>>,
    /// TCP ports on which it may listen; `None` for any.
    pub bind: Option<Vec<u16>>,
    /// Files and folders that stay out of reach although a readable one of [`SYSTEM_FOLDERS`]
    /// contains them.
    pub except: Vec<PathBuf>,
}

/// The folders with a system's programs, libraries and settings.
pub const SYSTEM_FOLDERS: [&str; 6] = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];

impl Sandbox {
    /// Whether nothing is restricted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
