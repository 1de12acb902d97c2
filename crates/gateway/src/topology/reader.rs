//! The principal and canaries whose lists a view shows.

use fanlight_canonical::{Caller, Principal};

use super::{BackendId, Topology};

/// Clients that see lists of their own: private lists of a principal, and lists of another version
/// of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reader {
    principal: Principal,
    /// The servers whose canary serves these clients, each with the canary's id. Readings of an
    /// earlier canary are useless.
    moved: Vec<(BackendId, BackendId)>,
}

impl Reader {
    /// The reader that a client belongs to. `None` for clients that get the common lists: those
    /// without authentication, unless a canary serves them.
    pub(crate) fn from_caller(topology: &Topology, caller: &Caller) -> Option<Self> {
        let moved = if topology.has_canaries {
            topology
                .backends()
                .iter()
                .filter_map(|backend| Some((backend.id, backend.canary_of(caller)?.id)))
                .collect()
        } else {
            Vec::new()
        };
        let principal = caller.principal();
        (principal.is_named() || !moved.is_empty()).then(|| Self {
            principal: principal.clone(),
            moved,
        })
    }

    /// The principal that lists are read for.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Whether the canary of this server serves this reader.
    pub(crate) fn is_moved_from(&self, backend: BackendId) -> bool {
        self.moved.iter().any(|(from, _)| *from == backend)
    }

    /// Whether the reader has its own part of this server's list; `is_private` says whether the
    /// server calls its list private.
    pub(crate) fn has_own_part(&self, backend: BackendId, is_private: bool) -> bool {
        (is_private && self.principal.is_named()) || self.is_moved_from(backend)
    }
}

#[cfg(test)]
impl From<Principal> for Reader {
    fn from(principal: Principal) -> Self {
        Self {
            principal,
            moved: Vec::new(),
        }
    }
}
