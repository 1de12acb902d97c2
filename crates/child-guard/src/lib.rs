//! A process that starts a server, and ends with everything that the server has started.
//!
//! A process group is not enough to end a server: a process leaves it with `setsid`, and nothing ends it if Fanlight is
//! killed. So Fanlight starts each server through a guard, which is its own binary as `fanlight child-guard`. The guard
//!
//! - is a child subreaper: no descendant of the server can get another parent than a descendant or the guard;
//! - watches Fanlight by its pidfd, and ends the server when Fanlight has ended, however that happened;
//! - exits when the server and all descendants have, as the server did.
//!
//! The guard starts the server by way of `fanlight child-sandbox`, which sees to it that the server ends with its guard,
//! restricts itself if the server has a sandbox, and becomes the server.
//!
//! It is not part of the messages' route: the server has the pipes of Fanlight itself. What to start arrives in front of
//! the server's own input, so that neither arguments nor environment of the guard show it. Linux only; no `unsafe`.

#![cfg(target_os = "linux")]

mod descendants;
mod guard;
mod order;
mod sandbox;

use std::process::ExitCode;

pub use order::{Order, encode_sandbox};

/// The subcommand that is followed by the name of the server.
pub const SUBCOMMAND: &str = "child-guard";

/// The subcommand of the step between a guard and a server, followed by the name of the server.
pub const STEP: &str = "child-sandbox";

/// Asks the guard to end the server: SIGTERM, and SIGKILL after [`Order::grace`].
pub const END: rustix::process::Signal = rustix::process::Signal::TERM;

/// Asks the guard to kill the server at once.
pub const KILL: rustix::process::Signal = rustix::process::Signal::QUIT;

/// The process that `fanlight child-guard` is.
#[must_use]
pub fn run() -> ExitCode {
    match guard::run() {
        Ok(end) => end.imitate(),
        Err(error) => report(&error),
    }
}

/// The process that `fanlight child-sandbox` is, until it is the server.
#[must_use]
pub fn run_sandbox() -> ExitCode {
    sandbox::run()
}

fn report(error: &std::io::Error) -> ExitCode {
    use std::io::Write as _;
    // Standard error is the server's: Fanlight shows operators what is written there.
    let _ = writeln!(std::io::stderr(), "cannot start: {error}");
    ExitCode::from(127)
}
