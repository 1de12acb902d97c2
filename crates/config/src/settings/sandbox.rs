//! What the processes of a server are confined to.

use std::path::PathBuf;

/// What a process of a server is confined to. What is absent is not restricted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Files and ports that it can reach.
    pub landlock: Option<Landlock>,
    /// Bytes of private memory of each of its processes.
    pub memory: Option<u64>,
    /// Processes and threads of its user, on the whole machine.
    pub processes: Option<u64>,
    /// Files that each of its processes may have open.
    pub files: Option<u64>,
    /// The name or number of the user that it runs as.
    pub user: Option<String>,
}

/// Files and TCP ports that a process and its descendants can reach, enforced by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landlock {
    /// Files, and folders with all they hold, that can be read and executed.
    pub read: Vec<PathBuf>,
    /// Files, and folders with all they hold, that can be read, executed and changed.
    pub write: Vec<PathBuf>,
    /// TCP ports that can be connected to; `None` for any.
    pub connect: Option<Vec<u16>>,
    /// TCP ports that can be listened on; `None` for any.
    pub bind: Option<Vec<u16>>,
    /// Files and folders that stay out of reach although they are in one of [`SYSTEM_FOLDERS`] that can be read.
    pub except: Vec<PathBuf>,
}

/// Where systems have their programs, libraries and settings.
pub const SYSTEM_FOLDERS: [&str; 6] = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];

impl Sandbox {
    /// Whether nothing is restricted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
