//! The state of servers and endpoints, for operators.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::{
    BackendClient, BackendState, BackendStatus, CallContext, CanaryStatus, Endpoint,
    EndpointStatus, MirrorStatus, ProcessOutput, RunningProcess,
};
use fanlight_protocol::Json;
use fanlight_protocol::result::{ResultView as _, ServerDescription};
use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::Gateway;
use crate::catalogue::ListKind;
use crate::topology::Member;

impl Gateway {
    /// All endpoints with their paths, in configuration order.
    pub fn endpoints(&self) -> Vec<(String, Endpoint)> {
        self.topology.load().endpoints.list()
    }

    /// The names of the servers that an endpoint shows.
    pub fn shown_backends(&self, endpoint: &Endpoint) -> Vec<String> {
        self.view(endpoint)
            .backends()
            .map(|backend| backend.name().to_owned())
            .collect()
    }

    /// The state of every server in configuration order, followed by canaries and other versions of
    /// them.
    pub fn status(&self) -> Vec<(String, BackendStatus)> {
        let topology = self.topology.load();
        topology
            .clients()
            .map(|client| (client.name().to_owned(), client.status()))
            .collect()
    }

    /// The state of the servers that clients use, without other versions of them.
    pub fn status_of_shown(&self) -> Vec<BackendStatus> {
        self.topology
            .load()
            .backends()
            .iter()
            .map(|backend| backend.client.status())
            .collect()
    }

    /// The canaries and mirrors of servers, by server name.
    pub fn versions_of_backends(
        &self,
    ) -> HashMap<String, (Option<CanaryStatus>, Option<MirrorStatus>)> {
        let topology = self.topology.load();
        let all = topology.backends().iter().map(|backend| {
            let canary = backend.canary.as_ref().map(|canary| CanaryStatus {
                server: canary.client.name().into(),
                rule: Arc::clone(&canary.rule),
                status: canary.client.status(),
            });
            let mirror = backend.mirror.as_ref().map(|mirror| mirror.status());
            (backend.name().to_owned(), (canary, mirror))
        });
        all.filter(|(_, (canary, mirror))| canary.is_some() || mirror.is_some())
            .collect()
    }

    /// The endpoints of the servers that have several, by server name.
    pub fn endpoints_of_backends(&self) -> HashMap<String, Vec<EndpointStatus>> {
        let topology = self.topology.load();
        let all = topology
            .clients()
            .map(|client| (client.name().to_owned(), client.parts().endpoints));
        all.filter(|(_, endpoints)| !endpoints.is_empty()).collect()
    }

    /// The servers whose list comes from an earlier run of Fanlight, with the time of reading.
    pub fn kept_lists(&self, kind: ListKind) -> HashMap<String, SystemTime> {
        let topology = self.topology.load();
        let kept = self.lists.catalogues.common(kind).kept_since();
        kept.into_iter()
            .map(|(backend, read)| (topology.name(backend).to_owned(), read))
            .collect()
    }

    /// The original names and definitions of the entries, for each server whose whole list is
    /// known.
    ///
    /// Private lists are included only `with_private`, as Fanlight itself is shown them. A
    /// connected server that does not offer the list counts as having an empty one, even if nobody
    /// has read it.
    pub fn own_entries(
        &self,
        kind: ListKind,
        with_private: bool,
    ) -> HashMap<String, Vec<(String, Json)>> {
        let topology = self.topology.load();
        let mut read = self.lists.catalogues.common(kind).own_entries(with_private);
        let known = topology.backends().iter().filter_map(|backend| {
            let entries = read
                .remove(&backend.id)
                .or_else(|| lacks(backend, kind).then(Vec::new))?;
            Some((backend.name().to_owned(), entries))
        });
        known.collect()
    }

    /// The instructions of the connected servers that have some, by server name.
    pub fn own_instructions(&self) -> HashMap<String, Json> {
        let topology = self.topology.load();
        let known = topology.backends().iter().filter_map(|backend| {
            let instructions = described(backend)?.instructions()?;
            Some((backend.name().to_owned(), instructions))
        });
        known.collect()
    }

    /// The description of the server called `name`, if Fanlight can give it without connecting.
    /// `None` if there is no such server.
    pub async fn description_of(&self, name: &str) -> Option<Option<Json>> {
        let topology = self.topology.load();
        let client = topology.clients().find(|client| client.name() == name)?;
        if !is_connected(&**client) {
            return Some(None);
        }
        let description = timeout(
            topology.limits.timeout,
            client.describe(&CallContext::internal()),
        )
        .await;
        Some(
            description
                .ok()
                .and_then(Result::ok)
                .map(|description| description.json().clone()),
        )
    }

    /// The running processes of servers, by server name.
    pub fn processes(&self) -> HashMap<String, Vec<RunningProcess>> {
        let topology = self.topology.load();
        topology
            .clients()
            .map(|client| (client.name().to_owned(), client.parts().processes))
            .collect()
    }

    /// The output of the processes of the server called `name`, apart from messages; `None` if
    /// there is no such server.
    pub fn process_output(&self, name: &str) -> Option<ProcessOutput> {
        let topology = self.topology.load();
        let client = topology.clients().find(|client| client.name() == name)?;
        Some(client.process_output())
    }
}

fn is_connected(client: &dyn BackendClient) -> bool {
    matches!(
        client.status().state,
        BackendState::Ready | BackendState::Ejected { .. }
    )
}

/// Whether a server certainly does not have a list.
fn lacks(backend: &Member, kind: ListKind) -> bool {
    described(backend).is_some_and(|it| {
        !it.capabilities()
            .is_some_and(|all| kind.is_offered_by(&all))
    })
}

/// A connected server's description, if there is one without waiting.
fn described(backend: &Member) -> Option<ServerDescription> {
    is_connected(&*backend.client)
        .then(|| {
            let own = CallContext::internal();
            backend.client.describe(&own).now_or_never()
        })??
        .ok()
}
