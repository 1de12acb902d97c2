//! The catalogue: what all backends offer together, as snapshots that never change.
//!
//! A snapshot is taken by asking every backend for its whole list at once (`load`), and holds
//! the entries as clients see them (`snapshot`). Requests that come while one is being taken
//! wait for that same one.
//!
//! Must not know: who asks, or how a request is routed.

mod load;
mod snapshot;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fanlight_protocol::Method;
use fanlight_protocol::param_header::ParamHeader;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

pub(crate) use load::{answered, cut_off};
pub use snapshot::{Collision, Entry, Snapshot};

use crate::naming::Naming;
use crate::settings::{BackendEntry, ListLimits};

/// How many earlier states of a list are kept for clients that are still paging through them.
const KEPT_GENERATIONS: usize = 3;

/// How long an unknown name is taken to be unknown before backends are asked again.
const RECHECK_UNKNOWN_AFTER: Duration = Duration::from_secs(5);

/// The four lists that servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// `tools/list`
    Tools,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
    /// `prompts/list`
    Prompts,
}

impl ListKind {
    /// All lists.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Resources, Self::ResourceTemplates, Self::Prompts];

    /// The list that `method` asks for, if it asks for one.
    #[must_use]
    pub fn of(method: &Method) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == *method)
    }

    /// The method that asks for the list.
    #[must_use]
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ListTools,
            Self::Resources => Method::ListResources,
            Self::ResourceTemplates => Method::ListResourceTemplates,
            Self::Prompts => Method::ListPrompts,
        }
    }

    /// The result's member that holds the entries.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// The entry's member that identifies it.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    /// The capability of servers that have the list.
    #[must_use]
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::ResourceTemplates => "resources",
            Self::Prompts => "prompts",
        }
    }

    /// Whether entries are identified by name and so take a prefix.
    #[must_use]
    pub fn is_named(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }

    pub(crate) fn index(self) -> u8 {
        match self {
            Self::Tools => 0,
            Self::Resources => 1,
            Self::ResourceTemplates => 2,
            Self::Prompts => 3,
        }
    }
}

/// A snapshot that is being taken, for everyone who waits for it.
type Taking = Shared<BoxFuture<'static, Arc<Snapshot>>>;

/// One list of all backends.
pub(crate) struct Catalogue {
    kind: ListKind,
    sources: Arc<Sources>,
    state: Mutex<State>,
}

/// Where a catalogue's entries come from.
pub(crate) struct Sources {
    pub(crate) backends: Vec<BackendEntry>,
    pub(crate) namings: Vec<Naming>,
    pub(crate) limits: ListLimits,
}

#[derive(Default)]
struct State {
    /// Newest first.
    snapshots: VecDeque<Arc<Snapshot>>,
    taking: Option<Taking>,
    last_taken: Option<Instant>,
    stale: bool,
}

impl Catalogue {
    pub(crate) fn new(kind: ListKind, sources: Arc<Sources>) -> Self {
        Self { kind, sources, state: Mutex::default() }
    }

    /// The newest snapshot, taking the first if there is none and a new one if what is known is
    /// known to be stale.
    pub(crate) async fn known(self: &Arc<Self>) -> Arc<Snapshot> {
        let known = self.with(|state| state.snapshots.front().filter(|_| !state.stale).cloned());
        match known {
            Some(snapshot) => snapshot,
            None => self.refresh().await,
        }
    }

    /// The newest snapshot, if any has been taken.
    pub(crate) fn newest(&self) -> Option<Arc<Snapshot>> {
        self.with(|state| state.snapshots.front().cloned())
    }

    /// The snapshot of this generation, if it is still kept.
    pub(crate) fn generation(&self, generation: u64) -> Option<Arc<Snapshot>> {
        self.with(|state| state.snapshots.iter().find(|snapshot| snapshot.generation() == generation).cloned())
    }

    /// A snapshot newer than one in which a name was not found, unless that was taken just now.
    pub(crate) async fn recheck(self: &Arc<Self>) -> Option<Arc<Snapshot>> {
        let due = self.with(|state| state.last_taken.is_none_or(|taken| taken.elapsed() >= RECHECK_UNKNOWN_AFTER));
        if due { Some(self.refresh().await) } else { None }
    }

    /// Notes that the list has probably changed since the newest snapshot.
    pub(crate) fn mark_stale(&self) {
        self.with(|state| state.stale = true);
    }

    /// Asks all backends. Whoever comes while they are being asked gets the same answer.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Arc<Snapshot> {
        let taking = self.with(|state| state.taking.get_or_insert_with(|| Arc::clone(self).take()).clone());
        taking.await
    }

    /// The mirrored parameters of one backend's own tool, asking that backend alone.
    pub(crate) async fn param_headers_of(&self, backend: usize, original: &str) -> Option<Arc<[ParamHeader]>> {
        let client = self.sources.backends.get(backend)?.client.as_ref();
        let list = load::one(self.kind, client, &self.sources.limits).await;
        snapshot::param_headers_in(&list, original)
    }

    /// Takes a snapshot in a task of its own, so that it goes on when the one who asked goes away.
    /// Bounded by the time a list may take.
    fn take(self: Arc<Self>) -> Taking {
        let catalogue = Arc::clone(&self);
        let task = tokio::spawn(async move {
            let previous = self.newest();
            let loaded = load::all(self.kind, &self.sources).await;
            let snapshot = Arc::new(Snapshot::new(self.kind, loaded, &self.sources));
            self.accept(snapshot, previous)
        });
        async move {
            match task.await {
                Ok(snapshot) => snapshot,
                // The runtime is going down, or taking it panicked: the next one asks anew.
                Err(_) => {
                    catalogue.with(|state| state.taking = None);
                    catalogue.newest().unwrap_or_default()
                }
            }
        }
        .boxed()
        .shared()
    }

    /// Keeps `snapshot` unless it says the same as the newest one, whose cursors then stay good.
    fn accept(&self, snapshot: Arc<Snapshot>, previous: Option<Arc<Snapshot>>) -> Arc<Snapshot> {
        let snapshot = match previous {
            Some(previous) if previous.says_the_same(&snapshot) => previous,
            _ => snapshot,
        };
        let is_news = self.with(|state| {
            state.taking = None;
            state.stale = false;
            state.last_taken = Some(Instant::now());
            let is_news = state.snapshots.front().is_none_or(|newest| !Arc::ptr_eq(newest, &snapshot));
            if is_news {
                state.snapshots.push_front(Arc::clone(&snapshot));
                state.snapshots.truncate(KEPT_GENERATIONS + 1);
            }
            is_news
        });
        // Every client's list comes here: what was found once is not said each time.
        if is_news {
            snapshot.log_findings();
        }
        snapshot
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
