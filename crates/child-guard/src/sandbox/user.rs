//! The user of a sandbox.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use fanlight_config::settings::Sandbox;
use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use rustix::process::geteuid;

use super::option;
use crate::order::Order;

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
pub(super) fn become_user(user: &User) -> io::Result<()> {
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
