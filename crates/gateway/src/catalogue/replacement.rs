//! Lists when other backends or endpoints replace those of now: which lists differ then, and where.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::{Endpoint, Parent};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{Catalogue, Catalogues, Change};
use crate::topology::{Topology, View};

/// The endpoints at which a list differs from that of an earlier topology.
#[derive(Debug, Default)]
pub(crate) struct Differing {
    /// At all of them, since the earlier list is unknown.
    pub(super) everywhere: bool,
    pub(super) endpoints: HashSet<Endpoint>,
}

impl Differing {
    /// Whether it differs nowhere.
    pub(crate) fn is_empty(&self) -> bool {
        !self.everywhere && self.endpoints.is_empty()
    }

    /// Whether it differs at this endpoint.
    pub(crate) fn includes(&self, endpoint: &Endpoint) -> bool {
        self.everywhere || self.endpoints.contains(endpoint)
    }
}

impl Catalogues {
    /// Gets ready for `new` instead of `old`: reads the lists that clients listen to and that are not known, since with
    /// one backend each client reads its own, so that they can be compared with those of `new`.
    pub(crate) async fn prepare_replacement(&self, old: &Arc<Topology>) {
        let wanted = Change::ALL
            .into_iter()
            .filter(|change| self.is_wanted(*change));
        let all = wanted.flat_map(|change| self.changed_by(change));
        join_all(all.map(|catalogue| catalogue.prepare_replacement(old))).await;
    }

    /// Reads the lists that clients listen to, and returns the changes of those that differ from the lists of the topology
    /// before `new`, each with where they do. By another policy, or other canaries, each may differ for somebody everywhere.
    pub(crate) async fn replaced(
        &self,
        new: &Arc<Topology>,
        shows_all_the_same: bool,
    ) -> Vec<(Change, Differing)> {
        let wanted = Change::ALL
            .into_iter()
            .filter(|change| self.is_wanted(*change));
        let differ = wanted.map(async |change| {
            let mut differing = Differing {
                everywhere: !shows_all_the_same,
                ..Differing::default()
            };
            for one in join_all(
                self.changed_by(change)
                    .map(|catalogue| catalogue.replaced(new)),
            )
            .await
            {
                differing.everywhere |= one.everywhere;
                differing.endpoints.extend(one.endpoints);
            }
            (change, differing)
        });
        join_all(differ).await
    }

    fn is_wanted(&self, change: Change) -> bool {
        let [tools, ..] = &self.all;
        tools.announcer.is_wanted(change)
    }

    /// Drops the parts of backends that are in neither topology: requests that began with `old` may still need theirs.
    pub(crate) fn retain(&self, old: &Topology, new: &Topology) {
        let is_in = |backend| old.get(backend).is_some() || new.get(backend).is_some();
        let retain = |catalogue: &Catalogue| {
            catalogue.with(|state| state.parts.retain(|backend, _| is_in(*backend)))
        };
        self.all.iter().for_each(|catalogue| retain(catalogue));
        self.own.for_each(retain);
    }
}

impl Catalogue {
    /// Reads the list of a topology that is about to be replaced, if it is not known.
    pub(super) async fn prepare_replacement(self: &Arc<Self>, old: &Arc<Topology>) {
        let is_known = old.transparent().is_none() && self.newest(old).is_some();
        let is_unknown = match is_known {
            true => false,
            false => {
                let trace = Parent::default();
                timeout(
                    old.limits.timeout,
                    self.current(&View::everything(old), &trace),
                )
                .await
                .map_or(true, |read| read.list.failures() > 0)
            }
        };
        // What each endpoint shows is found by the rules of now, to be compared with later.
        for endpoint in self.announcer.endpoints() {
            drop(self.newest_in(&View::at(Arc::clone(old), &endpoint)));
        }
        self.with(|state| {
            state.differs = Differing {
                everywhere: is_unknown,
                ..Differing::default()
            }
        });
    }

    /// Reads the list of a topology that has replaced another. Returns where it differs from the earlier one.
    pub(super) async fn replaced(self: &Arc<Self>, new: &Arc<Topology>) -> Differing {
        // Its backends answer in the time for a list, or are left out.
        let _ = self
            .current(&View::everything(new), &Parent::default())
            .await;
        self.with(|state| std::mem::take(&mut state.differs))
    }
}
