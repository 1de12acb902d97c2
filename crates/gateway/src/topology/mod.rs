//! The topology: which backends there are, under which names, with which filters and limits, as one
//! value that never changes.
//!
//! [`CurrentTopology`] holds the newest one. A request takes it once, at its beginning, and uses it to
//! its end. State that outlives a request belongs to a [`BackendId`], never to a backend's position.

mod alias;
mod endpoint;
mod naming;
mod settings;
mod uri_form;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use fanlight_canonical::BackendClient;
use foldhash::fast::RandomState;
use tokio::sync::Notify;

pub use endpoint::{EndpointEntry, EndpointSettings, EntryFilter};
pub(crate) use endpoint::{Endpoints, Filtered};
pub(crate) use naming::client_objection;
pub use naming::{Naming, namings};
pub use settings::{BackendEntry, ByteLimits, ListLimits, ToolFilter};
pub(crate) use view::View;

/// Identifies a backend while this process runs. A backend that a changed configuration keeps has the
/// same id before and after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(u64);

impl BackendId {
    /// An id that no other backend of this process has.
    #[must_use]
    pub fn fresh() -> Self {
        Self(next_number())
    }
}

/// The backends, their names, filters and limits, and the endpoints.
pub(crate) struct Topology {
    number: u64,
    /// In configuration order, which decides merging.
    backends: Vec<Member>,
    /// Where each backend stands in `backends`.
    positions: HashMap<BackendId, usize, RandomState>,
    pub(crate) limits: ListLimits,
    pub(crate) endpoints: Arc<Endpoints>,
}

/// One backend of a topology.
pub(crate) struct Member {
    pub(crate) id: BackendId,
    pub(crate) client: Arc<dyn BackendClient>,
    pub(crate) naming: Naming,
    permits_tool: Option<ToolFilter>,
}

impl Topology {
    pub(crate) fn new(entries: Vec<BackendEntry>, limits: ListLimits, endpoints: EndpointSettings) -> Arc<Self> {
        let named: Vec<_> = entries.iter().map(|entry| (entry.client.name(), entry.prefix.as_deref())).collect();
        let namings = namings(&named);
        let member = |(entry, naming): (BackendEntry, Naming)| {
            let BackendEntry { id, client, permits_tool, .. } = entry;
            Member { id, client, naming, permits_tool }
        };
        let backends: Vec<_> = entries.into_iter().zip(namings).map(member).collect();
        let positions = backends.iter().enumerate().map(|(position, backend)| (backend.id, position)).collect();
        let endpoints = Endpoints::new(endpoints, &backends);
        Arc::new(Self { number: next_number(), backends, positions, limits, endpoints })
    }

    /// Tells topologies apart; a later one has a greater number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The backends in configuration order.
    pub(crate) fn backends(&self) -> &[Member] {
        &self.backends
    }

    /// The ids of the backends in configuration order.
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = BackendId> + ExactSizeIterator + Clone + '_ {
        self.backends.iter().map(|backend| backend.id)
    }

    pub(crate) fn get(&self, backend: BackendId) -> Option<&Member> {
        self.backends.get(self.position(backend)?)
    }

    /// Where a backend stands in configuration order.
    fn position(&self, backend: BackendId) -> Option<usize> {
        self.positions.get(&backend).copied()
    }

    /// The name of a backend; empty for one that is not in this topology.
    pub(crate) fn name(&self, backend: BackendId) -> &str {
        self.get(backend).map_or("", Member::name)
    }

    /// The backend whose alias `uri` is, and the URI that the backend itself has for it.
    pub(crate) fn unalias(&self, uri: &str) -> Option<(&Member, String)> {
        if !alias::has_form(uri) {
            return None;
        }
        self.backends.iter().find_map(|backend| Some((backend, backend.naming.unalias(uri)?)))
    }

    /// The only backend, if there is but one and nothing is renamed or hidden: then everything passes
    /// unchanged, cursors and unknown methods included.
    pub(crate) fn transparent(&self) -> Option<&Member> {
        match self.backends.as_slice() {
            [only] if only.permits_tool.is_none() && only.naming.is_identity() => Some(only),
            _ => None,
        }
    }
}

impl Member {
    /// The name that the configuration gives the backend.
    pub(crate) fn name(&self) -> &str {
        self.client.name()
    }

    /// Whether any of its tools may be hidden.
    pub(crate) fn is_filtered(&self) -> bool {
        self.permits_tool.is_some()
    }

    /// Whether the tool that the backend calls `original` exists for clients.
    pub(crate) fn permits_tool(&self, original: &str) -> bool {
        self.permits_tool.as_ref().is_none_or(|permits| permits(original))
    }
}

impl std::fmt::Debug for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.backends.iter().map(Member::name)).finish()
    }
}

/// The topology that new requests begin with.
pub(crate) struct CurrentTopology {
    value: ArcSwap<Topology>,
    /// Notified of each replacement, for the one task that listens to backends.
    pub(crate) replaced: Notify,
}

impl CurrentTopology {
    pub(crate) fn new(topology: Arc<Topology>) -> Arc<Self> {
        Arc::new(Self { value: ArcSwap::new(topology), replaced: Notify::new() })
    }

    pub(crate) fn load(&self) -> Arc<Topology> {
        self.value.load_full()
    }

    /// Has new requests begin with `topology`. Running ones keep theirs.
    #[cfg(test)]
    pub(crate) fn replace(&self, topology: Arc<Topology>) {
        self.value.store(topology);
        self.replaced.notify_one();
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
