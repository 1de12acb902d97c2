//! Serves lists to requests: asks the servers whose lists may have changed, then takes the newest
//! snapshot.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendState, Parent};
use fanlight_protocol::Json;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::Instant;

use super::own::Own;
use super::part::Part;
use super::snapshot::{self, Snapshot};
use super::starting::Wait;
use super::view::ListView;
use super::{Catalogue, State, rests};
use crate::topology::{BackendId, Topology, View};

/// How long a name that no list has stays unknown before servers are asked again.
const UNKNOWN_NAME: Duration = Duration::from_secs(5);

/// A list as a client gets it.
pub(crate) struct Served {
    pub(crate) list: ListView,
    /// How much of the lists' `ttlMs` remains.
    pub(crate) ttl_left: Duration,
    /// Whether the client's request caused no request to a server.
    pub(crate) is_cached: bool,
}

/// Decides whether a part can be served without reading it again.
type Serves<'a> = dyn Fn(BackendId, &Part) -> bool + Send + Sync + 'a;

/// The servers that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Waits for servers that neither start slowly nor failed to answer in time before.
    Brief,
    /// Waits for servers that did not fail to answer in time before.
    Short,
    /// All servers.
    Long,
}

impl Catalogue {
    /// The current list. Asks the servers whose lists may have changed without an announcement;
    /// these include servers that are down. The requests to servers belong to `trace`.
    pub(crate) async fn current(self: &Arc<Self>, view: &View, trace: &Parent) -> Served {
        let arrived = Instant::now();
        let (mut down, mut resting, mut connecting) = (Vec::new(), Vec::new(), Vec::new());
        for backend in view.ids().filter_map(|backend| view.get(backend)) {
            match backend.client_for(view.reader()).status().state {
                BackendState::Down { .. } | BackendState::Failed { .. } => down.push(backend.id),
                BackendState::Idle => resting.push(backend.id),
                BackendState::Connecting => connecting.push(backend.id),
                // Lists do not depend on whether calls succeed.
                BackendState::Ready | BackendState::Ejected { .. } => {}
            }
        }
        let serves = |backend, part: &Part| match view.shows(backend) {
            // A server without a process changes nothing. Its list is compared once the process
            // runs again.
            true if resting.contains(&backend) => !part.is_behind(),
            true if connecting.contains(&backend) && part.is_kept() => true,
            true => part.is_fresh(arrived) && !down.contains(&backend),
            false => part.loaded.is_some(),
        };
        let (snapshot, is_cached) = self
            .snapshot_with(view, &serves, Patience::Brief, trace)
            .await;
        let list = ListView::new(snapshot, view);
        let ttl_left = self.ttl_left(&list, arrived);
        Served {
            list,
            ttl_left,
            is_cached,
        }
    }

    /// The current list after asking every server. Requests that arrive meanwhile get the same
    /// answer.
    pub(crate) async fn refresh(self: &Arc<Self>, view: &View) -> ListView {
        let (whole, _) = self
            .snapshot_with(view, &|_, _| false, Patience::Long, &Parent::default())
            .await;
        ListView::new(whole, view)
    }

    /// The newest trusted snapshot; a new one if there is none.
    pub(crate) async fn newest_view(self: &Arc<Self>, view: &View, trace: &Parent) -> ListView {
        self.newest_or_first(view, trace).await.0
    }

    /// Like [`Catalogue::newest_view`]; also returns whether no server was asked.
    pub(crate) async fn newest_or_first(
        self: &Arc<Self>,
        view: &View,
        trace: &Parent,
    ) -> (ListView, bool) {
        match self.trusted_view(view) {
            Some(list) => (list, true),
            None => {
                let Served {
                    list, is_cached, ..
                } = self.current(view, trace).await;
                (list, is_cached)
            }
        }
    }

    /// The servers whose parts are the principal's own, after these parts have counted newly
    /// announced changes.
    pub(super) fn follow(&self, own: &Own, topology: &Topology) -> Vec<BackendId> {
        let private = own.parts(topology);
        self.with_state(|state| {
            private
                .iter()
                .for_each(|(backend, announced)| state.part(*backend).follow(*announced));
        });
        private.into_iter().map(|(backend, _)| backend).collect()
    }

    pub(super) fn is_private(&self, backend: BackendId) -> bool {
        self.with_state(|state| {
            state
                .parts
                .get(&backend)
                .is_some_and(|part| part.is_private)
        })
    }

    /// The newest snapshot of the view's topology as the view shows it, if there is one.
    pub(crate) fn newest_in(&self, view: &View) -> Option<ListView> {
        self.newest_snapshot(view.topology())
            .map(|whole| ListView::new(whole, view))
    }

    /// The newest snapshot of this topology, if there is one.
    pub(crate) fn newest_snapshot(&self, topology: &Arc<Topology>) -> Option<Arc<Snapshot>> {
        let Some(own) = &self.own else {
            return self.with_state(|state| state.newest_of(topology).cloned());
        };
        let private = own.parts(topology);
        if private.is_empty() {
            return own
                .shared
                .newest_snapshot(topology)
                .filter(|whole| whole.may_be_seen_by(Some(&own.reader)));
        }
        let is_read = |state: &State, backend: BackendId| {
            state
                .parts
                .get(&backend)
                .is_some_and(|part| part.loaded.is_some())
        };
        let is_whole = self
            .with_state(|state| private.iter().all(|(backend, _)| is_read(state, *backend)))
            && own.shared.with_state(|state| {
                let mut others = topology
                    .ids()
                    .filter(|backend| !private.iter().any(|(private, _)| private == backend));
                others.all(|backend| is_read(state, backend))
            });
        is_whole.then(|| self.merge(topology))
    }

    /// The snapshot of this topology and generation, if it is still kept.
    pub(crate) fn generation(&self, view: &View, generation: u64) -> Option<ListView> {
        let topology = view.topology();
        let is_it =
            |found: &Snapshot| found.generation == generation && found.topology == topology.number;
        let kept_in = |catalogue: &Self| {
            catalogue.with_state(|state| {
                state
                    .snapshots
                    .iter()
                    .find(|snapshot| is_it(snapshot))
                    .cloned()
            })
        };
        let whole = kept_in(self).or_else(|| kept_in(&self.own.as_ref()?.shared));
        let whole = whole.filter(|whole| whole.may_be_seen_by(view.reader()));
        whole.map(|whole| ListView::new(whole, view))
    }

    /// A snapshot newer than the one in which a name was not found, unless that was taken just now.
    /// An expected but missing name is a reason to ask before `ttlMs` is over (2026-07-28
    /// server/utilities/caching, Freshness Calculation).
    pub(crate) async fn recheck(self: &Arc<Self>, view: &View, trace: &Parent) -> Option<ListView> {
        let unknown = UNKNOWN_NAME;
        let is_due = |catalogue: &Self| {
            catalogue
                .with_state(|state| state.last_read.is_none_or(|read| read.elapsed() >= unknown))
        };
        let shared = self.own.as_ref().map(|own| &own.shared);
        let private = self
            .own
            .as_ref()
            .map(|own| own.parts(view.topology()))
            .unwrap_or_default();
        // Many principals together must not cause more readings of the common parts.
        let is_shared_due = shared.is_none_or(|shared| is_due(shared));
        let is_any_due = match shared {
            Some(_) if private.is_empty() => is_shared_due,
            _ => is_due(self),
        };
        // A user may have signed in meanwhile. Until then, reading costs nothing.
        if !is_any_due && !self.with_state(|state| state.parts.values().any(Part::wants_sign_in)) {
            return None;
        }
        let serves = |backend, part: &Part| match view.shows(backend) {
            true if part.wants_sign_in() => false,
            true if !is_any_due => part.loaded.is_some(),
            true => {
                let is_current = (part.announces || rests(view.topology(), backend, view.reader()))
                    && !part.is_behind();
                let is_own = private.iter().any(|(private, _)| *private == backend);
                is_current || (!is_shared_due && part.loaded.is_some() && !is_own)
            }
            false => part.loaded.is_some(),
        };
        let (whole, _) = self
            .snapshot_with(view, &serves, Patience::Short, trace)
            .await;
        Some(ListView::new(whole, view))
    }

    /// Whether this server's part is read for the principal.
    fn own_is_private(&self, backend: BackendId) -> bool {
        self.own.as_ref().is_some_and(|own| {
            own.reader
                .has_own_part(backend, own.shared.is_private(backend))
        })
    }

    /// The entry that a server lists under its own name `original`. Asks only that server.
    pub(crate) async fn entry_of(
        self: &Arc<Self>,
        topology: &Arc<Topology>,
        backend: BackendId,
        original: &str,
        trace: &Parent,
    ) -> Option<Arc<Json>> {
        if let Some(own) = &self.own {
            if !self.own_is_private(backend) {
                let found = own
                    .shared
                    .entry_of_part(topology, backend, original, trace)
                    .await;
                // Only the list itself says whether it is private.
                if !self.own_is_private(backend) {
                    return found;
                }
            }
            self.follow(own, topology);
        }
        self.entry_of_part(topology, backend, original, trace).await
    }

    async fn entry_of_part(
        self: &Arc<Self>,
        topology: &Arc<Topology>,
        backend: BackendId,
        original: &str,
        trace: &Parent,
    ) -> Option<Arc<Json>> {
        let need = self.with_state(|state| state.part(backend).announced);
        self.read(topology, backend, need, Wait::Whole, trace).await;
        self.with_state(|state| {
            let loaded = state.parts.get(&backend)?.loaded.as_ref()?;
            let found = snapshot::find_in(&loaded.contribution, self.kind, original)?;
            let member = topology.get(backend)?;
            let is_offered = member.admits(self.kind.policy_kind(), original, &found)
                && topology
                    .unreadable_reason(member, self.kind, Some(original), &found)
                    .is_none();
            is_offered.then(|| Arc::new(found))
        })
    }

    /// How much of the `ttlMs` of `list` remains. Parts read after the request `arrived` count as
    /// just read.
    pub(crate) fn ttl_left(&self, list: &ListView, arrived: Instant) -> Duration {
        let now = Instant::now();
        let is_newest_of = |catalogue: &Self| {
            catalogue.with_state(|state| {
                state
                    .snapshots
                    .front()
                    .is_some_and(|newest| Arc::ptr_eq(newest, list.whole()))
            })
        };
        if !is_newest_of(self)
            && !self
                .own
                .as_ref()
                .is_some_and(|own| is_newest_of(&own.shared))
        {
            return Duration::ZERO;
        }
        let left = list.backends().map(|backend| {
            let (received, expires) = self.times_of(backend)?;
            let since = if received >= arrived { received } else { now };
            Some(expires?.saturating_duration_since(since))
        });
        left.min().flatten().unwrap_or_default()
    }

    /// When a server's part was received, and when it expires.
    fn times_of(&self, backend: BackendId) -> Option<(Instant, Option<Instant>)> {
        let shared = self.own.as_ref().filter(|_| !self.own_is_private(backend));
        shared.map_or(self, |own| &own.shared).with_state(|state| {
            let loaded = state.parts.get(&backend)?.loaded.as_ref()?;
            Some((loaded.received, loaded.expires))
        })
    }

    /// The newest snapshot after reading every part again for which `serves` is false. Also returns
    /// whether this request began no reading.
    async fn snapshot_with(
        self: &Arc<Self>,
        view: &View,
        serves: &Serves<'_>,
        patience: Patience,
        trace: &Parent,
    ) -> (Arc<Snapshot>, bool) {
        let topology = view.topology();
        let mut is_cached = match &self.own {
            None => {
                self.read_parts(view, topology.ids().collect(), serves, patience, trace)
                    .await
            }
            Some(own) => {
                // Fanlight need not read private parts for itself.
                let serves_all = |backend, part: &Part| {
                    own.reader.has_own_part(backend, part.is_private) || serves(backend, part)
                };
                let all = topology.ids().collect();
                let is_cached = own
                    .shared
                    .read_parts(view, all, &serves_all, patience, trace)
                    .await;
                let private = self.follow(own, topology);
                self.read_parts(view, private, serves, patience, trace)
                    .await
                    && is_cached
            }
        };
        if self.needs_claims(topology) {
            for list in &self.claiming {
                is_cached &= list.has_been_read(view, trace).await;
            }
        }
        (self.merge(topology), is_cached)
    }

    /// Reads the parts of `backends` for which `serves` is false. Returns whether this request
    /// began no reading. The list is merged from all parts, but the client does not wait for those
    /// that it is not shown.
    async fn read_parts(
        self: &Arc<Self>,
        view: &View,
        backends: Vec<BackendId>,
        serves: &Serves<'_>,
        patience: Patience,
        trace: &Parent,
    ) -> bool {
        let needed: Vec<_> = self.with_state(|state| {
            let needed = backends.into_iter().filter_map(|backend| {
                let part = state.part(backend);
                // A snapshot needs something of each part.
                let is_hidden = part.loaded.is_some() && !view.shows(backend);
                let may_wait = is_hidden || (part.is_hanging && patience != Patience::Long);
                (!serves(backend, part)).then_some((backend, part.announced, may_wait))
            });
            needed.collect()
        });
        // Otherwise each request would take as long as reading a list may take.
        let topology = view.topology();
        let (later, others): (Vec<_>, Vec<_>) =
            needed.into_iter().partition(|(.., may_wait)| *may_wait);
        later
            .iter()
            .for_each(|(backend, need, _)| self.read_in_background(topology, *backend, *need));
        let wait = if patience == Patience::Brief {
            Wait::Brief
        } else {
            Wait::Whole
        };
        let reading = others
            .into_iter()
            .map(|(backend, need, _)| self.read(topology, backend, need, wait, trace));
        let began = join_all(reading).await;
        later.is_empty() && !began.contains(&true)
    }

    /// Reads the list if it has not been read. Returns whether it had been.
    fn has_been_read<'a>(
        self: &'a Arc<Self>,
        view: &'a View,
        trace: &'a Parent,
    ) -> BoxFuture<'a, bool> {
        let everything = view.without_filters();
        Box::pin(async move { self.newest_or_first(&everything, trace).await.1 })
    }
}
