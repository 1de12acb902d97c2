//! What requests are served of a list: the newest snapshot, after the backends that may have changed it have been asked.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendState, Parent};
use fanlight_protocol::Json;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::Instant;

use super::part::Part;
use super::snapshot::{self, Snapshot};
use super::starting::Wait;
use super::view::ListView;
use super::{Catalogue, rests};
use crate::topology::{BackendId, Topology, View};

/// What a client is served.
pub(crate) struct Served {
    pub(crate) list: ListView,
    /// How much is left of the time for which the backends gave their lists.
    pub(crate) ttl_left: Duration,
    /// Whether no backend was asked because of this client.
    pub(crate) is_cached: bool,
}

/// Which backends a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Neither those that take long to start nor those that have not answered in time before.
    Brief,
    /// Not those that have not answered in time before.
    Short,
    /// All of them.
    Long,
}

impl Catalogue {
    /// The list as it is now. Asks the backends whose list may have changed without an announcement:
    /// those that are down cannot announce anything either. They are asked within `trace`.
    pub(crate) async fn current(self: &Arc<Self>, view: &View, trace: &Parent) -> Served {
        let arrived = Instant::now();
        let (mut down, mut resting, mut connecting) = (Vec::new(), Vec::new(), Vec::new());
        for backend in view.ids().filter_map(|backend| view.get(backend)) {
            match backend.client.status().state {
                BackendState::Down { .. } | BackendState::Failed { .. } => down.push(backend.id),
                BackendState::Idle => resting.push(backend.id),
                BackendState::Connecting => connecting.push(backend.id),
                // Lists do not depend on calls.
                BackendState::Ready | BackendState::Ejected { .. } => {}
            }
        }
        let serves = |backend, part: &Part| match view.shows(backend) {
            // A server without a process changes nothing: its list is compared when it is started again.
            true if resting.contains(&backend) => !part.is_behind(),
            true if connecting.contains(&backend) && part.is_kept() => true,
            true => part.is_fresh(arrived) && !down.contains(&backend),
            // The list is merged of all parts, but the client waits for no news of what it is not shown.
            false => part.loaded.is_some(),
        };
        let (snapshot, is_cached) = self.snapshot_with(view.topology(), serves, Patience::Brief, trace).await;
        let list = ListView::new(snapshot, view);
        let ttl_left = self.ttl_left(&list, arrived);
        Served { list, ttl_left, is_cached }
    }

    /// The list as it is now, asking every backend. Requests that arrive while they are being asked
    /// get the same answer.
    pub(crate) async fn refresh(self: &Arc<Self>, view: &View) -> ListView {
        let (whole, _) = self.snapshot_with(view.topology(), |_, _| false, Patience::Long, &Parent::default()).await;
        ListView::new(whole, view)
    }

    /// The newest snapshot, taking the first if there is none and a new one if the newest is not to be
    /// trusted.
    pub(crate) async fn known(self: &Arc<Self>, view: &View, trace: &Parent) -> ListView {
        self.newest_or_first(view, trace).await.0
    }

    /// [`Catalogue::known`], and whether no backend was asked for it.
    pub(crate) async fn newest_or_first(self: &Arc<Self>, view: &View, trace: &Parent) -> (ListView, bool) {
        match self.trusted(view) {
            Some(list) => (list, true),
            None => {
                let Served { list, is_cached, .. } = self.current(view, trace).await;
                (list, is_cached)
            }
        }
    }

    /// The newest snapshot of this topology, unless the list has probably changed since.
    pub(crate) fn trusted(&self, view: &View) -> Option<ListView> {
        let whole = self.with(|state| state.newest_of(view.topology()).filter(|_| !state.suspect).cloned());
        whole.map(|whole| ListView::new(whole, view))
    }

    /// What a view shows of the newest snapshot, if any has been taken of its topology.
    pub(crate) fn newest_in(&self, view: &View) -> Option<ListView> {
        self.newest(view.topology()).map(|whole| ListView::new(whole, view))
    }

    /// The newest snapshot of this topology, if any has been taken.
    pub(crate) fn newest(&self, topology: &Topology) -> Option<Arc<Snapshot>> {
        self.with(|state| state.newest_of(topology).cloned())
    }

    /// The snapshot of this topology and generation, if it is still kept.
    pub(crate) fn generation(&self, view: &View, generation: u64) -> Option<ListView> {
        let topology = view.topology();
        let is_it = |found: &Snapshot| found.generation() == generation && found.topology() == topology.number();
        let whole = self.with(|state| state.snapshots.iter().find(|snapshot| is_it(snapshot)).cloned());
        whole.map(|whole| ListView::new(whole, view))
    }

    /// A snapshot newer than one in which a name was not found, unless that was taken just now. A
    /// name that should be there is a reason to ask before a `ttlMs` is over (2026-07-28
    /// server/utilities/caching, Freshness Calculation).
    pub(crate) async fn recheck(self: &Arc<Self>, view: &View, trace: &Parent) -> Option<ListView> {
        let unknown = view.limits().unknown;
        let due = self.with(|state| state.last_read.is_none_or(|read| read.elapsed() >= unknown));
        match due {
            true => {
                let serves = |backend, part: &Part| match view.shows(backend) {
                    true => (part.announces || rests(view.topology(), backend)) && !part.is_behind(),
                    false => part.loaded.is_some(),
                };
                let (whole, _) = self.snapshot_with(view.topology(), serves, Patience::Short, trace).await;
                Some(ListView::new(whole, view))
            }
            false => None,
        }
    }

    /// The entry that one backend's own list has under its name `original`, asking that backend alone.
    pub(crate) async fn entry_of(
        self: &Arc<Self>,
        topology: &Arc<Topology>,
        backend: BackendId,
        original: &str,
        trace: &Parent,
    ) -> Option<Arc<Json>> {
        let need = self.with(|state| state.part(backend).announced);
        self.read(topology, (backend, need), Wait::Whole, trace).await;
        self.with(|state| {
            let loaded = state.parts.get(&backend)?.loaded.as_ref()?;
            snapshot::find_in(&loaded.contribution, self.kind, original).map(Arc::new)
        })
    }

    /// How much is left of the time for which the parts of `list` were given. Parts that were read
    /// for a request that `arrived` before them have all of it.
    pub(crate) fn ttl_left(&self, list: &ListView, arrived: Instant) -> Duration {
        let now = Instant::now();
        self.with(|state| {
            let is_newest = state.snapshots.front().is_some_and(|newest| Arc::ptr_eq(newest, list.whole()));
            let left = list.backends().map(|backend| {
                let loaded = state.parts.get(&backend)?.loaded.as_ref()?;
                let since = if loaded.received >= arrived { loaded.received } else { now };
                Some(loaded.expires?.saturating_duration_since(since))
            });
            left.min().flatten().filter(|_| is_newest).unwrap_or_default()
        })
    }

    /// The newest snapshot once every part for which `serves` is false has been read again, and
    /// whether that took no reading of its own.
    async fn snapshot_with(
        self: &Arc<Self>,
        topology: &Arc<Topology>,
        serves: impl Fn(BackendId, &Part) -> bool,
        patience: Patience,
        trace: &Parent,
    ) -> (Arc<Snapshot>, bool) {
        let needed: Vec<_> = self.with(|state| {
            let needed = topology.ids().filter_map(|backend| {
                let part = state.part(backend);
                (!serves(backend, part)).then_some((backend, part.announced, part.is_hanging))
            });
            needed.collect()
        });
        // Each request would else take as long as a list may.
        let (hanging, others): (Vec<_>, Vec<_>) =
            needed.into_iter().partition(|(.., is_hanging)| *is_hanging && patience != Patience::Long);
        hanging.iter().for_each(|(backend, need, _)| self.read_in_background(topology, *backend, *need));
        let wait = if patience == Patience::Brief { Wait::Brief } else { Wait::Whole };
        let reading = others.into_iter().map(|(backend, need, _)| self.read(topology, (backend, need), wait, trace));
        let began = join_all(reading).await;
        let mut is_cached = hanging.is_empty() && !began.contains(&true);
        if self.needs_claims(topology) {
            for list in &self.claiming {
                is_cached &= list.has_been_read(topology, trace).await;
            }
        }
        (self.merge(topology), is_cached)
    }

    /// Reads the list if it has not been read. Returns whether it had been.
    pub(super) fn has_been_read<'a>(
        self: &'a Arc<Self>,
        topology: &'a Arc<Topology>,
        trace: &'a Parent,
    ) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.newest_or_first(&View::everything(topology), trace).await.1 })
    }
}
