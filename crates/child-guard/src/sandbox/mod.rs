//! The step between a guard and a server. This process ensures that it ends with the guard,
//! restricts itself if the server has a sandbox, and becomes the server.
//!
//! The guard itself must stay unrestricted, since it looks for descendants in `/proc` and signals
//! them. If the system cannot enforce a restriction, that is an error, and the server does not
//! start.

mod files;
mod system_calls;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use fanlight_config::settings::Sandbox;
use landlock::{
    CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetError, RulesetStatus, Scope,
};
use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, geteuid, getppid, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
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
    let user = sandbox.user.as_deref().map(find).transpose()?;
    set(sandbox)?;
    if let Some(landlock) = &sandbox.landlock {
        files::restrict(landlock)?;
    }
    let is_confined = confine();
    limit()?;
    if let Some(user) = user {
        become_user(&user)?;
        describe(command, order, user);
    }
    drop_all()?;
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

/// Confines signals and abstract sockets of this process and its descendants to themselves. Returns
/// whether the system supports that (Linux 6.12).
pub(super) fn confine() -> bool {
    let confined = || -> Result<RulesetStatus, RulesetError> {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?;
        Ok(ruleset.create()?.restrict_self()?.ruleset)
    };
    matches!(confined(), Ok(RulesetStatus::FullyEnforced))
}

/// Limits this process, and so the server that it becomes.
pub(super) fn set(sandbox: &Sandbox) -> io::Result<()> {
    if sandbox.processes.is_some() && is_root(sandbox) {
        return Err(option(
            "processes",
            "the system does not limit the processes of root: set `user` to another",
        ));
    }
    let limits = [
        // Linux counts private writable memory here; programs such as node reserve far more
        // addresses.
        ("memory", Resource::Data, sandbox.memory),
        ("processes", Resource::Nproc, sandbox.processes),
        ("files", Resource::Nofile, sandbox.files),
    ];
    for (name, resource, limit) in limits {
        if let Some(limit) = limit {
            let limit = Rlimit {
                current: Some(limit),
                maximum: Some(limit),
            };
            setrlimit(resource, limit).map_err(|error| option(name, error))?;
        }
    }
    Ok(())
}

/// Prevents programs that this process becomes from getting capabilities. Must precede a change of
/// the user, which removes the right to do this.
pub(super) fn limit() -> io::Result<()> {
    for bit in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // The capability is beyond the last one that the system knows, or the process lacks
            // permission. In the latter case, `no_new_privs` alone prevents their return.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(drop_error(error)),
        }
    }
    Ok(())
}

/// Drops all capabilities of this process for good; it must have set `no_new_privs`.
fn drop_all() -> io::Result<()> {
    // Systems without ambient capabilities report an invalid argument.
    clear_ambient_capability_set().or_else(|error| {
        if error == Errno::INVAL {
            Ok(())
        } else {
            Err(drop_error(error))
        }
    })?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
    .map_err(drop_error)
}

fn drop_error(error: Errno) -> io::Error {
    io::Error::other(format!(
        "sandbox: its capabilities cannot be dropped: {error}"
    ))
}

/// Finds a user by name or id.
pub(super) fn find(user: &str) -> io::Result<User> {
    let found = match user.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(user),
    };
    let found = found.map_err(|error| option("user", error))?;
    let found = found.ok_or_else(|| option("user", format!("there is no user {user:?}")))?;
    if !geteuid().is_root() && found.uid.as_raw() != geteuid().as_raw() {
        return Err(option(
            "user",
            "only root can start processes of another user",
        ));
    }
    Ok(found)
}

/// Changes the user of this process, with the user's group and no other.
fn become_user(user: &User) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    setgroups(&[])
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .map_err(|error| option("user", error))
}

/// Sets the environment variables that describe the user, unless the order sets them.
pub(super) fn describe(command: &mut Command, order: &Order, user: User) {
    let variables: [(&str, OsString); 4] = [
        ("HOME", user.dir.into_os_string()),
        ("LOGNAME", user.name.clone().into()),
        ("SHELL", user.shell.into_os_string()),
        ("USER", user.name.into()),
    ];
    for (name, value) in variables {
        if !order.env.iter().any(|(set, _)| set == name) {
            command.env(name, value);
        }
    }
}

/// Whether the server runs as root.
pub(super) fn is_root(sandbox: &Sandbox) -> bool {
    match &sandbox.user {
        Some(user) => user == "root" || user.parse() == Ok(0),
        None => geteuid().is_root(),
    }
}
