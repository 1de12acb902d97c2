//! The step between a guard and a server: this process has itself ended with the guard, restricts itself if the server has
//! a sandbox, and becomes the server.
//!
//! The guard itself must stay unrestricted, since it looks for descendants in `/proc` and signals them. A restriction that
//! the system cannot enforce is an error, and the server is not started.

mod capabilities;
mod files;
mod limits;
mod signals;
mod system_calls;
mod user;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use fanlight_config::settings::Sandbox;
use rustix::process::{
    DumpableBehavior, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal,
};

use crate::order::{Order, Unbuffered, read_sandbox};
use system_calls::Protected;

/// Restricts this process as the order on standard input says, and becomes the server. Returns only if that failed.
pub(crate) fn run() -> ExitCode {
    let error = match become_server() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    crate::report(&error)
}

enum Never {}

fn become_server() -> io::Result<Never> {
    // The order holds the server's secrets.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let sandbox = read_sandbox(Unbuffered)?;
    let order = Order::read(Unbuffered)?;
    let mut command = order.command();
    if !sandbox.is_empty() {
        restrict(&sandbox, &order, &mut command)?;
    }
    // The guard ends the server and all that it has started. Should something end the guard, the server goes with it. After
    // a change of the user, which resets it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Err(refused(&sandbox, command.exec()))
}

/// Restricts this process. The order counts: what needs privileges comes before they are given up, and the calls that all
/// this takes are forbidden last.
fn restrict(sandbox: &Sandbox, order: &Order, command: &mut Command) -> io::Result<()> {
    // No program that belongs to another user, such as `sudo`, gives back what is taken here.
    rustix::thread::set_no_new_privs(true)?;
    let guard = getppid().ok_or_else(|| io::Error::other("its guard is in another namespace"))?;
    let user = sandbox.user.as_deref().map(user::find).transpose()?;
    limits::set(sandbox)?;
    if let Some(landlock) = &sandbox.landlock {
        files::restrict(landlock)?;
    }
    let is_confined = signals::confine();
    capabilities::limit()?;
    if let Some(user) = user {
        user::become_user(&user)?;
        user::describe(command, order, user);
    }
    capabilities::drop_all()?;
    let protected = Protected {
        guard,
        fanlight: order.parent,
    };
    system_calls::forbid(sandbox, (!is_confined).then_some(&protected))
}

/// Why the program could not be executed.
fn refused(sandbox: &Sandbox, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied if sandbox.landlock.is_some() => {
            let hint =
                "sandbox.landlock must let it read the program, its interpreter and its libraries";
            io::Error::new(error.kind(), format!("{error}: {hint}"))
        }
        io::ErrorKind::PermissionDenied if sandbox.user.is_some() => {
            let hint = "sandbox.user needs Fanlight to run as root, and a program and a folder that the user may use";
            io::Error::new(error.kind(), format!("{error}: {hint}"))
        }
        _ => error,
    }
}

/// An error that names the option.
fn option(name: &str, why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("sandbox.{name}: {why}"))
}
