//! The limits of a sandbox for memory, processes and open files.

use std::io;

use fanlight_config::settings::Sandbox;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{option, user};

/// Limits this process, and so the server that it becomes.
pub(super) fn set(sandbox: &Sandbox) -> io::Result<()> {
    if sandbox.processes.is_some() && user::is_root(sandbox) {
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
