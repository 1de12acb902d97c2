//! The user of a sandbox.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use fanlight_settings::Sandbox;
use nix::unistd::{Uid, User};
use rustix::process::geteuid;

use super::option;
use crate::order::Order;

/// Has the command run as a user, given by name or number: with the user's group and no other. The variables that describe
/// the user are set unless the order sets them.
pub(super) fn assume(command: &mut Command, order: &Order, user: &str) -> io::Result<()> {
    let found = match user.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(user),
    };
    let found = found.map_err(|error| option("user", error))?;
    let found = found.ok_or_else(|| option("user", format!("there is no user {user:?}")))?;
    if geteuid().is_root() {
        // The standard library drops all other groups.
        command.uid(found.uid.as_raw()).gid(found.gid.as_raw());
    } else if found.uid.as_raw() != geteuid().as_raw() {
        return Err(option("user", "only root can start processes of another user"));
    }
    let name = found.name;
    let variables = [
        ("HOME", found.dir.into_os_string()),
        ("LOGNAME", name.clone().into()),
        ("SHELL", found.shell.into_os_string()),
        ("USER", name.into()),
    ];
    for (name, value) in variables {
        if !order.env.iter().any(|(set, _)| set == name) {
            command.env(name, value);
        }
    }
    Ok(())
}

/// Whether the server runs as root.
pub(super) fn is_root(sandbox: &Sandbox) -> bool {
    match &sandbox.user {
        Some(user) => user == "root" || user.parse() == Ok(0),
        None => geteuid().is_root(),
    }
}
