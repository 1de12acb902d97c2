//! One snapshot of a merged list: the entries as clients see them, and the server of each.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use fanlight_canonical::Rewritten;
use fanlight_protocol::json::{Json, Unreadable};
use fanlight_protocol::visible::escaped;
use foldhash::fast::RandomState;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::ListKind;
use super::memory::ReservedBytes;
use super::shown::{Collision, Shown, ShownByRights};
use super::uri_template::matches;
use crate::merge::{Contribution, Merged};
use crate::search::{SearchIndex, ToolText, ToolWords};
use crate::topology::{BackendId, Endpoints, Reader, ToolRewriting, View};

/// The memory of an entry's index records, in bytes.
const BESIDES: usize = 128;
/// The steps in which the templates of one server are compared with a URI.
const STEPS: usize = 1 << 23;
/// How many collisions a log line names.
const NAMED: usize = 5;

/// One snapshot of a merged list.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(super) generation: u64,
    /// The number of the topology that the snapshot was made for.
    pub(super) topology: u64,
    pub(super) kind: Option<ListKind>,
    /// Whether it has private parts. Only `reader` may see these; `None` means clients without
    /// authentication.
    pub(super) is_private: bool,
    pub(super) reader: Option<Reader>,
    /// The memory reserved for it, if it belongs to a principal.
    pub(super) reserved: Option<ReservedBytes>,
    pub(super) entries: Vec<Entry>,
    /// The servers' parts in configuration order.
    pub(super) parts: Vec<Part>,
    /// The positions of the entries that servers want clients to know by a name or URI, ascending.
    /// Of several, clients see the one of the first server that their endpoint shows.
    pub(super) index: HashMap<String, Vec<usize>, RandomState>,
    /// The URIs that entries of tools and skills name, and the first server that names each.
    pub(super) named: HashMap<String, BackendId, RandomState>,
    /// The positions of tools by the server's own name, where it differs from the clients' name.
    pub(super) bare: HashMap<String, Vec<usize>, RandomState>,
    /// The entries that are withheld, by server and the server's own name.
    pub(super) withheld: Vec<(BackendId, Box<str>)>,
    /// The entries that are left out because programs could read them differently.
    pub(super) unreadable: Vec<UnreadableEntry>,
    /// The entries that are left out because strict clients would reject the list.
    pub(super) invalid: Vec<InvalidEntry>,
    pub(super) rest: Merged,
    pub(super) collisions: Vec<Collision>,
    /// The names in the configuration that servers do not list.
    pub(super) unknown: Vec<UnknownName>,
    /// The extensions that clients need to see some of the entries.
    pub(super) needed: Vec<Arc<str>>,
    /// The part that each endpoint shows, by the position of the endpoint's rules; last the part
    /// that all others show.
    pub(super) views: Box<[OnceLock<Arc<Shown>>]>,
    /// The part that clients are shown under a policy, by their rights.
    pub(super) shown_by_rights: ShownByRights,
    /// The index of the tools, once it is made.
    pub(super) search: OnceLock<SearchIndex>,
    /// The endpoints whose rules `views` follows.
    pub(super) endpoints: Option<Arc<Endpoints>>,
}

/// One server's part of a snapshot.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) backend: BackendId,
    /// The range of its entries.
    pub(super) entries: Range<usize>,
    pub(super) contribution: Contribution,
    /// The words of its tools, once the index is made.
    pub(super) words: Arc<OnceLock<Arc<ToolWords>>>,
}

/// One entry of a merged list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The entry as clients see it.
    pub visible: Arc<Json>,
    /// The name or URI for clients, as a JSON string; `None` if the server gave none.
    pub key: Option<Json>,
    /// The name or URI for the server, as a JSON string; `None` if the server gave none.
    pub original: Option<Json>,
    /// The server that listed it.
    pub backend: BackendId,
    /// Set for a tool that an app shows.
    pub shows_app: bool,
    /// The kinds of changes that the configuration made to it.
    pub rewritten: Rewritten,
    /// How to rewrite its arguments, if the server gets other arguments than clients send.
    pub(crate) rewriting: Option<Arc<ToolRewriting>>,
    /// The extension that a client needs to see it.
    pub(super) needs: Option<Arc<str>>,
}

impl Snapshot {
    /// Whether clients of this principal may see the snapshot; `None` means clients without
    /// authentication.
    pub(crate) fn may_be_seen_by(&self, reader: Option<&Reader>) -> bool {
        !self.is_private || self.reader.as_ref() == reader
    }

    /// Makes the index for searches, if there is none, on a thread of its own. One is made at a time.
    pub(super) async fn make_index(self: Arc<Self>) {
        static TURN: Mutex<()> = Mutex::const_new(());
        if self.search.get().is_none() {
            let turn = TURN.lock().await;
            let making = spawn_blocking(move || {
                self.search_index();
                drop(turn);
            });
            // It fails only if the process is ending.
            let _ = making.await;
        }
    }

    /// The index of its tools for searches.
    pub(super) fn search_index(&self) -> &SearchIndex {
        let words = |part: &Part| {
            let texts = part.entries_in(&self.entries).iter().map(|tool| {
                let server = &part.contribution.backend;
                ToolText::new(server, &tool.searched_name(), &tool.visible)
            });
            let words = part.words.get_or_init(|| Arc::new(ToolWords::new(texts)));
            Arc::clone(words)
        };
        self.search
            .get_or_init(|| SearchIndex::new(self.parts.iter().map(words)))
    }

    /// Takes over the words of the servers whose tools are as in `previous`.
    pub(super) fn keep_words(&mut self, previous: &Self) {
        for part in &mut self.parts {
            let server = &part.contribution.backend;
            let mut others = previous.parts.iter();
            let last = others.find(|other| other.contribution.backend == *server);
            if let Some(last) = last
                && are_same(
                    part.entries_in(&self.entries),
                    last.entries_in(&previous.entries),
                )
            {
                part.words = last.words.clone();
            }
        }
    }

    /// The part that an endpoint shows by the rules at `position`; without rules, everything.
    pub(super) fn view_at(&self, position: Option<usize>) -> Option<&OnceLock<Arc<Shown>>> {
        position.map_or(self.views.last(), |position| self.views.get(position))
    }

    /// The memory of its entries in bytes: text, record and indexes.
    pub(super) fn size(&self) -> usize {
        let size = |entry: &Entry| entry.visible.bytes().len() + size_of::<Entry>() + BESIDES;
        self.entries.iter().map(size).sum()
    }

    /// The entry that clients know as `key`.
    pub(crate) fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.get(self.claimants(key).next()?)
    }

    /// The positions of the entries that servers want clients to know as `key`, ascending.
    pub(super) fn claimants(&self, key: &str) -> impl Iterator<Item = usize> {
        self.index.get(key).into_iter().flatten().copied()
    }

    /// Whether an earlier server that `view` shows has the name of the entry at this position.
    pub(super) fn is_rivalled(&self, position: usize, view: &View) -> bool {
        let is_shown = |at: usize| {
            let entry = self.entries.get(at);
            entry.is_some_and(|entry| view.shows(entry.backend))
        };
        let key = self
            .entries
            .get(position)
            .and_then(|entry| entry.key.as_ref()?.as_str());
        key.is_some_and(|key| {
            let mut earlier = self.claimants(&key).take_while(|at| *at < position);
            earlier.any(is_shown)
        })
    }

    /// The server that lists this URI or names it in an entry.
    pub(crate) fn backend_naming(&self, uri: &str) -> Option<BackendId> {
        match self.kind? {
            ListKind::Tools | ListKind::Skills => self.named.get(uri).copied(),
            _ => self.find(uri).map(|entry| entry.backend),
        }
    }

    /// Whether the snapshot has each entry of the list in `result`, with the same text.
    pub(crate) fn has_all_of(&self, result: &Json) -> bool {
        let list_of = |result: &Json| result.get(self.kind?.member());
        let Some(list) = list_of(result) else {
            return true;
        };
        // `result` is usually a page as it was read. Comparing whole pages is much cheaper than
        // finding entries.
        let known = self
            .contributions()
            .flat_map(|contribution| &contribution.results);
        known.filter_map(list_of).any(|known| known == list)
            || list.items().all(|entry| {
                let key = self.kind.and_then(|kind| entry.get(kind.key()));
                let known = key.and_then(|key| self.find(&key.as_str()?));
                known.is_some_and(|known| *known.visible == entry)
            })
    }

    /// Whether an entry of this server is withheld.
    pub(crate) fn withholds_of(&self, backend: BackendId) -> bool {
        self.withheld.iter().any(|(server, _)| *server == backend)
    }

    /// Whether this server's entry `original` is withheld.
    pub(crate) fn withholds(&self, backend: BackendId, original: &str) -> bool {
        let mut withheld = self.withheld.iter();
        withheld.any(|(server, name)| *server == backend && **name == *original)
    }

    /// The withheld entry with this name of its server.
    pub(crate) fn find_withheld(&self, original: &str) -> Option<(BackendId, String)> {
        let mut withheld = self.withheld.iter();
        let (backend, name) = withheld.find(|(_, name)| **name == *original)?;
        Some((*backend, name.to_string()))
    }

    /// Whether a template of this server can have produced `uri`, which is the server's own name
    /// for a resource.
    pub(crate) fn explains(&self, uri: &str, backend: BackendId) -> bool {
        let mut parts = self.parts.iter().filter(|part| part.backend == backend);
        parts.any(|part| self.find_among(part, uri, &Cell::new(STEPS)).is_some())
    }

    /// The first entry whose template can have produced `uri`. Afterwards `left` has the steps for
    /// further URIs: none if a server has too many templates to compare.
    pub(crate) fn find_template(&self, uri: &str, left: &Cell<usize>) -> Option<&Entry> {
        if left.get() == 0 {
            return None;
        }
        let mut used = 0;
        let found = self.parts.iter().find_map(|part| {
            let steps = Cell::new(STEPS);
            let found = self.find_among(part, uri, &steps);
            used += if steps.get() > 0 {
                STEPS - steps.get()
            } else {
                left.get()
            };
            found
        });
        left.set(left.get().saturating_sub(used));
        found
    }

    fn find_among(&self, part: &Part, uri: &str, steps: &Cell<usize>) -> Option<&Entry> {
        let entries = self.entries.get(part.entries.clone())?.iter();
        let mut compared = entries.take_while(|_| steps.get() > 0);
        compared.find(|entry| {
            let template = entry.key.as_ref().and_then(Json::as_str);
            template.is_some_and(|template| matches(&template, uri, steps))
        })
    }

    /// The contribution of each server, in configuration order.
    pub(super) fn contributions(&self) -> impl Iterator<Item = &Contribution> + Clone {
        self.parts.iter().map(|part| &part.contribution)
    }

    /// Whether clients would get the same texts from `other`.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let places = |snapshot: &Self| -> Vec<_> {
            snapshot
                .parts
                .iter()
                .map(|part| part.entries.clone())
                .collect()
        };
        self.rest == other.rest
            && places(self) == places(other)
            && are_same(&self.entries, &other.entries)
    }

    /// The servers whose entries differ in `other`.
    pub(super) fn differing_servers(&self, other: &Self) -> Vec<BackendId> {
        fn entries(snapshot: &Snapshot, backend: BackendId) -> Option<&[Entry]> {
            let mut parts = snapshot.parts.iter();
            let part = parts.find(|part| part.backend == backend)?;
            snapshot.entries.get(part.entries.clone())
        }
        let differs =
            |backend: &BackendId| match (entries(self, *backend), entries(other, *backend)) {
                (Some(some), Some(others)) => !are_same(some, others),
                _ => true,
            };
        let parts = self.parts.iter().chain(&other.parts);
        let servers: BTreeSet<_> = parts.map(|part| part.backend).collect();
        servers.into_iter().filter(differs).collect()
    }

    /// Logs the snapshot's faults that `previous` did not have.
    pub(super) fn log_findings(&self, previous: Option<&Self>) {
        for unknown in &self.unknown {
            let is_news = previous.is_none_or(|previous| !previous.unknown.contains(unknown));
            // This list cannot tell whether a prompt has the name. `fanlight check` can.
            if is_news && !unknown.may_be_prompt {
                let UnknownName {
                    backend,
                    name,
                    tool,
                    ..
                } = unknown;
                warn!(
                    backend,
                    name, tool, "the configuration names an entry that the server does not list"
                );
            }
        }
        self.log_invalid(previous);
        let list = self.kind.map_or("", ListKind::member);
        for (count, claimed, what) in self.findings() {
            warn!(list, count, claimed, "{what}");
        }
        if let Some(UnreadableEntry { backend, name, why }) = self.unreadable.first()
            && previous.is_none_or(|previous| previous.unreadable != self.unreadable)
        {
            let (count, name) = (self.unreadable.len(), escaped(name));
            warn!(list, count, backend, %name, %why, "entries are left out, because programs could read them differently");
        }
    }

    /// Logs the entries that are left out and were not left out of `previous`.
    fn log_invalid(&self, previous: Option<&Self>) {
        let list = self.kind.map_or("", ListKind::member);
        let is_known = |found: &InvalidEntry| {
            previous.is_some_and(|previous| previous.invalid.iter().any(|one| one.is_same(found)))
        };
        let mut news = self.invalid.iter().filter(|found| !is_known(found));
        if let Some(first) = news.next() {
            let (count, backend) = (1 + news.count(), &first.backend);
            let (name, reason) = (first.name().unwrap_or_default(), first.reason);
            let name = escaped(&name);
            warn!(list, count, backend, %name, reason, "entries are left out, because strict clients would reject the list of all servers");
        }
    }

    /// The collisions for the log, one item for each kind: their number, some of them, and the
    /// outcome.
    pub(crate) fn findings(&self) -> Vec<(usize, String, &'static str)> {
        let (aliased, left_out): (Vec<_>, Vec<_>) = self
            .collisions
            .iter()
            .partition(|found| found.alias.is_some());
        let kinds = [
            (
                aliased,
                "servers claim the same URIs; later servers get aliases",
            ),
            (
                left_out,
                "servers claim the same names; entries of later servers are left out",
            ),
        ];
        let present = kinds.into_iter().filter(|(found, _)| !found.is_empty());
        present
            .map(|(found, what)| (found.len(), list_collisions(&found), what))
            .collect()
    }
}

impl Entry {
    /// Whether a client without these extensions does not see it.
    pub(crate) fn needs_any(&self, lacking: &[Arc<str>]) -> bool {
        let needs = self.needs.as_ref();
        needs.is_some_and(|need| lacking.contains(need))
    }

    /// The name or URI for clients.
    pub fn name(&self) -> Option<String> {
        self.key.as_ref()?.to_str()
    }

    /// The server's own name or URI.
    pub fn own_name(&self) -> Option<String> {
        self.original.as_ref()?.to_str()
    }

    /// The names by which searches find it: the server's own, and one that the configuration gives.
    fn searched_name(&self) -> String {
        let original = self.own_name().unwrap_or_default();
        match self.name().filter(|key| !key.ends_with(&original)) {
            Some(renamed) => format!("{original} {renamed}"),
            None => original,
        }
    }
}

impl Part {
    /// The entries of this part, out of the `entries` of its snapshot.
    fn entries_in<'a>(&self, entries: &'a [Entry]) -> &'a [Entry] {
        entries.get(self.entries.clone()).unwrap_or_default()
    }
}

/// Whether clients would get the same texts from both.
fn are_same(some: &[Entry], others: &[Entry]) -> bool {
    let mut pairs = some.iter().zip(others);
    some.len() == others.len()
        && pairs
            .all(|(a, b)| a.visible == b.visible && a.original == b.original && a.needs == b.needs)
}

/// Lists some of `collisions` with the servers that claim them.
fn list_collisions(collisions: &[&Collision]) -> String {
    let some = collisions
        .iter()
        .take(NAMED)
        .map(|found| format!("{} ({}, {})", found.key, found.kept, found.other));
    let more = collisions
        .len()
        .checked_sub(NAMED)
        .filter(|more| *more > 0)
        .map(|more| format!("{more} more"));
    some.chain(more).collect::<Vec<_>>().join(", ")
}

/// The entry that a server lists under its own name or URI `original`.
pub(super) fn find_in(list: &Contribution, kind: ListKind, original: &str) -> Option<Json> {
    list.results.iter().find_map(|result| {
        let entries = result.get(kind.member())?;
        entries
            .items()
            .find(|entry| entry.says(kind.key(), original))
    })
}

/// An entry that is left out, although a rule depends on it, because programs could read it
/// differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableEntry {
    /// The server.
    pub backend: String,
    /// The server's own name or URI of the entry; empty if it has none.
    pub name: String,
    /// The reason.
    pub why: Unreadable,
}

/// An entry that is left out because strict clients would reject the list with it.
#[derive(Clone, Debug)]
pub struct InvalidEntry {
    /// The server.
    pub backend: String,
    /// The entry as the server lists it.
    pub entry: Entry,
    /// The reason.
    pub reason: &'static str,
}

impl InvalidEntry {
    /// The server's own name or URI of the entry, if it has one.
    pub fn name(&self) -> Option<String> {
        self.entry.own_name()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.backend == other.backend && self.entry.original == other.entry.original
    }
}

/// A name in the configuration that the server does not list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnknownName {
    /// The server.
    pub backend: String,
    /// The name of the tool, prompt or argument.
    pub name: String,
    /// The tool, if the name is an argument's.
    pub tool: Option<String>,
    /// Whether a prompt may have the name, since `rename` applies to tools and prompts.
    pub may_be_prompt: bool,
}
