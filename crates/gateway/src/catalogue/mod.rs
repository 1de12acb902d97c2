//! The catalogue: what all backends offer together, as snapshots that never change.
//!
//! Each backend's part of a list is read (`reading`, `load`) and kept (`part`) separately; a snapshot
//! merges the parts into the entries that clients see (`snapshot`). A part is served without asking
//! its backend while that announces changes and has announced none, or while the part's `ttlMs` runs.
//! Requests that arrive while a part is being read wait for that reading, unless the backend has
//! announced a change since it began. `watch` listens to the backends, `announce` notifies clients.

mod announce;
mod background;
mod describe;
mod extensions;
mod kept;
mod kind;
mod load;
mod memory;
mod merging;
mod needs;
mod pages;
mod part;
mod reading;
mod rewritten;
mod shown;
mod snapshot;
mod unknown_name;
pub mod uri_template;
mod view;
mod watch;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fanlight_canonical::{BackendState, Endpoint, Parent};
use fanlight_protocol::Json;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::{Instant, timeout};

pub(crate) use describe::{all as describe_all, as_shown, only as describe_only};
pub use kept::{KeptList, ListStore};
pub(crate) use kind::Change;
pub use kind::ListKind;
pub(crate) use load::{answered, cut_off};
pub use shown::Collision;
pub use snapshot::Entry;
pub(crate) use snapshot::Snapshot;
pub use unknown_name::UnknownName;
pub use view::ListView;
pub(crate) use view::PageOf;
pub(crate) use watch::{ListWatcher, updated_uri};

use crate::topology::{BackendId, CurrentTopology, Topology, View};
use announce::Announcer;
pub(crate) use announce::Registration;
use background::Background;
use extensions::ListCapabilities;
use memory::ListMemory;
use part::Part;

/// One list of all backends.
pub(crate) struct Catalogue {
    kind: ListKind,
    /// The lists that say which backends have the URIs that entries of this one name.
    claiming: Vec<Arc<Catalogue>>,
    /// What is declared to servers when the list is read.
    capabilities: Arc<ListCapabilities>,
    /// For work that no request began.
    topology: Arc<CurrentTopology>,
    announcer: Arc<Announcer>,
    background: Background,
    memory: Arc<ListMemory>,
    state: Mutex<State>,
    /// Held while a snapshot is made, so that it is made once for all requests that wait for it.
    merging: Mutex<()>,
}

#[derive(Default)]
struct State {
    parts: HashMap<BackendId, Part>,
    /// Incremented by each reading that found something new.
    version: u64,
    /// What the newest snapshot was made of.
    merged: Option<Basis>,
    /// Newest first, all of one topology.
    snapshots: VecDeque<Arc<Snapshot>>,
    last_read: Option<Instant>,
    /// The newest snapshot is not to be trusted until everything has been read again.
    suspect: bool,
    /// A change was announced before there was a list to compare with.
    changed_unseen: bool,
    /// What was read since the newest snapshot includes an announced change.
    read_announced: bool,
    /// The first snapshot is being taken in the background.
    begun: bool,
    /// Where the list differs from that of the topology before.
    differs: Differing,
}

/// The endpoints at which a list differs from that of an earlier topology.
#[derive(Debug, Default)]
pub(crate) struct Differing {
    /// At all of them, since the earlier list is unknown.
    everywhere: bool,
    endpoints: HashSet<Endpoint>,
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

/// What a snapshot is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Basis {
    /// The version of the parts.
    version: u64,
    /// The number of the topology.
    topology: u64,
    /// The sum of the generations of the claiming lists, each of which only grows.
    claims: u64,
}

/// The catalogues, by kind.
pub(crate) struct Catalogues([Arc<Catalogue>; 5]);

impl Catalogues {
    fn new(topology: &Arc<CurrentTopology>, announcer: &Arc<Announcer>, background: &Background) -> Self {
        let memory = Arc::<ListMemory>::default();
        let capabilities = Arc::<ListCapabilities>::default();
        let new = |kind, claiming: &[&Arc<Catalogue>]| {
            Arc::new(Catalogue {
                kind,
                claiming: claiming.iter().map(|list| Arc::clone(list)).collect(),
                capabilities: Arc::clone(&capabilities),
                topology: Arc::clone(topology),
                announcer: Arc::clone(announcer),
                background: background.clone(),
                memory: Arc::clone(&memory),
                state: Mutex::default(),
                merging: Mutex::default(),
            })
        };
        let resources = new(ListKind::Resources, &[]);
        let skills = new(ListKind::Skills, &[&resources]);
        let tools = new(ListKind::Tools, &[&resources, &skills]);
        Self([tools, resources, new(ListKind::ResourceTemplates, &[]), new(ListKind::Prompts, &[]), skills])
    }

    /// The catalogues that a change may concern.
    pub(crate) fn changed_by(&self, change: Change) -> impl Iterator<Item = &Arc<Catalogue>> {
        change.kinds().iter().map(|kind| self.of(*kind))
    }

    pub(crate) fn of(&self, kind: ListKind) -> &Arc<Catalogue> {
        let [tools, resources, templates, prompts, skills] = &self.0;
        match kind {
            ListKind::Tools => tools,
            ListKind::Resources => resources,
            ListKind::ResourceTemplates => templates,
            ListKind::Prompts => prompts,
            ListKind::Skills => skills,
        }
    }

    /// A client with these capabilities asks for a list: if it has an extension that was not declared to servers yet,
    /// they may have listed less than they have.
    pub(crate) fn declare_extensions(&self, client: &Json) {
        let [tools, ..] = &self.0;
        if tools.capabilities.add(client) {
            self.0.iter().for_each(|catalogue| catalogue.read_with_more());
        }
    }

    /// Gets ready for `new` instead of `old`: reads the lists that clients listen to and that are not known, since with
    /// one backend each client reads its own, so that they can be compared with those of `new`.
    pub(crate) async fn prepare_replacement(&self, old: &Arc<Topology>) {
        let wanted = Change::ALL.into_iter().filter(|change| self.is_wanted(*change));
        let all = wanted.flat_map(|change| self.changed_by(change));
        join_all(all.map(|catalogue| catalogue.prepare_replacement(old))).await;
    }

    /// Reads the lists that clients listen to, and returns the changes of those that differ from the lists of the topology
    /// before `new`, each with where they do.
    pub(crate) async fn replaced(&self, new: &Arc<Topology>) -> Vec<(Change, Differing)> {
        let wanted = Change::ALL.into_iter().filter(|change| self.is_wanted(*change));
        let differ = wanted.map(async |change| {
            let mut differing = Differing::default();
            for one in join_all(self.changed_by(change).map(|catalogue| catalogue.replaced(new))).await {
                differing.everywhere |= one.everywhere;
                differing.endpoints.extend(one.endpoints);
            }
            (change, differing)
        });
        join_all(differ).await
    }

    fn is_wanted(&self, change: Change) -> bool {
        let [tools, ..] = &self.0;
        tools.announcer.is_wanted(change)
    }

    /// Drops the parts of backends that are in neither topology: requests that began with `old` may still need theirs.
    pub(crate) fn retain(&self, old: &Topology, new: &Topology) {
        let is_in = |backend| old.get(backend).is_some() || new.get(backend).is_some();
        for catalogue in &self.0 {
            catalogue.with(|state| state.parts.retain(|backend, _| is_in(*backend)));
        }
    }
}

/// Whether to wait for backends that have not answered in time before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Short,
    Long,
}

/// What a client is served.
pub(crate) struct Served {
    pub(crate) list: ListView,
    /// How much is left of the time for which the backends gave their lists.
    pub(crate) ttl_left: Duration,
    /// Whether no backend was asked because of this client.
    pub(crate) is_cached: bool,
}

/// Whether a backend's process has been ended because nothing used it, or not been started yet.
fn rests(topology: &Topology, backend: BackendId) -> bool {
    topology.get(backend).is_some_and(|backend| matches!(backend.client.status().state, BackendState::Idle))
}

impl State {
    fn newest_of(&self, topology: &Topology) -> Option<&Arc<Snapshot>> {
        self.snapshots.front().filter(|snapshot| snapshot.topology() == topology.number())
    }

    fn part(&mut self, backend: BackendId) -> &mut Part {
        self.parts.entry(backend).or_default()
    }
}

impl Catalogue {
    /// The list as it is now. Asks the backends whose list may have changed without an announcement:
    /// those that are down cannot announce anything either. They are asked within `trace`.
    pub(crate) async fn current(self: &Arc<Self>, view: &View, trace: &Parent) -> Served {
        let arrived = Instant::now();
        let (mut down, mut resting) = (Vec::new(), Vec::new());
        for backend in view.ids().filter_map(|backend| view.get(backend)) {
            match backend.client.status().state {
                BackendState::Down { .. } | BackendState::Failed { .. } => down.push(backend.id),
                BackendState::Idle => resting.push(backend.id),
                BackendState::Connecting | BackendState::Ready => {}
            }
        }
        let serves = |backend, part: &Part| match view.shows(backend) {
            // A server without a process changes nothing: its list is compared when it is started again.
            true if resting.contains(&backend) => !part.is_behind(),
            true => part.is_fresh(arrived) && !down.contains(&backend),
            // The list is merged of all parts, but the client waits for no news of what it is not shown.
            false => part.loaded.is_some(),
        };
        let (snapshot, is_cached) = self.snapshot_with(view.topology(), serves, Patience::Short, trace).await;
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

    /// Notes that the list has probably changed since the newest snapshot.
    pub(crate) fn mark_stale(&self) {
        self.with(|state| {
            state.suspect = true;
            state.parts.values_mut().for_each(|part| {
                part.announced += 1;
                part.changes += 1;
            });
        });
    }

    /// Notes that servers may list more from now on, since more is declared to them.
    fn read_with_more(&self) {
        let declared = self.capabilities.current();
        let was_read_with_it =
            |part: &Part| part.loaded.as_ref().is_some_and(|loaded| kept::covers(&loaded.declared, &declared));
        self.with(|state| {
            state.suspect = true;
            // A list that was kept in an earlier run may have been read with as much.
            let others = state.parts.values_mut().filter(|part| part.running.is_some() || !was_read_with_it(part));
            others.for_each(|part| part.announced += 1);
        });
    }

    /// Notes that a backend has announced a change of its part.
    fn announced(&self, backend: BackendId) {
        self.with(|state| {
            state.changed_unseen |= state.snapshots.is_empty();
            let part = state.part(backend);
            part.announced += 1;
            part.changes += 1;
        });
    }

    /// Notes that a backend announces changes of its part from now on. What was read before may
    /// have changed without an announcement.
    fn announces(&self, backend: BackendId) {
        self.with(|state| {
            let part = state.part(backend);
            part.announces = true;
            part.announced += 1;
            part.changes += 1;
        });
    }

    /// Reads a backend's part again that was read before its connection of `made` and whose changes are not announced: it
    /// may differ, since the server may be another process.
    async fn compare(self: &Arc<Self>, topology: &Arc<Topology>, backend: BackendId, made: Instant) {
        let is_older = self.with(|state| {
            let part = state.parts.get_mut(&backend).filter(|part| part.is_older_than_connection(made));
            let Some(part) = part else { return false };
            part.announced += 1;
            part.changes += 1;
            true
        });
        if is_older {
            self.update(topology, backend).await;
        }
    }

    /// The backends whose part was read in an earlier run of Fanlight, and when.
    pub(crate) fn kept_since(&self) -> HashMap<BackendId, SystemTime> {
        self.with(|state| {
            let kept = |(backend, part): (&BackendId, &Part)| Some((*backend, part.loaded.as_ref()?.kept_since?));
            state.parts.iter().filter_map(kept).collect()
        })
    }

    /// Backends that announce changes, but whose lists have outlived their `ttlMs`. They are served,
    /// and are to be read again meanwhile.
    pub(crate) fn expired(&self) -> Vec<BackendId> {
        let now = Instant::now();
        let mut overdue: Vec<_> = self.with(|state| {
            let overdue = state.parts.iter().filter(|(_, part)| part.is_overdue(now));
            overdue.map(|(backend, _)| *backend).collect()
        });
        if !overdue.is_empty() {
            let topology = self.topology.load();
            overdue.retain(|backend| !rests(&topology, *backend));
        }
        overdue
    }

    /// Reads a backend's part again if that is known to be outdated, and merges it. Lists that no
    /// client has asked for stay unread, unless clients are to be notified of their changes.
    async fn update(self: &Arc<Self>, topology: &Arc<Topology>, backend: BackendId) {
        let now = Instant::now();
        let (is_wanted, need) = self.with(|state| {
            let part = state.parts.get(&backend).filter(|part| part.loaded.is_some() || part.running.is_some());
            let need = part.filter(|part| part.is_behind() || part.is_overdue(now)).map(|part| part.announced);
            (state.changed_unseen, need)
        });
        if is_wanted {
            drop(self.current(&View::everything(topology), &Parent::default()).await);
        } else if let Some(need) = need {
            self.read(topology, backend, need, &Parent::default()).await;
            self.merge(topology);
        }
    }

    /// Takes the first snapshot in the background, for a client that is to be notified of changes.
    pub(crate) fn begin(self: &Arc<Self>, topology: &Arc<Topology>) {
        let first = self.with(|state| !std::mem::replace(&mut state.begun, true) && state.snapshots.is_empty());
        if first {
            let (catalogue, topology) = (Arc::clone(self), Arc::clone(topology));
            let taking = async move { drop(catalogue.current(&View::everything(&topology), &Parent::default()).await) };
            drop(self.background.spawn(taking));
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
        self.read(topology, backend, need, trace).await;
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
            needed.into_iter().partition(|(.., is_hanging)| *is_hanging && patience == Patience::Short);
        hanging.iter().for_each(|(backend, need, _)| self.read_in_background(topology, *backend, *need));
        let reading = others.into_iter().map(|(backend, need, _)| self.read(topology, backend, need, trace));
        let began = join_all(reading).await;
        let mut is_cached = hanging.is_empty() && !began.contains(&true);
        if self.needs_claims(topology) {
            for list in &self.claiming {
                is_cached &= list.has_been_read(topology, trace).await;
            }
        }
        (self.merge(topology), is_cached)
    }

    /// Reads the list of a topology that is about to be replaced, if it is not known.
    async fn prepare_replacement(self: &Arc<Self>, old: &Arc<Topology>) {
        let is_known = old.transparent().is_none() && self.newest(old).is_some();
        let is_unknown = match is_known {
            true => false,
            false => {
                let trace = Parent::default();
                timeout(old.limits.timeout, self.current(&View::everything(old), &trace))
                    .await
                    .map_or(true, |read| read.list.failures() > 0)
            }
        };
        // What each endpoint shows is found by the rules of now, to be compared with later.
        for endpoint in self.announcer.endpoints() {
            drop(self.newest_in(&View::of(Arc::clone(old), &endpoint)));
        }
        self.with(|state| state.differs = Differing { everywhere: is_unknown, ..Differing::default() });
    }

    /// Reads the list of a topology that has replaced another. Returns where it differs from the earlier one.
    async fn replaced(self: &Arc<Self>, new: &Arc<Topology>) -> Differing {
        // Its backends answer in the time for a list, or are left out.
        let _ = self.current(&View::everything(new), &Parent::default()).await;
        self.with(|state| std::mem::take(&mut state.differs))
    }

    /// Reads the list if it has not been read. Returns whether it had been.
    fn has_been_read<'a>(self: &'a Arc<Self>, topology: &'a Arc<Topology>, trace: &'a Parent) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.newest_or_first(&View::everything(topology), trace).await.1 })
    }

    /// Whether an entry may name a URI that another backend claims.
    fn needs_claims(&self, topology: &Topology) -> bool {
        let names_uris = |part: &Part| part.loaded.as_ref().is_some_and(|loaded| loaded.names_uris);
        topology.backends().len() > 1
            && !self.claiming.is_empty()
            && self.with(|state| state.parts.values().any(names_uris))
    }

    /// Merges the parts again if they name URIs that may have got other owners.
    fn reconsider_claims(&self, topology: &Arc<Topology>) {
        if self.needs_claims(topology) && self.newest(topology).is_some() {
            self.merge(topology);
        }
    }

    /// The snapshot of the parts as they are, made again if any has something new.
    fn merge(&self, topology: &Arc<Topology>) -> Arc<Snapshot> {
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
                // What an earlier topology had is neither listed any more nor are its backends kept.
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

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
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
