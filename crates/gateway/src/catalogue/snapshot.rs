//! One state of a merged list: the entries as clients see them, the backend of each, and the pages
//! made of them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use std::time::Duration;

use fanlight_canonical::{Outcome, Principal, Rewritten};
use fanlight_protocol::json::{ArrayBuilder, Json, ObjectBuilder};
use fanlight_protocol::{Response, task_support};
use foldhash::fast::RandomState;
use tracing::warn;

use super::ListKind;
use super::pages::{self, Pages};
use super::rewritten::UnknownName;
use super::uri_template::UriTemplate;
use crate::merge::{self, Contribution, Merged};
use crate::topology::{self, BackendId, ToolRewriting};

/// How many collisions a log line names.
const NAMED: usize = 5;

/// One state of a merged list.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub(super) generation: u64,
    /// The number of the topology that it was made for.
    pub(super) topology: u64,
    pub(super) kind: Option<ListKind>,
    pub(super) entries: Vec<Entry>,
    /// In configuration order.
    pub(super) parts: Vec<Part>,
    pub(super) index: HashMap<String, usize, RandomState>,
    /// The URIs that entries of tools and skills name, and the first backend that names each.
    pub(super) named: HashMap<String, BackendId, RandomState>,
    /// The positions of tools by the names that their backends give them, where these differ from the clients'.
    pub(super) bare: HashMap<String, Vec<usize>, RandomState>,
    pub(super) templates: Vec<(UriTemplate, usize)>,
    pub(super) rest: Merged,
    pub(super) collisions: Vec<Collision>,
    /// The names in the configuration that servers do not list.
    pub(super) unknown: Vec<UnknownName>,
    /// What the configuration has changed of any entry.
    pub(super) rewritten: Rewritten,
    pub(super) pages: Pages,
}

/// Which page of a list is wanted, and by whom.
pub(crate) struct PageOf<'a> {
    /// The position of its first entry.
    pub(crate) start: usize,
    /// Entries on it, at most.
    pub(crate) size: usize,
    /// What is left of the time for which the list may be kept, if backends limit that.
    pub(crate) ttl_left: Duration,
    pub(crate) principal: &'a Principal,
    /// The backends whose tools the client may call as tasks although they do not say so.
    pub(crate) taking_tasks: Vec<BackendId>,
}

/// What one backend gave.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) backend: BackendId,
    /// Which entries are its.
    pub(super) entries: Range<usize>,
    pub(super) contribution: Contribution,
}

/// One entry of a merged list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The entry as clients see it.
    pub visible: Arc<Json>,
    /// What identifies it to clients: a JSON string; `None` if the backend gave none.
    pub key: Option<Json>,
    /// What identifies it to the backend: a JSON string; `None` if the backend gave none.
    pub original: Option<Json>,
    /// Which backend it came from.
    pub backend: BackendId,
    /// Whether it is a tool that an app shows.
    pub shows_app: bool,
    /// What the configuration has changed of it.
    pub rewritten: Rewritten,
    /// How it is called, if its backend gets other arguments than clients send.
    pub(crate) rewriting: Option<Arc<ToolRewriting>>,
}

/// A name or URI that two backends claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// What both claim.
    pub key: String,
    /// The backend that has it: the first in configuration order.
    pub kept: String,
    /// The backend that does not.
    pub other: String,
    /// Under which other URI the later one stays readable; `None` if it cannot be reached.
    pub alias: Option<String>,
}

impl Snapshot {
    pub(super) fn collisions_json(&self) -> Option<Json> {
        if self.collisions.is_empty() {
            return None;
        }
        let mut list = ArrayBuilder::default();
        for collision in &self.collisions {
            let mut object = ObjectBuilder::new();
            object.string(self.kind.map_or("key", ListKind::key), &collision.key);
            object.string("kept", &collision.kept).string("other", &collision.other);
            if let Some(alias) = &collision.alias {
                object.string("alias", alias);
            }
            list.push(&object.finish());
        }
        Some(list.finish())
    }

    /// The answer with one page of the list. `next_cursor` makes the cursor of the first entry that is left, from the
    /// name of its backend and its offset within that one's part.
    pub(crate) fn page(&self, page: PageOf<'_>, next_cursor: impl FnOnce(&str, u32) -> Option<String>) -> Response {
        let PageOf { start, size, ttl_left, principal, taking_tasks } = page;
        let end = self.entries.len().min(start.saturating_add(size.max(1)));
        let ttl_left = pages::rounded(ttl_left);
        let next = self.place(end);
        let key = pages::Key { start: start.min(end), principal: next.map(|_| principal.clone()), taking_tasks };
        self.pages.kept_or(&key, end, ttl_left, || {
            let cursor = next.and_then(|(backend, offset)| next_cursor(backend, offset));
            self.write_page(start..end, &key.taking_tasks, ttl_left, cursor)
        })
    }

    fn write_page(
        &self,
        range: Range<usize>,
        taking_tasks: &[BackendId],
        ttl_left: Duration,
        next_cursor: Option<String>,
    ) -> Json {
        let entries = self.entries.get(range).unwrap_or_default();
        let mut list = ArrayBuilder::with_capacity(entries.iter().map(|entry| entry.visible.bytes().len() + 1).sum());
        for entry in entries {
            let takes_tasks = taking_tasks.contains(&entry.backend);
            match takes_tasks.then(|| task_support::optional_for_tool(&entry.visible)).flatten() {
                Some(offered) => list.push(&offered),
                None => list.push(&entry.visible),
            };
        }
        let mut result = ObjectBuilder::new();
        result.member(self.kind.map_or("entries", ListKind::member), &list.finish());
        if let Some(cursor) = next_cursor {
            result.string("nextCursor", &cursor);
        }
        for (key, value) in &self.rest.members {
            match (key.as_text(), value.as_i64(), i64::try_from(ttl_left.as_millis())) {
                ("\"ttlMs\"", Some(ttl), Ok(left)) if left < ttl => result.integer("ttlMs", left),
                _ => result.raw_member(key, value),
            };
        }
        if let Some(meta) = &self.rest.meta {
            result.member("_meta", meta);
        }
        result.finish()
    }

    /// The name of the backend of the entry at a position, and the entry's offset within its part.
    fn place(&self, at: usize) -> Option<(&str, u32)> {
        let part = self.parts.iter().find(|part| part.entries.contains(&at))?;
        Some((&part.contribution.backend, u32::try_from(at - part.entries.start).ok()?))
    }

    /// The position of an entry, at most the end of its backend's part should that have become shorter.
    pub(crate) fn position(&self, backend: &str, offset: u32) -> Option<usize> {
        let Range { start, end } = self.parts.iter().find(|part| part.contribution.backend == backend)?.entries;
        Some(start.saturating_add(usize::try_from(offset).ok()?).min(end))
    }

    /// The entry that clients know as `key`.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Entry> {
        self.index.get(key).and_then(|position| self.entries.get(*position))
    }

    /// The entries of tools that their backends call `name`, and clients do not.
    pub(crate) fn find_bare(&self, name: &str) -> impl Iterator<Item = &Entry> {
        let positions = self.bare.get(name).into_iter().flatten();
        positions.filter_map(|position| self.entries.get(*position))
    }

    /// The backend to whose entry this URI belongs: that is its own, or it names it.
    pub(crate) fn backend_naming(&self, uri: &str) -> Option<BackendId> {
        match self.kind? {
            ListKind::Tools | ListKind::Skills => self.named.get(uri).copied(),
            _ => self.find(uri).map(|entry| entry.backend),
        }
    }

    /// Whether each entry of the list in `result` is one of these, in the same text.
    pub(crate) fn has_all_of(&self, result: &Json) -> bool {
        let list_of = |result: &Json| result.get(self.kind?.member());
        let Some(list) = list_of(result) else { return true };
        // Mostly it is a page as it was read. Comparing that whole is much cheaper than finding entries.
        let known = self.contributions().flat_map(|contribution| &contribution.results);
        known.filter_map(list_of).any(|known| known == list)
            || list.elements().map(|place| list.slice(place)).all(|entry| {
                let key = self.kind.and_then(|kind| entry.get(kind.key()));
                let known = key.and_then(|key| self.find(&key.as_str()?));
                known.is_some_and(|known| *known.visible == entry)
            })
    }

    /// The first entry whose template can have produced `uri`.
    pub(crate) fn find_template(&self, uri: &str) -> Option<&Entry> {
        self.templates
            .iter()
            .find(|(template, _)| template.matches(uri))
            .and_then(|(_, position)| self.entries.get(*position))
    }

    /// All entries in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The keys that two backends claim.
    #[must_use]
    pub fn collisions(&self) -> &[Collision] {
        &self.collisions
    }

    /// What each backend gave, in configuration order.
    pub fn contributions(&self) -> impl Iterator<Item = &Contribution> + Clone {
        self.parts.iter().map(|part| &part.contribution)
    }

    /// The name of the backend that an entry came from.
    #[must_use]
    pub fn backend_of(&self, entry: &Entry) -> &str {
        let part = self.parts.iter().find(|part| part.backend == entry.backend);
        part.map_or("", |part| &part.contribution.backend)
    }

    pub(super) fn backends(&self) -> impl Iterator<Item = BackendId> + '_ {
        self.parts.iter().map(|part| part.backend)
    }

    /// How many backends have a part in it that is missing or not whole.
    pub(crate) fn failures(&self) -> usize {
        merge::failures(self.contributions())
    }

    /// Backends whose lists are missing or incomplete, each with its outcome.
    pub(crate) fn unlisted(&self) -> Vec<(String, Outcome)> {
        let failed = self.contributions().filter(|contribution| contribution.outcome != Outcome::Ok);
        failed.map(|contribution| (contribution.backend.clone(), contribution.outcome)).collect()
    }

    /// Why common clients would reject some of the tool names.
    #[must_use]
    pub fn name_objections(&self) -> Vec<String> {
        if self.kind != Some(ListKind::Tools) {
            return Vec::new();
        }
        let keys = self.entries.iter().filter_map(|entry| entry.key.as_ref()?.as_str());
        keys.filter_map(|name| topology::client_objection(&name)).collect()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn topology(&self) -> u64 {
        self.topology
    }

    /// Whether clients would get the same texts of `other`.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let places = |snapshot: &Self| -> Vec<_> { snapshot.parts.iter().map(|part| part.entries.clone()).collect() };
        self.rest == other.rest
            && self.entries.len() == other.entries.len()
            && places(self) == places(other)
            && self.entries.iter().zip(&other.entries).all(|(a, b)| a.visible == b.visible && a.original == b.original)
    }

    /// Whether it has the same entries for clients as `other`, of whatever backends. The order does not matter, and
    /// neither do the other members of the results, which some servers write differently each time.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        fn sorted(snapshot: &Snapshot) -> Vec<&bytes::Bytes> {
            let mut entries: Vec<_> = snapshot.entries.iter().map(|entry| entry.visible.bytes()).collect();
            entries.sort_unstable();
            entries
        }
        self.entries.len() == other.entries.len() && sorted(self) == sorted(other)
    }

    /// Logs what is wrong with it, as far as that is not so with `previous`.
    pub(super) fn log_findings(&self, previous: Option<&Self>) {
        for unknown in &self.unknown {
            let is_news = previous.is_none_or(|previous| !previous.unknown.contains(unknown));
            // Whether a prompt has the name, this list does not say; `fanlight check` does.
            if is_news && !unknown.may_be_prompt {
                let UnknownName { backend, name, tool, .. } = unknown;
                warn!(backend, name, tool, "the configuration names what the server does not list");
            }
        }
        let list = self.kind.map_or("", ListKind::member);
        for (count, claimed, what) in self.findings() {
            warn!(list, count, claimed, "{what}");
        }
    }

    /// The collisions for the log, one line for each kind: how many, some of them, and what happened to
    /// them.
    pub(crate) fn findings(&self) -> Vec<(usize, String, &'static str)> {
        let (aliased, left_out): (Vec<_>, Vec<_>) = self.collisions.iter().partition(|found| found.alias.is_some());
        let kinds = [
            (aliased, "backends claim the same URIs; those of a later one get aliases"),
            (left_out, "backends claim the same names; those of a later one are left out"),
        ];
        let present = kinds.into_iter().filter(|(found, _)| !found.is_empty());
        present.map(|(found, what)| (found.len(), named(&found), what)).collect()
    }
}

/// Some of `collisions`, with the backends that claim each.
fn named(collisions: &[&Collision]) -> String {
    let some = collisions.iter().take(NAMED).map(|found| format!("{} ({}, {})", found.key, found.kept, found.other));
    let more = collisions.len().checked_sub(NAMED).filter(|more| *more > 0).map(|more| format!("{more} more"));
    some.chain(more).collect::<Vec<_>>().join(", ")
}

/// The entry that a backend's own list has under the name or URI `original`.
pub(super) fn find_in(list: &Contribution, kind: ListKind, original: &str) -> Option<Json> {
    list.results.iter().find_map(|result| {
        let entries = result.get(kind.member())?;
        let is_it = |entry: &Json| entry.get(kind.key()).is_some_and(|key| key.as_str().as_deref() == Some(original));
        entries.elements().map(|place| entries.slice(place)).find(is_it)
    })
}
