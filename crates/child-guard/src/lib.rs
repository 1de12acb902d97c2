//! A process that starts a server, and ends with everything that the server has started.
//!
//! A process group is not enough to end a server: a process leaves it with `setsid`, and nothing
//! ends it if Fanlight is killed. So Fanlight starts each server through a guard, which is its own
//! binary as `fanlight child-guard`. The guard
//!
//! - is a child subreaper: every descendant of the server keeps a descendant or the guard as its
//!   parent;
//! - watches Fanlight by its pidfd, and ends the server when Fanlight has ended in any way;
//! - exits after the server and all descendants, with the server's status.
//!
//! The guard starts the server through `fanlight child-sandbox`. That process ensures that the
//! server ends with its guard, restricts itself if the server has a sandbox, and becomes the
//! server.
//!
//! Messages do not pass through the guard: the server has Fanlight's own pipes. The order what to
//! start precedes the server's own input, so that the guard's arguments and environment do not show
//! it. Linux only; no `unsafe`.

#![cfg(target_os = "linux")]

mod guard;
mod order;
mod sandbox;

use std::process::ExitCode;

pub use order::{Order, encode};

/// The subcommand for a guard, followed by the name of the server.
pub const SUBCOMMAND: &str = "child-guard";

/// The subcommand for the step between a guard and a server, followed by the name of the server.
pub const STEP: &str = "child-sandbox";

/// Asks the guard to end the server: SIGTERM, and SIGKILL after [`Order::grace`].
pub const END: rustix::process::Signal = rustix::process::Signal::TERM;

/// Asks the guard to kill the server at once.
pub const KILL: rustix::process::Signal = rustix::process::Signal::QUIT;

/// Runs `fanlight child-guard`.
pub fn run() -> ExitCode {
    match guard::run() {
        Ok(end) => end.imitate(),
        Err(error) => report(&error),
    }
}

/// Runs `fanlight child-sandbox`, until the process becomes the server.
pub fn run_sandbox() -> ExitCode {
    sandbox::run()
}

fn report(error: &std::io::Error) -> ExitCode {
    use std::io::Write as _;
    // Standard error is the server's, and Fanlight shows its text to operators.
    let _ = writeln!(std::io::stderr(), "cannot start: {error}");
    ExitCode::from(127)
}
