//! Makes the newest snapshot of a list from its parts, and stores and announces it if it differs
//! from the last one.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Endpoint, Listen};
use tokio_util::task::AbortOnDropHandle;

use super::merging::ReadPart;
use super::part::Part;
use super::snapshot::Snapshot;
use super::view::ListView;
use super::{Catalogue, ListKind, State};
use crate::topology::{BackendId, ByteLimits, Reader, Topology, View, settle_time};

/// Earlier states of a merged list that are kept for clients that are still paging through them.
const GENERATIONS: usize = 3;

/// The least time between two announcements of changes that no server announced. Otherwise a server whose list differs at
/// each request would make clients ask without end.
const UNANNOUNCED: Duration = Duration::from_secs(5);

/// The versions of everything that a snapshot is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    /// The version of the parts.
    version: u64,
    /// The number of the topology.
    topology: u64,
    /// The sum of the generations of the claiming lists. It changes with each of them, since
    /// generations only grow.
    claims: u64,
}

impl Catalogue {
    /// Whether an entry may name a URI that another server claims.
    pub(super) fn needs_claims(&self, topology: &Topology) -> bool {
        let names_uris = |part: &Part| part.loaded.as_ref().is_some_and(|loaded| loaded.names_uris);
        topology.backends().len() > 1
            && !self.claiming.is_empty()
            && (self.with_state(|state| state.parts.values().any(names_uris))
                || self
                    .own
                    .as_ref()
                    .is_some_and(|own| own.shared.needs_claims(topology)))
    }

    /// Merges the parts again if they name URIs whose owners may have changed.
    pub(super) fn reconsider_claims(&self, topology: &Arc<Topology>) {
        if self.needs_claims(topology) && self.newest_snapshot(topology).is_some() {
            self.merge(topology);
        }
    }

    /// The snapshot of the current parts; made again if any part has something new.
    pub(super) fn merge(&self, topology: &Arc<Topology>) -> Arc<Snapshot> {
        let merged = match &self.own {
            None => self.merge_parts(topology),
            Some(own) if own.parts(topology).is_empty() => Some(own.shared.merge(topology))
                .filter(|shared| shared.may_be_seen_by(Some(&own.reader))),
            Some(_) => self.merge_parts(topology),
        };
        merged.unwrap_or_default()
    }

    /// [`Catalogue::merge`] of the catalogue's own parts. A principal's list also takes the common
    /// parts that are not private. Returns `None` if a part has not been read.
    fn merge_parts(&self, topology: &Arc<Topology>) -> Option<Arc<Snapshot>> {
        let _one_at_a_time = self.merging.lock();
        let claiming: Vec<_> = match self.needs_claims(topology) {
            true => self
                .claiming
                .iter()
                .filter_map(|list| list.newest_snapshot(topology))
                .collect(),
            false => Vec::new(),
        };
        let claims = claiming.iter().map(|list| list.generation).sum();
        let of_all = self
            .own
            .as_ref()
            .map_or(0, |own| own.shared.with_state(|state| state.version));
        let (basis, kept) = self.with_state(|state| {
            state.suspect &= state
                .parts
                .values()
                .any(|part| part.reflects < part.announced);
            // Each version only grows, so an equal sum means that both are equal.
            let basis = Basis {
                version: state.version + of_all,
                topology: topology.number,
                claims,
            };
            let is_same = state.merged == Some(basis);
            (
                basis,
                state.newest_of(topology).filter(|_| is_same).cloned(),
            )
        });
        if kept.is_some() {
            return kept;
        }
        let parts: Option<Vec<_>> = topology
            .ids()
            .map(|backend| self.readable_part(backend))
            .collect();
        let Some(parts) = parts else {
            return self.with_state(|state| state.newest_of(topology).cloned());
        };
        let mut snapshot = Snapshot::new(self.kind, parts, topology, &claiming);
        if let Some(previous) = self.with_state(|state| state.snapshots.front().cloned()) {
            snapshot.keep_words(&previous);
        }
        if let Some(own) = &self.own {
            snapshot.reader = Some(own.reader.clone());
            let mut reserved = self.reserve();
            let unlimited = ByteLimits {
                one: usize::MAX,
                all: usize::MAX,
            };
            // Without memory to keep it, the snapshot is made for each request.
            if reserved.grow(snapshot.size(), unlimited).is_err() {
                return Some(Arc::new(snapshot));
            }
            snapshot.reserved = Some(reserved);
        }
        Some(self.accept(basis, Arc::new(snapshot), topology))
    }

    /// The part of a server that goes into a snapshot, if it has been read. A principal's list
    /// takes the principal's own part, or the common part if the principal may see it.
    fn readable_part(&self, backend: BackendId) -> Option<ReadPart> {
        let of = |state: &State| {
            let part = state.parts.get(&backend)?;
            let loaded = part.loaded.as_ref()?;
            let (contribution, needs) = (loaded.contribution.clone(), loaded.needs.clone());
            Some(ReadPart {
                backend,
                contribution,
                needs,
                is_private: part.is_private,
            })
        };
        let Some(own) = &self.own else {
            return self.with_state(|state| of(state));
        };
        let shared = own.shared.with_state(|state| of(state));
        if !own.reader.has_own_part(
            backend,
            shared.as_ref().is_some_and(|shared| shared.is_private),
        ) {
            return shared;
        }
        // The part was read for this principal, so it is private whatever the server says.
        self.with_state(|state| of(state)).map(|part| ReadPart {
            is_private: true,
            ..part
        })
    }

    /// Keeps `snapshot` unless it equals the newest one, whose cursors then stay valid. A snapshot
    /// of an earlier topology serves only the requests that began with that topology.
    fn accept(
        &self,
        basis: Basis,
        snapshot: Arc<Snapshot>,
        topology: &Arc<Topology>,
    ) -> Arc<Snapshot> {
        let previous = self.with_state(|state| state.snapshots.front().cloned());
        let earlier = previous.as_ref().map_or(0, |previous| previous.topology);
        if earlier > snapshot.topology {
            return snapshot;
        }
        let is_same_topology = earlier == snapshot.topology;
        let is_news = !is_same_topology
            || previous
                .as_ref()
                .is_none_or(|previous| !previous.equals(&snapshot));
        let listening = self.announcer.endpoints();
        let reader = self.own.as_ref().map(|own| &own.reader);
        let changed = previous
            .as_ref()
            .map(|previous| changed_at(previous, &snapshot, topology, &listening, reader));
        let (newest, changed, pause) = self.with_state(|state| {
            state.merged = Some(basis);
            if is_news {
                // Lists of an earlier topology would keep its servers alive.
                if !is_same_topology {
                    state.snapshots.clear();
                }
                state.snapshots.push_front(Arc::clone(&snapshot));
                state.snapshots.truncate(GENERATIONS + 1);
            }
            let unseen = std::mem::take(&mut state.changed_unseen);
            let announced = std::mem::take(&mut state.read_announced) || unseen;
            let pause = if announced {
                settle_time()
            } else {
                UNANNOUNCED
            };
            let first = || if unseen { listening } else { Vec::new() };
            let changed = changed.unwrap_or_else(first);
            // The gateway announces a new topology once for all lists that one announcement concerns.
            let changed = match !is_same_topology && previous.is_some() {
                true => {
                    // Readers of their own lists are notified of the differences in the common
                    // list.
                    state.differs.endpoints.extend(changed);
                    Vec::new()
                }
                false => changed,
            };
            (state.snapshots.front().cloned(), changed, pause)
        });
        // Every client's list passes here, so findings are logged once per change. A principal's
        // own list is never logged.
        if is_news && reader.is_none() {
            snapshot.log_findings(previous.as_deref());
            if self.kind == ListKind::Tools && topology.endpoints.has_lean_lists() {
                let making = self.background.spawn(Arc::clone(&snapshot).make_index());
                // An older list that still waits for its turn gets no index.
                self.with_state(|state| state.indexing = Some(AbortOnDropHandle::new(making)));
            }
        }
        if !changed.is_empty() {
            let change = self.kind.change();
            let differing = (previous.as_ref().filter(|_| topology.policy.is_some()))
                .map(|previous| previous.differing_servers(&snapshot));
            let is_visible = |servers: &Vec<BackendId>, listen: &Listen| {
                let view = View::for_client(Arc::clone(topology), &listen.context);
                servers.iter().any(|server| view.shows(*server))
            };
            self.announcer.announce(change, pause, |listen, hearing| {
                changed.contains(listen.context.caller.endpoint())
                    && (reader.is_none() || hearing.reader.as_ref() == reader)
                    && (differing.as_ref()).is_none_or(|servers| is_visible(servers, listen))
            });
        }
        newest.unwrap_or(snapshot)
    }
}

/// The `endpoints` where `reader` is shown other entries of `new` than of `previous`.
fn changed_at(
    previous: &Arc<Snapshot>,
    new: &Arc<Snapshot>,
    topology: &Arc<Topology>,
    endpoints: &[Endpoint],
    reader: Option<&Reader>,
) -> Vec<Endpoint> {
    let is_same_topology = previous.topology == new.topology;
    let everything = View::everything_for(topology, reader);
    let whole = |snapshot| ListView::new(Arc::clone(snapshot), &everything);
    let is_same_whole = whole(previous).offers_the_same(&whole(new));
    let has_changed = |endpoint: &&Endpoint| {
        let view = View::for_endpoint(Arc::clone(topology), endpoint).with_reader(reader);
        let now = ListView::new(Arc::clone(new), &view);
        if is_same_whole && is_same_topology {
            return false;
        }
        let before = match is_same_topology {
            true => Some(ListView::new(Arc::clone(previous), &view)),
            // The endpoint's rules may have changed.
            false => ListView::from_kept(previous, endpoint),
        };
        before.is_none_or(|before| !before.offers_the_same(&now))
    };
    endpoints.iter().filter(has_changed).cloned().collect()
}
