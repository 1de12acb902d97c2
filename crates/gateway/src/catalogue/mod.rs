//! The catalogue: what all backends offer together, as snapshots that never change.
//!
//! Each backend's part of a list is read (`reading`, `load`) and kept (`part`) by itself; a snapshot merges
//! the parts into the entries that clients see (`snapshot`). A part is served without asking while
//! its backend announces changes and has announced none, or while its `ttlMs` runs. Requests that
//! come while a part is being read wait for that same reading, unless the backend has announced a
//! change since it began.
//!
//! Must not know: who asks, who is told of changes, or how a request is routed.

mod kind;
mod load;
mod pages;
mod part;
mod reading;
mod snapshot;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fanlight_canonical::{BackendState, Parent};
use fanlight_protocol::Json;
use futures_util::future::join_all;
use tokio::time::Instant;

pub(crate) use kind::Change;
pub use kind::ListKind;
pub(crate) use load::{answered, cut_off};
pub use snapshot::{Collision, Entry, Snapshot};

use crate::announce::{Announcer, Found};
use crate::background::Background;
use crate::naming::Naming;
use crate::settings::{BackendEntry, ListLimits};
use part::Part;

/// One list of all backends.
pub(crate) struct Catalogue {
    kind: ListKind,
    sources: Arc<Sources>,
    announcer: Arc<Announcer>,
    background: Background,
    state: Mutex<State>,
    /// Held while a snapshot is made, so that it is made once for all who wait for it.
    merging: Mutex<()>,
}

/// Where a catalogue's entries come from.
pub(crate) struct Sources {
    pub(crate) backends: Vec<BackendEntry>,
    pub(crate) namings: Vec<Naming>,
    pub(crate) limits: ListLimits,
}

struct State {
    /// In configuration order.
    parts: Vec<Part>,
    /// Counts what parts have said that was new.
    version: u64,
    /// The version that the newest snapshot was made of.
    merged: Option<u64>,
    /// Newest first.
    snapshots: VecDeque<Arc<Snapshot>>,
    last_read: Option<Instant>,
    /// What is known is not to be trusted until everything has been read anew.
    suspect: bool,
    /// A change was announced before there was a list to compare with.
    changed_unseen: bool,
    /// What was read since the newest snapshot has an announced change in it.
    read_announced: bool,
    /// The first snapshot is being taken in the background.
    begun: bool,
}

/// The four catalogues, by kind.
pub(crate) struct Catalogues([Arc<Catalogue>; 4]);

impl Catalogues {
    pub(crate) fn new(sources: &Arc<Sources>, announcer: &Arc<Announcer>, background: &Background) -> Self {
        let new = |kind| Catalogue::new(kind, Arc::clone(sources), Arc::clone(announcer), background.clone());
        Self(ListKind::ALL.map(|kind| Arc::new(new(kind))))
    }

    /// The catalogues that a change may concern.
    pub(crate) fn changed_by(&self, change: Change) -> impl Iterator<Item = &Arc<Catalogue>> {
        change.kinds().iter().map(|kind| self.of(*kind))
    }

    pub(crate) fn of(&self, kind: ListKind) -> &Arc<Catalogue> {
        let [tools, resources, templates, prompts] = &self.0;
        match kind {
            ListKind::Tools => tools,
            ListKind::Resources => resources,
            ListKind::ResourceTemplates => templates,
            ListKind::Prompts => prompts,
        }
    }
}

/// What a client is served.
pub(crate) struct Served {
    pub(crate) snapshot: Arc<Snapshot>,
    /// How much is left of the time for which the backends gave their lists.
    pub(crate) ttl_left: Duration,
    /// Whether no backend was asked for the sake of this client.
    pub(crate) is_cached: bool,
}

impl Catalogue {
    pub(crate) fn new(
        kind: ListKind,
        sources: Arc<Sources>,
        announcer: Arc<Announcer>,
        background: Background,
    ) -> Self {
        let state = State {
            parts: sources.backends.iter().map(|_| Part::default()).collect(),
            version: 0,
            merged: None,
            snapshots: VecDeque::new(),
            last_read: None,
            suspect: false,
            changed_unseen: false,
            read_announced: false,
            begun: false,
        };
        Self { kind, sources, announcer, background, state: Mutex::new(state), merging: Mutex::default() }
    }

    /// The list as it is now. Asks the backends of which nobody can say that theirs is unchanged:
    /// those that are down cannot announce anything either. They are asked within `trace`.
    pub(crate) async fn current(self: &Arc<Self>, trace: &Parent) -> Served {
        let came = Instant::now();
        let is_down = |backend: &BackendEntry| matches!(backend.client.status().state, BackendState::Down { .. });
        let down: Vec<bool> = self.sources.backends.iter().map(is_down).collect();
        let serves = |backend, part: &Part| part.is_fresh(came) && down.get(backend) == Some(&false);
        let (snapshot, is_cached) = self.snapshot_with(serves, trace).await;
        let ttl_left = self.ttl_left(&snapshot, came);
        Served { snapshot, ttl_left, is_cached }
    }

    /// The list as it is now, asking every backend. Whoever comes while they are being asked gets
    /// the same answer.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Arc<Snapshot> {
        self.snapshot_with(|_, _| false, &Parent::default()).await.0
    }

    /// The newest snapshot, taking the first if there is none and a new one if what is known is
    /// not to be trusted.
    pub(crate) async fn known(self: &Arc<Self>, trace: &Parent) -> Arc<Snapshot> {
        self.newest_or_first(trace).await.0
    }

    /// The same, and whether no backend was asked for it.
    pub(crate) async fn newest_or_first(self: &Arc<Self>, trace: &Parent) -> (Arc<Snapshot>, bool) {
        match self.trusted() {
            Some(snapshot) => (snapshot, true),
            None => {
                let Served { snapshot, is_cached, .. } = self.current(trace).await;
                (snapshot, is_cached)
            }
        }
    }

    /// The newest snapshot, unless the list has probably changed since.
    pub(crate) fn trusted(&self) -> Option<Arc<Snapshot>> {
        self.with(|state| state.snapshots.front().filter(|_| !state.suspect).cloned())
    }

    /// The newest snapshot, if any has been taken.
    pub(crate) fn newest(&self) -> Option<Arc<Snapshot>> {
        self.with(|state| state.snapshots.front().cloned())
    }

    /// The snapshot of this generation, if it is still kept.
    pub(crate) fn generation(&self, generation: u64) -> Option<Arc<Snapshot>> {
        self.with(|state| state.snapshots.iter().find(|snapshot| snapshot.generation() == generation).cloned())
    }

    /// A snapshot newer than one in which a name was not found, unless that was taken just now. A
    /// name that should be there is a reason to ask before a `ttlMs` is over (2026-07-28
    /// server/utilities/caching, Freshness Calculation).
    pub(crate) async fn recheck(self: &Arc<Self>, trace: &Parent) -> Option<Arc<Snapshot>> {
        let unknown = self.sources.limits.unknown;
        let due = self.with(|state| state.last_read.is_none_or(|read| read.elapsed() >= unknown));
        match due {
            true => Some(self.snapshot_with(|_, part| part.announces && !part.is_behind(), trace).await.0),
            false => None,
        }
    }

    /// Notes that the list has probably changed since the newest snapshot.
    pub(crate) fn mark_stale(&self) {
        self.with(|state| {
            state.suspect = true;
            state.parts.iter_mut().for_each(|part| part.heard += 1);
        });
    }

    /// Notes that a backend has announced a change of its part.
    pub(crate) fn announced(&self, backend: usize) {
        self.with(|state| {
            state.changed_unseen |= state.snapshots.is_empty();
            if let Some(part) = state.parts.get_mut(backend) {
                part.heard += 1;
            }
        });
    }

    /// Notes that a backend announces changes of its part from now on. What was read before may
    /// have changed unheard.
    pub(crate) fn announces(&self, backend: usize) {
        self.with(|state| {
            if let Some(part) = state.parts.get_mut(backend) {
                part.announces = true;
                part.heard += 1;
            }
        });
    }

    /// Backends that announce changes, but whose lists have a time that is over. They are served,
    /// and are to be read anew meanwhile.
    pub(crate) fn expired(&self) -> Vec<usize> {
        let now = Instant::now();
        self.with(|state| {
            let parts = (0..).zip(&state.parts);
            parts.filter(|(_, part)| part.is_overdue(now)).map(|(backend, _)| backend).collect()
        })
    }

    /// Reads a backend's part anew if that is known to be behind, and merges it. Lists that nobody
    /// has asked for stay unread, unless a change of them is to be told.
    pub(crate) async fn update(self: &Arc<Self>, backend: usize) {
        let now = Instant::now();
        let (is_wanted, need) = self.with(|state| {
            let part = state.parts.get(backend).filter(|part| part.loaded.is_some() || part.running.is_some());
            let need = part.filter(|part| part.is_behind() || part.is_overdue(now)).map(|part| part.heard);
            (state.changed_unseen, need)
        });
        if is_wanted {
            drop(self.current(&Parent::default()).await);
        } else if let Some(need) = need {
            self.read(backend, need, &Parent::default()).await;
            self.merge();
        }
    }

    /// Takes the first snapshot in the background, for somebody who wants to hear of changes.
    pub(crate) fn begin(self: &Arc<Self>) {
        let first = self.with(|state| !std::mem::replace(&mut state.begun, true) && state.snapshots.is_empty());
        if first {
            let catalogue = Arc::clone(self);
            drop(self.background.spawn(async move { drop(catalogue.current(&Parent::default()).await) }));
        }
    }

    /// The entry that one backend's own list has under its name `original`, asking that backend alone.
    pub(crate) async fn entry_of(
        self: &Arc<Self>,
        backend: usize,
        original: &str,
        trace: &Parent,
    ) -> Option<Arc<Json>> {
        let need = self.with(|state| state.parts.get(backend).map(|part| part.heard))?;
        self.read(backend, need, trace).await;
        self.with(|state| {
            let loaded = state.parts.get(backend)?.loaded.as_ref()?;
            snapshot::find_in(&loaded.contribution, self.kind, original).map(Arc::new)
        })
    }

    /// How much is left of the time for which the parts of `snapshot` were given. Parts that came
    /// for a request that `came` before them have all of it.
    pub(crate) fn ttl_left(&self, snapshot: &Arc<Snapshot>, came: Instant) -> Duration {
        let now = Instant::now();
        self.with(|state| {
            let is_newest = state.snapshots.front().is_some_and(|newest| Arc::ptr_eq(newest, snapshot));
            let left = state.parts.iter().map(|part| {
                let loaded = part.loaded.as_ref()?;
                let since = if loaded.received >= came { loaded.received } else { now };
                Some(loaded.expires?.saturating_duration_since(since))
            });
            left.min().flatten().filter(|_| is_newest).unwrap_or_default()
        })
    }

    /// The newest snapshot once every part that `serves` says no to has been read anew, and whether
    /// that took no reading of its own.
    async fn snapshot_with(
        self: &Arc<Self>,
        serves: impl Fn(usize, &Part) -> bool,
        trace: &Parent,
    ) -> (Arc<Snapshot>, bool) {
        let needed: Vec<_> = self.with(|state| {
            let parts = (0..).zip(&state.parts);
            parts
                .filter(|(backend, part)| !serves(*backend, part))
                .map(|(backend, part)| (backend, part.heard))
                .collect()
        });
        let began = join_all(needed.into_iter().map(|(backend, need)| self.read(backend, need, trace))).await;
        (self.merge(), !began.contains(&true))
    }

    /// The snapshot of all parts as they are, made anew if any says something new.
    fn merge(&self) -> Arc<Snapshot> {
        let _one_at_a_time = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = self.with(|state| {
            let is_behind = |part: &Part| part.reflects < part.heard;
            state.suspect &= state.parts.iter().any(is_behind);
            if state.merged == Some(state.version) {
                return None;
            }
            let all = state.parts.iter().map(|part| Some(part.loaded.as_ref()?.contribution.clone()));
            Some((state.version, all.collect::<Option<Vec<_>>>()?))
        });
        match parts {
            Some((version, parts)) => self.accept(version, Arc::new(Snapshot::new(self.kind, parts, &self.sources))),
            None => self.newest().unwrap_or_default(),
        }
    }

    /// Keeps `snapshot` unless it says the same as the newest one, whose cursors then stay good.
    fn accept(&self, version: u64, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        let previous = self.newest();
        let is_news = previous.as_ref().is_none_or(|previous| !previous.says_the_same(&snapshot));
        let has_changed = previous.as_ref().map(|previous| !previous.offers_the_same(&snapshot));
        let (newest, has_changed, found) = self.with(|state| {
            state.merged = Some(version);
            if is_news {
                state.snapshots.push_front(Arc::clone(&snapshot));
                state.snapshots.truncate(self.sources.limits.generations + 1);
            }
            let unseen = std::mem::take(&mut state.changed_unseen);
            let announced = std::mem::take(&mut state.read_announced) || unseen;
            let found = if announced { Found::Announced } else { Found::Asked };
            (state.snapshots.front().cloned(), has_changed.unwrap_or(unseen), found)
        });
        // Every client's list comes here: what was found once is not said each time.
        if is_news {
            snapshot.log_findings();
        }
        if has_changed {
            self.announcer.announce(self.kind.change(), found);
        }
        newest.unwrap_or(snapshot)
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
