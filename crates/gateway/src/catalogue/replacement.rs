//! Compares lists when a new topology replaces the current one: which lists differ, and at which
//! endpoints.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::{Endpoint, Parent};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{Catalogue, Catalogues, Change, ListKind};
use crate::topology::{Topology, View};

/// The endpoints at which a list differs from the list of the previous topology.
#[derive(Debug, Default)]
pub(crate) struct Differing {
    /// The list differs at every endpoint, or may, because the previous list is unknown.
    pub(super) everywhere: bool,
    pub(super) endpoints: HashSet<Endpoint>,
}

impl Differing {
    /// Whether the list differs at no endpoint.
    pub(crate) fn is_empty(&self) -> bool {
        !self.everywhere && self.endpoints.is_empty()
    }

    /// Whether the list differs at this endpoint.
    pub(crate) fn includes(&self, endpoint: &Endpoint) -> bool {
        self.everywhere || self.endpoints.contains(endpoint)
    }
}

impl Catalogues {
    /// Prepares to replace `old`: reads the unknown lists whose changes clients listen for, so that
    /// they can be compared with the new ones. Such lists exist because with one server each client
    /// reads its own.
    pub(crate) async fn prepare_replacement(&self, old: &Arc<Topology>, new: &Arc<Topology>) {
        let wanted = Change::ALL
            .into_iter()
            .filter(|change| self.is_wanted(*change));
        let all = wanted.flat_map(|change| self.changed_by(change));
        join_all(all.map(|catalogue| catalogue.prepare_replacement(old, new))).await;
    }

    /// Reads the lists whose changes clients listen for, and returns the endpoints where each
    /// differs from before `new`. Unless `shows_all_the_same`, policy or canaries have changed, and
    /// each list may differ for somebody anywhere.
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

    /// Drops the parts of servers that are in neither topology. Requests that began with `old` may
    /// still need its parts.
    pub(crate) fn retain(&self, old: &Topology, new: &Topology) {
        let is_in = |backend| old.get(backend).is_some() || new.get(backend).is_some();
        let retain = |catalogue: &Catalogue| {
            catalogue.with_state(|state| state.parts.retain(|backend, _| is_in(*backend)));
        };
        self.all.iter().for_each(|catalogue| retain(catalogue));
        self.own.for_each(retain);
    }
}

impl Catalogue {
    /// Reads the list of a topology that is about to be replaced, if it is not known.
    pub(super) async fn prepare_replacement(
        self: &Arc<Self>,
        old: &Arc<Topology>,
        new: &Arc<Topology>,
    ) {
        let is_known = old.transparent_server().is_none() && self.newest_snapshot(old).is_some();
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
        let mut endpoints = HashSet::new();
        for endpoint in self.announcer.endpoints() {
            let [before, after] =
                [old, new].map(|topology| View::for_endpoint(Arc::clone(topology), &endpoint));
            // Computes now what the endpoint shows by the old rules, for the comparison later.
            drop(self.newest_in(&before));
            // The tool that reads shortened results is in no catalogue.
            if self.kind == ListKind::Tools && before.has_results() != after.has_results() {
                endpoints.insert(endpoint);
            }
        }
        self.with_state(|state| {
            state.differs = Differing {
                everywhere: is_unknown,
                endpoints,
            }
        });
    }

    /// Reads the list of the new topology. Returns the endpoints where it differs from the previous
    /// one.
    pub(super) async fn replaced(self: &Arc<Self>, new: &Arc<Topology>) -> Differing {
        // Servers that do not answer within the time for a list are left out.
        let _ = self
            .current(&View::everything(new), &Parent::default())
            .await;
        self.with_state(|state| std::mem::take(&mut state.differs))
    }
}
