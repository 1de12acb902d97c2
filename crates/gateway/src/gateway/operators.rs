//! What operators see of the backends and endpoints.

use std::collections::HashMap;
use std::time::SystemTime;

use fanlight_canonical::{BackendState, BackendStatus, Endpoint, EndpointStatus, ProcessOutput};
use fanlight_protocol::Json;
use fanlight_protocol::result::ResultView as _;
use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::Gateway;
use crate::catalogue::ListKind;
use crate::topology::Member;

impl Gateway {
    /// All endpoints with their paths, in configuration order.
    #[must_use]
    pub fn endpoints(&self) -> Vec<(String, Endpoint)> {
        self.topology.load().endpoints.list()
    }

    /// The names of the backends that an endpoint shows.
    #[must_use]
    pub fn shown_backends(&self, endpoint: &Endpoint) -> Vec<String> {
        self.view(endpoint).backends().map(|backend| backend.name().to_owned()).collect()
    }

    /// The state of every backend, in configuration order.
    #[must_use]
    pub fn status(&self) -> Vec<(String, BackendStatus)> {
        let topology = self.topology.load();
        topology.backends().iter().map(|backend| (backend.name().to_owned(), backend.client.status())).collect()
    }

    /// The endpoints of the backends that have several, by backend.
    #[must_use]
    pub fn endpoints_of_backends(&self) -> HashMap<String, Vec<EndpointStatus>> {
        let topology = self.topology.load();
        let all = topology.backends().iter().map(|backend| (backend.name().to_owned(), backend.client.endpoints()));
        all.filter(|(_, endpoints)| !endpoints.is_empty()).collect()
    }

    /// The backends whose list was read in an earlier run of Fanlight and not yet in this one, and when it was.
    #[must_use]
    pub fn kept_lists(&self, kind: ListKind) -> HashMap<String, SystemTime> {
        let topology = self.topology.load();
        let kept = self.lists.catalogues.of(kind).kept_since();
        kept.into_iter().map(|(backend, read)| (topology.name(backend).to_owned(), read)).collect()
    }

    /// What the backends whose whole list is known, and the same for all clients, call their entries themselves, by backend.
    /// That of one that is connected and does not offer the list is known to be empty, also if nobody has read it.
    #[must_use]
    pub fn own_names(&self, kind: ListKind) -> HashMap<String, Vec<String>> {
        let topology = self.topology.load();
        let mut read = self.lists.catalogues.of(kind).own_names();
        let known = topology.backends().iter().filter_map(|backend| {
            let names = read.remove(&backend.id).or_else(|| lacks(backend, kind).then(Vec::new))?;
            Some((backend.name().to_owned(), names))
        });
        known.collect()
    }

    /// How the backend called `name` describes itself, as far as that is known without connecting to it; `None` if there is
    /// no such backend.
    pub async fn description_of(&self, name: &str) -> Option<Option<Json>> {
        let topology = self.topology.load();
        let backend = topology.backends().iter().find(|backend| backend.name() == name)?;
        if !is_connected(backend) {
            return Some(None);
        }
        let description = timeout(topology.limits.timeout, backend.client.describe()).await;
        Some(description.ok().and_then(Result::ok).map(|description| description.json().clone()))
    }

    /// What the processes of the backend called `name` have written besides messages; `None` if there is no such backend.
    #[must_use]
    pub fn process_output(&self, name: &str) -> Option<ProcessOutput> {
        let topology = self.topology.load();
        let backend = topology.backends().iter().find(|backend| backend.name() == name)?;
        Some(backend.client.process_output())
    }
}

fn is_connected(backend: &Member) -> bool {
    matches!(backend.client.status().state, BackendState::Ready | BackendState::Ejected { .. })
}

/// Whether a backend is known not to have a list.
fn lacks(backend: &Member, kind: ListKind) -> bool {
    let description = is_connected(backend).then(|| backend.client.describe().now_or_never()).flatten();
    description.is_some_and(|described| {
        described.is_ok_and(|it| !it.capabilities().is_some_and(|all| kind.is_offered_by(&all)))
    })
}
