//! The newest snapshot of a list: made of the parts, kept if it has something new, and announced.

use std::sync::{Arc, PoisonError};

use fanlight_canonical::Endpoint;

use super::Catalogue;
use super::part::Part;
use super::snapshot::Snapshot;
use super::view::ListView;
use crate::topology::{Topology, View};

/// What a snapshot is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    /// The version of the parts.
    version: u64,
    /// The number of the topology.
    topology: u64,
    /// The sum of the generations of the claiming lists, each of which only grows.
    claims: u64,
}

impl Catalogue {
    /// Whether an entry may name a URI that another backend claims.
    pub(super) fn needs_claims(&self, topology: &Topology) -> bool {
        let names_uris = |part: &Part| part.loaded.as_ref().is_some_and(|loaded| loaded.names_uris);
        topology.backends().len() > 1
            && !self.claiming.is_empty()
            && self.with(|state| state.parts.values().any(names_uris))
    }

    /// Merges the parts again if they name URIs that may have got other owners.
    pub(super) fn reconsider_claims(&self, topology: &Arc<Topology>) {
        if self.needs_claims(topology) && self.newest(topology).is_some() {
            self.merge(topology);
        }
    }

    /// The snapshot of the parts as they are, made again if any has something new.
    pub(super) fn merge(&self, topology: &Arc<Topology>) -> Arc<Snapshot> {
        let _one_at_a_time = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        let claiming: Vec<_> = match self.needs_claims(topology) {
            true => self.claiming.iter().filter_map(|list| list.newest(topology)).collect(),
            false => Vec::new(),
        };
        let claims = claiming.iter().map(|list| list.generation()).sum();
        let parts = self.with(|state| {
            state.suspect &= state.parts.values().any(|part| part.reflects < part.announced);
            let basis = Basis { version: state.version, topology: topology.number(), claims };
            if state.merged == Some(basis) {
                return None;
            }
            let all = topology.ids().map(|backend| {
                let loaded = state.parts.get(&backend)?.loaded.as_ref()?;
                Some((backend, loaded.contribution.clone(), loaded.needs.clone()))
            });
            Some((basis, all.collect::<Option<Vec<_>>>()?))
        });
        match parts {
            Some((basis, parts)) => {
                let snapshot = Snapshot::new(self.kind, parts, topology, &claiming);
                self.accept(basis, Arc::new(snapshot), topology)
            }
            None => self.newest(topology).unwrap_or_default(),
        }
    }

    /// Keeps `snapshot` unless it equals the newest one, whose cursors then stay valid. One of an
    /// earlier topology serves only the requests that began with that.
    fn accept(&self, basis: Basis, snapshot: Arc<Snapshot>, topology: &Arc<Topology>) -> Arc<Snapshot> {
        let limits = &topology.limits;
        let previous = self.with(|state| state.snapshots.front().cloned());
        let earlier = previous.as_ref().map_or(0, |previous| previous.topology());
        if earlier > snapshot.topology() {
            return snapshot;
        }
        let is_same_topology = earlier == snapshot.topology();
        let is_news = !is_same_topology || previous.as_ref().is_none_or(|previous| !previous.equals(&snapshot));
        let listening = self.announcer.endpoints();
        let changed = previous.as_ref().map(|previous| changed_at(previous, &snapshot, topology, &listening));
        let (newest, changed, pause) = self.with(|state| {
            state.merged = Some(basis);
            if is_news {
                // Lists of an earlier topology are dropped, so that they do not keep its backends alive.
                if !is_same_topology {
                    state.snapshots.clear();
                }
                state.snapshots.push_front(Arc::clone(&snapshot));
                state.snapshots.truncate(limits.generations + 1);
            }
            let unseen = std::mem::take(&mut state.changed_unseen);
            let announced = std::mem::take(&mut state.read_announced) || unseen;
            let pause = if announced { limits.settle } else { limits.unannounced };
            let first = || if unseen { listening } else { Vec::new() };
            let changed = changed.unwrap_or_else(first);
            // The gateway announces a new topology once for all lists that one announcement concerns.
            let changed = match !is_same_topology && previous.is_some() {
                true => {
                    state.differs.endpoints.extend(changed);
                    Vec::new()
                }
                false => changed,
            };
            (state.snapshots.front().cloned(), changed, pause)
        });
        // Every client's list passes here: findings are logged once and not each time.
        if is_news {
            snapshot.log_findings(previous.as_deref());
        }
        if !changed.is_empty() {
            self.announcer.announce(self.kind.change(), pause, changed);
        }
        newest.unwrap_or(snapshot)
    }
}

/// Those of `endpoints` that show other entries of `new` than of `previous`.
fn changed_at(
    previous: &Arc<Snapshot>,
    new: &Arc<Snapshot>,
    topology: &Arc<Topology>,
    endpoints: &[Endpoint],
) -> Vec<Endpoint> {
    let is_same_topology = previous.topology() == new.topology();
    let everything = View::everything(topology);
    let whole = |snapshot| ListView::new(Arc::clone(snapshot), &everything);
    let is_same_whole = whole(previous).offers_the_same(&whole(new));
    let has_changed = |endpoint: &&Endpoint| {
        let view = View::of(Arc::clone(topology), endpoint);
        let now = ListView::new(Arc::clone(new), &view);
        if is_same_whole && is_same_topology {
            return false;
        }
        let before = match is_same_topology {
            true => Some(ListView::new(Arc::clone(previous), &view)),
            // Its rules may have been others.
            false => ListView::kept(previous, endpoint),
        };
        before.is_none_or(|before| !before.offers_the_same(&now))
    };
    endpoints.iter().filter(has_changed).cloned().collect()
}
