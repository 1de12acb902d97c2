//! The step between a guard and a server with a sandbox: this process restricts itself, then becomes the server.
//!
//! The guard itself must stay unrestricted, since it looks for descendants in `/proc` and signals them. A restriction that
//! the system cannot enforce is an error, and the server is not started.

mod files;
mod limits;
mod user;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use fanlight_settings::Sandbox;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::order::{Order, Unbuffered, read_sandbox};

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
    // No program that belongs to another user, such as `sudo`, gives back what is taken here.
    rustix::thread::set_no_new_privs(true)?;
    if let Some(user) = &sandbox.user {
        user::assume(&mut command, &order, user)?;
    }
    limits::set(&sandbox)?;
    if let Some(landlock) = &sandbox.landlock {
        files::restrict(landlock)?;
    }
    Err(refused(&sandbox, command.exec()))
}

/// Why the program could not be executed.
fn refused(sandbox: &Sandbox, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied if sandbox.landlock.is_some() => {
            let hint = "sandbox.landlock must let it read the program, its interpreter and its libraries";
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
