//! Privileges of root, which a server in a sandbox does not have: it could read what other processes send on this machine,
//! or raise its limits.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Keeps programs that this process becomes from getting capabilities. Before a change of the user, which takes the right to.
pub(super) fn limit() -> io::Result<()> {
    for bit in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // Beyond the last that the system knows, or not permitted to: then `no_new_privs` alone keeps them from coming
            // back.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Takes all capabilities from this process, for good: it must have set `no_new_privs`.
pub(super) fn drop_all() -> io::Result<()> {
    // Systems without ambient capabilities say that the argument is invalid.
    clear_ambient_capability_set().or_else(|error| {
        if error == Errno::INVAL {
            Ok(())
        } else {
            Err(failed(error))
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
    .map_err(failed)
}

fn failed(error: Errno) -> io::Error {
    io::Error::other(format!(
        "sandbox: the system does not take its capabilities: {error}"
    ))
}
