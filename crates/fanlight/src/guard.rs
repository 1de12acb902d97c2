//! Keeps child processes from reading Fanlight's secrets and from outliving it.

use std::path::PathBuf;
use std::process::ExitCode;

/// This program itself, whatever has become of its file since it was started.
#[cfg(target_os = "linux")]
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Runs as a guard of a server's process, or as the step into its sandbox, if the command line says so.
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

/// The program that guards the processes of servers, where the system allows that.
pub(crate) fn program() -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    if std::path::Path::new(OWN_PROGRAM).exists() {
        return Some(OWN_PROGRAM.into());
    }
    None
}

/// Keeps processes of the same user, such as those of servers, from reading the memory and the environment of this one:
/// `/proc/<pid>` belongs to root from here on, and there are no core dumps.
pub(crate) fn hide() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(%error, "processes of servers can read the environment of this process");
        }
    }
}
