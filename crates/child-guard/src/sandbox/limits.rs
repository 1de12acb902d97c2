//! The limits of a sandbox on memory, processes and open files.

use std::io;

use fanlight_settings::Sandbox;
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};

use super::option;

/// Limits this process, and with it the server that it becomes.
pub(super) fn set(sandbox: &Sandbox) -> io::Result<()> {
    if sandbox.processes.is_some() && sandbox.user.is_none() && geteuid().is_root() {
        return Err(option("processes", "the system does not limit the processes of root: set `user`, too"));
    }
    let limits = [
        // What Linux counts is memory that is private and writable: programs such as node reserve far more addresses.
        ("memory", Resource::Data, sandbox.memory),
        ("processes", Resource::Nproc, sandbox.processes),
        ("files", Resource::Nofile, sandbox.files),
    ];
    for (name, resource, limit) in limits {
        if let Some(limit) = limit {
            setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) }).map_err(|error| option(name, error))?;
        }
    }
    Ok(())
}
