//! Root's capabilities, which a server in a sandbox does not have. With them it could read other
//! processes' network traffic on this machine, or raise its limits.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

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
pub(super) fn drop_all() -> io::Result<()> {
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
