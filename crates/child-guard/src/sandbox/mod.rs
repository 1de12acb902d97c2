//! The step between a guard and a server. This process ensures that it ends with the guard,
//! restricts itself if the server has a sandbox, and becomes the server.
//!
//! The guard itself must stay unrestricted, since it looks for descendants in `/proc` and signals
//! them. If the system cannot enforce a restriction, that is an error, and the server does not
//! start.

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

use crate::order::{Order, Unbuffered, read};
use system_calls::Protected;

/// Restricts this process as the order on standard input demands, and becomes the server. Returns
/// only if that failed.
pub(crate) fn run() -> ExitCode {
    let error = match become_server() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    crate::report(&error)
}

enum Never {}

fn become_server() -> io::Result<Never> {
    // The order contains the server's secrets.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let sandbox: Sandbox = read(Unbuffered)?;
    let order: Order = read(Unbuffered)?;
    let mut command = order.command();
    if !sandbox.is_empty() {
        restrict(&sandbox, &order, &mut command)?;
    }
    // The guard ends the server and everything that it started. If something ends the guard, the
    // server ends as well. This follows a change of the user, which would reset it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Err(exec_error(&sandbox, command.exec()))
}

/// Restricts this process. The order matters: steps that need privileges precede the loss of those,
/// and the system calls that all steps need are forbidden last.
fn restrict(sandbox: &Sandbox, order: &Order, command: &mut Command) -> io::Result<()> {
    // Programs of another user, such as `sudo`, must not give back what is removed here.
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

/// The error if the program could not be executed.
fn exec_error(sandbox: &Sandbox, error: io::Error) -> io::Error {
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
