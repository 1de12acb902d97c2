//! One state of a merged list: entries as clients see them, where each came from, and the pages
//! made of them.
//!
//! Must not know: how the lists were read, or which position a cursor stands for.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::Outcome;
use fanlight_protocol::Response;
use fanlight_protocol::json::{ArrayBuilder, Json, Kind, ObjectBuilder};
use foldhash::fast::RandomState;
use tracing::warn;

use super::pages::{self, Pages};
use super::{ListKind, Sources};
use crate::merge::{self, Contribution, Except, Merged};
use crate::naming::{self, Naming};
use crate::uri_template::UriTemplate;

/// Collisions that one line of the log names.
const NAMED: usize = 5;

/// One state of a merged list.
#[derive(Debug, Default)]
pub struct Snapshot {
    generation: u64,
    kind: Option<ListKind>,
    entries: Vec<Entry>,
    /// Where each backend's part of the entries begins; one more than there are backends.
    starts: Vec<usize>,
    index: HashMap<String, usize, RandomState>,
    templates: Vec<(UriTemplate, usize)>,
    rest: Merged,
    collisions: Vec<Collision>,
    contributions: Vec<Contribution>,
    pages: Pages,
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
    /// Which backend it came from: its place in the configuration.
    pub backend: usize,
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
    /// How many backends have a part in it that is missing or not whole.
    pub(crate) fn failures(&self) -> usize {
        merge::failures(&self.contributions)
    }

    /// Puts the backends' lists together, first come first served in configuration order.
    pub(super) fn new(kind: ListKind, contributions: Vec<Contribution>, sources: &Sources) -> Self {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let mut snapshot =
            Self { generation: GENERATION.fetch_add(1, Ordering::Relaxed), kind: Some(kind), ..Self::default() };
        for (backend, contribution) in contributions.iter().enumerate() {
            snapshot.starts.push(snapshot.entries.len());
            for result in &contribution.results {
                let list = result.get(kind.member()).unwrap_or_else(Json::null);
                for element in list.elements() {
                    snapshot.add(kind, list.slice(element), backend, sources);
                }
            }
        }
        snapshot.starts.push(snapshot.entries.len());
        let collisions = snapshot.collisions_json();
        let more: Vec<_> = collisions.map(|list| (merge::COLLISIONS_KEY, list)).into_iter().collect();
        snapshot.rest = merge::merge(
            &contributions,
            Except { members: &[kind.member(), "nextCursor", "resultType"], replaced: &[] },
            &more,
        );
        snapshot.contributions = contributions;
        snapshot
    }

    fn add(&mut self, kind: ListKind, element: Json, backend: usize, sources: &Sources) {
        let (Some(source), Some(naming)) = (sources.backends.get(backend), sources.namings.get(backend)) else {
            return;
        };
        let range = element.members().find(|member| member.is(&element, kind.key())).map(|member| member.value);
        let original = range.clone().map(|range| element.slice(range)).filter(|key| key.kind() == Kind::String);
        let name = original.as_ref().and_then(|key| key.as_str().map(|name| name.into_owned()));
        if let (ListKind::Tools, Some(permits), Some(name)) = (kind, &source.permits_tool, &name)
            && !permits(name)
        {
            return;
        }
        let (Some(range), Some(original)) = (range, original) else {
            // Not an entry anyone could ask for, but the backend said it.
            return self.entries.push(Entry { visible: Arc::new(element), key: None, original: None, backend });
        };
        let mut key = if kind.is_named() { naming.visible(&original) } else { original.clone() };
        if let Some(taken) = key.as_str().and_then(|key| self.index.get(key.as_ref()).copied()) {
            match self.collide(kind, &key, taken, source.client.name(), naming, sources) {
                Some(alias) => key = alias,
                None => return,
            }
        }
        let visible = if key == original { element } else { element.with(range, &key) };
        self.insert(kind, Entry { visible: Arc::new(visible), key: Some(key), original: Some(original), backend });
    }

    fn insert(&mut self, kind: ListKind, entry: Entry) {
        let place = self.entries.len();
        if let Some(key) = entry.key.as_ref().and_then(|key| key.as_str()) {
            if kind == ListKind::ResourceTemplates
                && let Some(template) = UriTemplate::parse(&key)
            {
                self.templates.push((template, place));
            }
            self.index.insert(key.into_owned(), place);
        }
        self.entries.push(entry);
    }

    /// A key that is taken: notes the collision; returns the alias if there can be one.
    fn collide(
        &mut self,
        kind: ListKind,
        key: &Json,
        taken: usize,
        other: &str,
        naming: &Naming,
        sources: &Sources,
    ) -> Option<Json> {
        let key = key.as_str()?;
        let kept = self.entries.get(taken).and_then(|entry| sources.backends.get(entry.backend));
        let kept = kept.map(|backend| backend.client.name().to_owned()).unwrap_or_default();
        // A backend that lists the same URI twice gets no alias: both lead to the same resource.
        let alias = (!kind.is_named() && kept != other).then(|| naming.alias(&key));
        let alias = alias.filter(|alias| !self.index.contains_key(alias));
        let alias_key = alias.as_deref().map(Json::string);
        self.collisions.push(Collision { key: key.into_owned(), kept, other: other.to_owned(), alias });
        alias_key
    }

    fn collisions_json(&self) -> Option<Json> {
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

    /// The answer with the entries from `start` on, at most `page_size` of them. `next_cursor` is
    /// asked for the cursor of the first entry that is left. If backends said how long their lists
    /// may be kept, `ttl_left` is what is left of that.
    pub(crate) fn page(
        &self,
        start: usize,
        page_size: usize,
        ttl_left: Duration,
        next_cursor: impl FnOnce(u32, u32) -> Option<String>,
    ) -> Response {
        let end = self.entries.len().min(start.saturating_add(page_size.max(1)));
        let ttl_left = pages::told(ttl_left);
        self.pages.kept_or(start.min(end), end, ttl_left, || {
            let cursor = self.place(end).and_then(|(backend, offset)| next_cursor(backend, offset));
            self.write_page(start..end, ttl_left, cursor)
        })
    }

    fn write_page(&self, place: Range<usize>, ttl_left: Duration, next_cursor: Option<String>) -> Json {
        let entries = self.entries.get(place).unwrap_or_default();
        let mut list = ArrayBuilder::with_capacity(entries.iter().map(|entry| entry.visible.bytes().len() + 1).sum());
        for entry in entries {
            list.push(&entry.visible);
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

    /// An entry's place as a backend and an offset within that backend's part.
    fn place(&self, at: usize) -> Option<(u32, u32)> {
        let entry = self.entries.get(at)?;
        let start = self.starts.get(entry.backend)?;
        Some((u32::try_from(entry.backend).ok()?, u32::try_from(at.checked_sub(*start)?).ok()?))
    }

    /// The place of an entry, clamped to its backend's part should that have become shorter.
    pub(crate) fn position(&self, backend: u32, offset: u32) -> Option<usize> {
        let backend = usize::try_from(backend).ok()?;
        let (start, end) = (*self.starts.get(backend)?, *self.starts.get(backend + 1)?);
        Some(start.saturating_add(usize::try_from(offset).ok()?).min(end))
    }

    /// The entry that clients know as `key`.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Entry> {
        self.index.get(key).and_then(|place| self.entries.get(*place))
    }

    /// Whether each entry of the list in `result` is one of these, in the same text.
    pub(crate) fn has_all_of(&self, result: &Json) -> bool {
        let list_of = |result: &Json| result.get(self.kind?.member());
        let Some(list) = list_of(result) else { return true };
        // Mostly it is the very page that was read. Comparing that whole is much cheaper than finding entries.
        let known = self.contributions.iter().flat_map(|contribution| &contribution.results);
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
            .and_then(|(_, place)| self.entries.get(*place))
    }

    /// All entries in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What two backends claim.
    #[must_use]
    pub fn collisions(&self) -> &[Collision] {
        &self.collisions
    }

    /// What each backend gave.
    #[must_use]
    pub fn contributions(&self) -> &[Contribution] {
        &self.contributions
    }

    /// Backends whose lists are missing or incomplete, and why in a word.
    pub(crate) fn unlisted(&self) -> Vec<(String, Outcome)> {
        let failed = self.contributions.iter().filter(|contribution| contribution.outcome != Outcome::Ok);
        failed.map(|contribution| (contribution.backend.clone(), contribution.outcome)).collect()
    }

    /// Tool names that common clients would refuse, each with why.
    #[must_use]
    pub fn name_objections(&self) -> Vec<String> {
        if self.kind != Some(ListKind::Tools) {
            return Vec::new();
        }
        let keys = self.entries.iter().filter_map(|entry| entry.key.as_ref()?.as_str());
        keys.filter_map(|name| naming::client_objection(&name)).collect()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.rest == other.rest
            && self.entries.len() == other.entries.len()
            && self.starts == other.starts
            && self.entries.iter().zip(&other.entries).all(|(a, b)| a.visible == b.visible && a.original == b.original)
    }

    /// Whether clients can use the same as with `other`. The order does not matter, and neither does
    /// what else the lists' results say: a server that words those anew each time has not changed.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        let offered = |snapshot: &Self| {
            let entries = snapshot.entries.iter().map(|entry| (entry.backend, entry.visible.bytes().clone()));
            let mut offered: Vec<_> = entries.collect();
            offered.sort_unstable();
            offered
        };
        self.entries.len() == other.entries.len() && offered(self) == offered(other)
    }

    pub(super) fn log_findings(&self) {
        let list = self.kind.map_or("", ListKind::member);
        for (count, claimed, what) in self.findings() {
            warn!(list, count, claimed, "{what}");
        }
    }

    /// What is to be said of collisions, one line for each kind: how many, some of them, and what
    /// became of them.
    pub(crate) fn findings(&self) -> Vec<(usize, String, &'static str)> {
        let (aliased, left_out): (Vec<_>, Vec<_>) = self.collisions.iter().partition(|found| found.alias.is_some());
        let kinds = [
            (aliased, "backends claim the same URIs; that of a later one has an alias"),
            (left_out, "backends claim the same names; what a later one has is left out"),
        ];
        let said = kinds.into_iter().filter(|(found, _)| !found.is_empty());
        said.map(|(found, what)| (found.len(), named(&found), what)).collect()
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
