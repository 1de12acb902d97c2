//! Keeps child processes from reading Fanlight's secrets and from outliving it.

use std::path::PathBuf;
use std::process::ExitCode;

/// The program of this process, even if its file has been replaced since the start.
#[cfg(target_os = "linux")]
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Runs as the guard of a server's process, or as the step into its sandbox, if the command line
/// says so.
pub(crate) fn run() -> Option<ExitCode> {
    #[cfg(target_os = "linux")]
    {
        let command = std::env::args_os().nth(1)?;
        if command == fanlight_child_guard::SUBCOMMAND {
            return Some(fanlight_child_guard::run());
        }
        if command == fanlight_child_guard::STEP {
            return Some(fanlight_child_guard::run_sandbox());
        }
    }
    None
}

/// The program that guards the servers' processes, if the system supports that.
pub(crate) fn program() -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    if std::path::Path::new(OWN_PROGRAM).exists() {
        return Some(OWN_PROGRAM.into());
    }
    None
}

/// Keeps other processes of the same user, such as servers, from reading this one's memory and
/// environment. From here on `/proc/<pid>` belongs to root, and there are no core dumps.
pub(crate) fn hide() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(%error, "processes of servers can read the environment of this process");
        }
    }
}
