//! The catalogue: what all servers offer together, as immutable snapshots.
//!
//! Each server's part of a list is read (`reading`, `load`) and kept (`part`) separately. A
//! snapshot merges the parts into the entries that clients see (`snapshot`).
//!
//! Fanlight serves a part without asking its server while the part's `ttlMs` runs. It also does so
//! while the server announces changes and has announced none. Requests that arrive while a part is
//! being read wait for that reading, unless the server has announced a change since it began.
//! `watch` listens to the servers, and `announce` notifies clients.

mod announce;
mod changes;
mod describe;
mod extensions;
mod lean;
mod load;
mod memory;
mod merging;
mod needs;
mod newest;
mod own;
mod part;
mod reading;
mod rewritten;
mod serving;
mod shown;
mod snapshot;
mod starting;
pub mod uri_template;
mod view;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use fanlight_canonical::{BackendClient, BackendState};
use fanlight_protocol::Json;
pub(crate) use fanlight_protocol::subscription::Change;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub use crate::search::WordMatch;
pub(crate) use describe::{as_shown, describe_all, describe_only};
pub use lean::{FoundTool, is_of_app};
pub(crate) use lean::{OWN_PREFIX, OWN_TOOLS, READ_RESULT, own_name, own_tool};
pub(crate) use load::{answer_reason, cut_off};
pub(crate) use serving::Served;
pub use shown::Collision;
pub(crate) use shown::LeanList;
pub(crate) use snapshot::Snapshot;
pub use snapshot::{Entry, InvalidEntry, UnknownName, UnreadableEntry};
pub(crate) use starting::is_starting;
pub use view::ListView;
pub(crate) use view::PageOf;
pub(crate) use watch::ListWatcher;

pub use crate::list_kind::ListKind;
use crate::topology::{BackendId, CurrentTopology, Reader, Topology, View};
pub(crate) use announce::Listener;
use announce::{Announcer, Differing};
use extensions::ListCapabilities;
use memory::{ListMemory, ReservedBytes};
use newest::Basis;
use own::{Own, OwnLists};
use part::Part;
use watch::Background;

/// One kind of list, merged from all servers.
pub(crate) struct Catalogue {
    kind: ListKind,
    /// The lists that tell which server owns a URI that an entry of this list names.
    claiming: Vec<Arc<Catalogue>>,
    /// The capabilities declared to servers when the list is read.
    capabilities: Arc<ListCapabilities>,
    /// The topology for work that no request began.
    topology: Arc<CurrentTopology>,
    announcer: Arc<Announcer>,
    background: Background,
    memory: Arc<ListMemory>,
    /// The principal whose list this is; `None` for the common list.
    own: Option<Own>,
    state: Mutex<State>,
    /// Held while a snapshot is made, so that all requests that wait share one.
    merging: Mutex<()>,
}

#[derive(Default)]
struct State {
    parts: HashMap<BackendId, Part, RandomState>,
    /// Counts the readings that found something new.
    version: u64,
    /// The basis of the newest snapshot.
    merged: Option<Basis>,
    /// Newest first, all of one topology.
    snapshots: VecDeque<Arc<Snapshot>>,
    /// Makes the index of the newest list of tools, if an endpoint has lean lists.
    indexing: Option<AbortOnDropHandle<Option<()>>>,
    last_read: Option<Instant>,
    /// The newest snapshot is not trusted until all parts have been read again.
    suspect: bool,
    /// A server announced a change before there was a list to compare with.
    changed_unseen: bool,
    /// A part read after the newest snapshot includes an announced change.
    read_announced: bool,
    /// The first snapshot is being taken in the background.
    begun: bool,
    /// The endpoints at which the list differs from the list of the previous topology.
    differs: Differing,
}

/// The catalogues, by kind.
pub(crate) struct Catalogues {
    /// The common lists.
    all: [Arc<Catalogue>; 5],
    own: Arc<OwnLists>,
}

/// Principals' own lists may take this part (1/n) of the memory for the common lists, in addition
/// to it.
const OWN_BYTES: usize = 2;

/// Makes a catalogue of each kind, each after those it depends on.
fn chained(new: impl Fn(ListKind, &[&Arc<Catalogue>]) -> Arc<Catalogue>) -> [Arc<Catalogue>; 5] {
    let resources = new(ListKind::Resources, &[]);
    let skills = new(ListKind::Skills, &[&resources]);
    let tools = new(ListKind::Tools, &[&resources, &skills]);
    [
        tools,
        resources,
        new(ListKind::ResourceTemplates, &[]),
        new(ListKind::Prompts, &[]),
        skills,
    ]
}

fn pick_catalogue(
    [tools, resources, templates, prompts, skills]: &[Arc<Catalogue>; 5],
    kind: ListKind,
) -> &Arc<Catalogue> {
    match kind {
        ListKind::Tools => tools,
        ListKind::Resources => resources,
        ListKind::ResourceTemplates => templates,
        ListKind::Prompts => prompts,
        ListKind::Skills => skills,
    }
}

impl Catalogues {
    fn new(
        topology: &Arc<CurrentTopology>,
        announcer: &Arc<Announcer>,
        background: &Background,
    ) -> Self {
        let memory = Arc::<ListMemory>::default();
        let capabilities = Arc::<ListCapabilities>::default();
        let all = chained(|kind, claiming| {
            Arc::new(Catalogue {
                kind,
                claiming: claiming.iter().map(|list| Arc::clone(list)).collect(),
                capabilities: Arc::clone(&capabilities),
                topology: Arc::clone(topology),
                announcer: Arc::clone(announcer),
                background: background.clone(),
                memory: Arc::clone(&memory),
                own: None,
                state: Mutex::default(),
                merging: Mutex::default(),
            })
        });
        Self {
            all,
            own: OwnLists::new(topology.load().limits.bytes.all / OWN_BYTES),
        }
    }

    /// The catalogues that a change of this kind concerns.
    pub(crate) fn changed_by(&self, change: Change) -> impl Iterator<Item = &Arc<Catalogue>> {
        let kinds = ListKind::ALL.into_iter();
        kinds
            .filter(move |kind| kind.change() == change)
            .map(|kind| self.common(kind))
    }

    /// The common list, which Fanlight reads for itself.
    pub(crate) fn common(&self, kind: ListKind) -> &Arc<Catalogue> {
        pick_catalogue(&self.all, kind)
    }

    /// The list that `reader` sees: its own, or the common list for clients without authentication.
    fn for_reader(&self, kind: ListKind, reader: Option<&Reader>) -> Arc<Catalogue> {
        match reader {
            None => Arc::clone(self.common(kind)),
            Some(reader) => self.own.catalogue(reader, kind, &self.all),
        }
    }

    /// Declares the extensions of a client that asks for a list. If one is new, all lists are read
    /// again, because servers may have hidden entries. At most `most` extensions of clients are
    /// declared.
    pub(crate) fn declare_extensions(&self, client: &Json, most: usize) {
        let [tools, ..] = &self.all;
        if tools.capabilities.add(client, most) {
            self.all
                .iter()
                .for_each(|catalogue| catalogue.read_with_more());
        }
    }
}

impl State {
    fn newest_of(&self, topology: &Topology) -> Option<&Arc<Snapshot>> {
        self.snapshots
            .front()
            .filter(|snapshot| snapshot.topology == topology.number)
    }

    fn part(&mut self, backend: BackendId) -> &mut Part {
        self.parts.entry(backend).or_default()
    }
}

impl Catalogue {
    /// Makes an unread catalogue of the same kind for one principal.
    fn for_reader(&self, claiming: &[&Arc<Self>], own: Own) -> Self {
        Self {
            kind: self.kind,
            claiming: claiming.iter().map(|list| Arc::clone(list)).collect(),
            capabilities: Arc::clone(&self.capabilities),
            topology: Arc::clone(&self.topology),
            announcer: Arc::clone(&self.announcer),
            background: self.background.clone(),
            memory: Arc::clone(&self.memory),
            own: Some(own),
            state: Mutex::default(),
            merging: Mutex::default(),
        }
    }

    /// Begins a reservation of memory for a part.
    fn reserve(&self) -> ReservedBytes {
        match &self.own {
            None => self.memory.reserve(),
            Some(own) => own.memory.reserve(&own.reader),
        }
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock())
    }

    /// The newest snapshot of this topology, unless the list has probably changed since.
    pub(crate) fn trusted_view(&self, view: &View) -> Option<ListView> {
        let topology = view.topology();
        let whole = match &self.own {
            None => self.with_state(|state| {
                state
                    .newest_of(topology)
                    .filter(|_| !state.suspect)
                    .cloned()
            }),
            Some(own) => self
                .newest_snapshot(topology)
                .filter(|_| !self.is_outdated(own, topology)),
        };
        whole.map(|whole| ListView::new(whole, view))
    }

    /// Whether any part of a principal's list is known to be outdated.
    fn is_outdated(&self, own: &Own, topology: &Topology) -> bool {
        let private = self.follow(own, topology);
        let is_behind = |state: &State, backend: BackendId| {
            state.parts.get(&backend).is_none_or(Part::is_outdated)
        };
        own.shared.with_state(|state| {
            let mut public = topology.ids().filter(|backend| !private.contains(backend));
            public.any(|backend| is_behind(state, backend))
        }) || self.with_state(|state| {
            state.suspect || private.iter().any(|backend| is_behind(state, *backend))
        })
    }
}

/// Whether no process of the server is running, because it was idle or has not been started. For a
/// server with a canary, the version that `reader` uses counts.
fn rests(topology: &Topology, backend: BackendId, reader: Option<&Reader>) -> bool {
    topology
        .get(backend)
        .is_some_and(|backend| is_resting(&**backend.client_for(reader)))
}

fn is_resting(client: &dyn BackendClient) -> bool {
    // A server with per-user connections reports a needed sign-in before any connection exists.
    !client.traits().knows_principals && matches!(client.status().state, BackendState::Idle)
}
