//! Whose lists a view shows.

use fanlight_canonical::{Caller, Principal};

use super::{BackendId, Topology};

/// Clients that see lists that others do not: those of a principal that are private, and those of another version of a
/// server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reader {
    principal: Principal,
    /// The servers whose canary serves these clients, each with the canary: what was read of an earlier one is of no use.
    moved: Vec<(BackendId, BackendId)>,
}

impl Reader {
    /// Whose lists a client sees; `None` for those that Fanlight reads for itself, which all clients get where none is
    /// authenticated.
    pub(crate) fn of(topology: &Topology, caller: &Caller) -> Option<Self> {
        let moved = match topology.has_canaries() {
            true => topology
                .backends()
                .iter()
                .filter_map(|backend| Some((backend.id, backend.canary_of(caller)?.id)))
                .collect(),
            false => Vec::new(),
        };
        let principal = caller.principal();
        (principal.is_named() || !moved.is_empty()).then(|| Self {
            principal: principal.clone(),
            moved,
        })
    }

    /// In whose name lists are read.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The backends whose canary serves it.
    pub(crate) fn moved_from(&self) -> impl Iterator<Item = BackendId> {
        self.moved.iter().map(|(from, _)| *from)
    }

    /// Whether the canary of this backend serves it.
    pub(crate) fn is_moved_from(&self, backend: BackendId) -> bool {
        self.moved_from().any(|from| from == backend)
    }

    /// Whether its part of this backend's list is its own; `is_private` if the backend says that of everybody's.
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
