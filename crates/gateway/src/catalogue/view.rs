//! A merged list as one endpoint shows it. It shares the entries of the merged list; if the
//! endpoint hides some, it keeps the positions of the others.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Endpoint, Holder, Outcome, Rewritten};
use fanlight_protocol::{ArrayBuilder, Json, ObjectBuilder, Response, task_support};

use super::ListKind;
use super::shown::{self, Collision, Pages, Shown};
use super::snapshot::{Entry, InvalidEntry, Part, Snapshot, UnknownName, UnreadableEntry, find_in};
use crate::merge::{self, Contribution, Except, Merged};
use crate::topology::{BackendId, View};
use crate::uri_places as places;

/// A merged list as one endpoint shows it.
#[derive(Clone, Debug, Default)]
pub struct ListView {
    whole: Arc<Snapshot>,
    shown: Arc<Shown>,
}

/// The page of a list that a client asks for.
pub(crate) struct PageOf<'a> {
    /// The position of its first entry.
    pub(crate) start: usize,
    /// The most entries on it.
    pub(crate) size: usize,
    /// The remaining lifetime of the list, if servers limit it.
    pub(crate) ttl_left: Duration,
    pub(crate) holder: &'a Holder,
    /// The servers whose tools this client may call as tasks although they do not say so.
    pub(crate) taking_tasks: Vec<BackendId>,
    /// The extensions that some entries need and the client lacks.
    pub(crate) lacking: Vec<Arc<str>>,
}

/// The number of left out entries that clients are told of.
const MOST_LEFT_OUT: usize = 20;

impl Shown {
    fn new(whole: &Snapshot, view: &View) -> Self {
        let mut shown = Self {
            pages: if view.rights().is_some() {
                Pages::for_filtered_list()
            } else {
                Pages::default()
            },
            ..Self::default()
        };
        for (index, part) in whole
            .parts
            .iter()
            .enumerate()
            .filter(|(_, part)| view.shows(part.backend))
        {
            let start = shown.positions.len();
            let entries = part.entries.clone().filter(|position| {
                whole
                    .kind
                    .zip(whole.entries.get(*position))
                    .is_some_and(|(kind, entry)| shows(view, kind, entry))
                    && !whole.is_rivalled(*position, view)
            });
            shown
                .positions
                .extend(entries.filter_map(|position| u32::try_from(position).ok()));
            shown.parts.push((index, start..shown.positions.len()));
        }
        shown.positions.shrink_to_fit();
        let entries = shown
            .positions
            .iter()
            .filter_map(|position| whole.entries.get(usize::try_from(*position).ok()?));
        shown.rewritten = entries.fold(Rewritten::empty(), |all, entry| all.union(entry.rewritten));
        let is_shown = |name: &str| view.backends().any(|backend| backend.name() == name);
        let position = |visible: &str| u32::try_from(whole.claimants(visible).next()?).ok();
        let is_among = |position: u32| shown.positions.binary_search(&position).is_ok();
        // A collision names both entries, so both must be shown.
        let is_known = |collision: &Collision| {
            let visible = collision.alias.as_deref().unwrap_or(&collision.key);
            position(visible).is_some_and(is_among) && position(&collision.key).is_none_or(is_among)
        };
        let collisions = whole
            .collisions
            .iter()
            .filter(|one| is_shown(&one.kept) && is_shown(&one.other) && is_known(one));
        shown.collisions = collisions.cloned().collect();
        let kind = whole.kind.map_or("entries", ListKind::member);
        let contributions: Vec<_> = shown
            .parts
            .iter()
            .filter_map(|(index, _)| whole.parts.get(*index))
            .map(|part| &part.contribution)
            .collect();
        let invalid = whole.invalid.iter().filter(|found| {
            let shows_it = |kind| shows(view, kind, &found.entry);
            view.shows(found.entry.backend) && whole.kind.is_some_and(shows_it)
        });
        shown.rest = merge_rest(
            kind,
            contributions.iter().copied(),
            [
                collisions_json(whole.kind, &shown.collisions),
                invalid_json(invalid),
            ],
        );
        shown
    }
}

/// Whether a view that shows the entry's server shows the entry itself.
fn shows(view: &View, kind: ListKind, entry: &Entry) -> bool {
    let (backend, original) = (
        entry.backend,
        entry.original.as_ref().and_then(Json::as_str),
    );
    let filtered = kind.change();
    if !view.filters(filtered) {
        return true;
    }
    match kind {
        ListKind::Tools | ListKind::Prompts => original
            .is_some_and(|name| view.permits_name(filtered, backend, &name, Some(&entry.visible))),
        ListKind::Resources | ListKind::ResourceTemplates => {
            original.is_some_and(|uri| view.permits_uri(backend, &uri))
        }
        // Clients read a skill by references from one of its files to others, so all files must be
        // permitted.
        ListKind::Skills => {
            let uri_of = |uri: &str| {
                view.topology()
                    .unalias(uri)
                    .map_or_else(|| uri.to_owned(), |(_, original)| original)
            };
            let mut files = places::find_in_skill(&entry.visible).into_iter();
            original.is_some_and(|uri| view.permits_skill(backend, &uri))
                && files.all(|place| {
                    entry
                        .visible
                        .slice(place)
                        .as_str()
                        .is_some_and(|uri| view.permits_uri(backend, &uri_of(&uri)))
                })
        }
    }
}

/// Merges the members of a list other than its entries.
pub(super) fn merge_rest<'a>(
    member: &str,
    contributions: impl IntoIterator<Item = &'a Contribution, IntoIter: Clone>,
    [collisions, invalid]: [Option<Json>; 2],
) -> Merged {
    let collisions = collisions.map(|list| (merge::COLLISIONS_KEY, list));
    let invalid = invalid.map(|list| (merge::LEFT_OUT_KEY, list));
    let more: Vec<_> = collisions.into_iter().chain(invalid).collect();
    merge::merge(
        contributions,
        Except {
            members: &[member, "nextCursor", "resultType"],
            replaced: &[],
        },
        &more,
    )
}

/// The entries that are left out, as clients are told.
pub(super) fn invalid_json<'a>(entries: impl Iterator<Item = &'a InvalidEntry>) -> Option<Json> {
    let mut list = ArrayBuilder::default();
    let mut is_empty = true;
    for found in entries.take(MOST_LEFT_OUT) {
        let mut object = ObjectBuilder::new();
        object.string("backend", &found.backend);
        if let Some(name) = &found.entry.original {
            object.member("name", name);
        }
        object.string("reason", found.reason);
        list.push(&object.finish());
        is_empty = false;
    }
    (!is_empty).then(|| list.finish())
}

/// The first collisions as clients get them. Each page has them, so their number is limited.
pub(super) fn collisions_json(kind: Option<ListKind>, collisions: &[Collision]) -> Option<Json> {
    if collisions.is_empty() {
        return None;
    }
    let mut list = ArrayBuilder::default();
    for collision in collisions.iter().take(MOST_LEFT_OUT) {
        let mut object = ObjectBuilder::new();
        object.string(kind.map_or("key", ListKind::key), &collision.key);
        object
            .string("kept", &collision.kept)
            .string("other", &collision.other);
        if let Some(alias) = &collision.alias {
            object.string("alias", alias);
        }
        list.push(&object.finish());
    }
    Some(list.finish())
}

impl ListView {
    /// The list as `view` shows it. The visible part is computed once for each snapshot.
    pub(super) fn new(whole: Arc<Snapshot>, view: &View) -> Self {
        // Private lists reach nobody but their reader, whoever asks.
        if !whole.may_be_seen_by(view.reader()) {
            return Self::default();
        }
        let new = || Arc::new(Shown::new(&whole, view));
        let shown = match view.rights() {
            Some(rights) if !rights.is_lasting() => new(),
            Some(rights) => whole.shown_by_rights.get_or(rights.number(), new),
            None => match whole.view_at(view.position()) {
                Some(kept) => Arc::clone(kept.get_or_init(new)),
                None => new(),
            },
        };
        Self { whole, shown }
    }

    /// The list as `endpoint` showed it by the rules of its time, if that was computed then.
    pub(super) fn from_kept(whole: &Arc<Snapshot>, endpoint: &Endpoint) -> Option<Self> {
        let position = whole.endpoints.as_ref()?.hiding_position(endpoint);
        Some(Self {
            whole: Arc::clone(whole),
            shown: Arc::clone(whole.view_at(position)?.get()?),
        })
    }

    /// The whole snapshot.
    pub(crate) fn whole(&self) -> &Arc<Snapshot> {
        &self.whole
    }

    /// The visible part.
    pub(super) fn visible(&self) -> &Shown {
        &self.shown
    }

    /// The same list with another visible part.
    pub(super) fn showing(self, shown: Arc<Shown>) -> Self {
        Self { shown, ..self }
    }

    /// The positions of the visible entries in the whole list, ascending.
    pub(super) fn positions(&self) -> impl Iterator<Item = u32> {
        self.shown.positions.iter().copied()
    }

    /// The number of visible entries.
    pub fn len(&self) -> usize {
        self.shown.positions.len()
    }

    /// Whether no entry is visible.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All visible entries in order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.range(0..self.len())
    }

    fn range(&self, range: Range<usize>) -> impl Iterator<Item = &Entry> {
        let positions = self.shown.positions.get(range).unwrap_or_default();
        let entries = &self.whole.entries;
        positions.iter().filter_map(|at| entries.get(*at as usize))
    }

    /// The entry at this position of the snapshot, if it is visible.
    fn shown_at(&self, position: usize) -> Option<&Entry> {
        let shown = &self.shown.positions;
        shown.binary_search(&u32::try_from(position).ok()?).ok()?;
        self.whole.entries.get(position)
    }

    /// The visible entry that clients know as `key`.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Entry> {
        let mut claimants = self.whole.claimants(key);
        claimants.find_map(|position| self.shown_at(position))
    }

    /// The visible tools whose server calls them `name` while clients use another name.
    pub(crate) fn find_bare(&self, name: &str) -> impl Iterator<Item = &Entry> {
        let positions = self.whole.bare.get(name).into_iter().flatten();
        positions.filter_map(|position| self.shown_at(*position))
    }

    /// The parts, each with the range of its entries.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Part, Range<usize>)> + Clone {
        let part = |(index, entries): &(usize, Range<usize>)| {
            Some((self.whole.parts.get(*index)?, entries.clone()))
        };
        self.shown.parts.iter().filter_map(part)
    }

    /// The contribution of each server, in configuration order.
    pub fn contributions(&self) -> impl Iterator<Item = &Contribution> + Clone {
        self.parts().map(|(part, _)| &part.contribution)
    }

    pub(super) fn backends(&self) -> impl Iterator<Item = BackendId> {
        self.parts().map(|(part, _)| part.backend)
    }

    /// The name of the server that listed an entry.
    pub fn backend_of(&self, entry: &Entry) -> &str {
        let part = self
            .whole
            .parts
            .iter()
            .find(|part| part.backend == entry.backend);
        part.map_or("", |part| &part.contribution.backend)
    }

    /// The names or URIs that two servers claim.
    pub fn collisions(&self) -> &[Collision] {
        &self.shown.collisions
    }

    /// The number of servers whose part is missing or incomplete.
    pub(crate) fn failures(&self) -> usize {
        merge::failures(self.contributions())
    }

    /// The servers whose lists are missing or incomplete, each with its outcome.
    pub(crate) fn unlisted_servers(&self) -> Vec<(String, Outcome)> {
        let failed = self
            .contributions()
            .filter(|contribution| contribution.outcome != Outcome::Ok);
        failed
            .map(|contribution| (contribution.backend.clone(), contribution.outcome))
            .collect()
    }

    /// The entry as its server listed it.
    pub fn original_entry(&self, entry: &Entry) -> Option<Json> {
        let (kind, original) = (self.whole.kind?, entry.original.as_ref()?.as_str()?);
        let part = self
            .whole
            .parts
            .iter()
            .find(|part| part.backend == entry.backend)?;
        find_in(&part.contribution, kind, &original)
    }

    /// The entries that are left out because programs could read them differently.
    #[must_use]
    pub fn unreadable_entries(&self) -> &[UnreadableEntry] {
        &self.whole.unreadable
    }

    /// The entries that are left out because strict clients would reject the list.
    #[must_use]
    pub fn invalid_entries(&self) -> &[InvalidEntry] {
        &self.whole.invalid
    }

    /// The names in the configuration that servers do not list.
    pub fn unknown_names(&self) -> &[UnknownName] {
        self.whole.unknown_names()
    }

    /// The kinds of changes that the configuration made to any entry.
    pub(crate) fn rewritten(&self) -> Rewritten {
        self.shown.rewritten
    }

    pub(crate) fn generation(&self) -> u64 {
        self.whole.generation
    }

    /// The extensions that some entries need and a client with these capabilities lacks.
    pub(crate) fn lacking_extensions(&self, capabilities: &Json) -> Vec<Arc<str>> {
        if self.whole.needed.is_empty() {
            return Vec::new();
        }
        let extensions = capabilities.get("extensions");
        let has = |id: &Arc<str>| {
            extensions
                .as_ref()
                .and_then(|extensions| extensions.get(id))
                .is_some_and(|settings| settings.is_object())
        };
        self.whole
            .needed
            .iter()
            .filter(|id| !has(id))
            .cloned()
            .collect()
    }

    /// The answer with one page of the list. `next_cursor` makes the cursor for the first entry
    /// after the page, from the name of its server and its offset in that server's part.
    pub(crate) fn page(
        &self,
        page: PageOf<'_>,
        next_cursor: impl FnOnce(&str, u32) -> Option<String>,
    ) -> Response {
        let PageOf {
            start,
            size,
            ttl_left,
            holder,
            taking_tasks,
            lacking,
        } = page;
        let end = self.len().min(start.saturating_add(size.max(1)));
        let ttl_left = shown::rounded(ttl_left);
        let next = self.place(end);
        let key = shown::Key {
            start: start.min(end),
            holder: next.map(|_| holder.clone()),
            taking_tasks,
            lacking,
        };
        self.shown.pages.get_or_write(&key, end, ttl_left, || {
            let cursor = next.and_then(|(backend, offset)| next_cursor(backend, offset));
            self.write_page(start..end, &key, ttl_left, cursor)
        })
    }

    fn write_page(
        &self,
        range: Range<usize>,
        client: &shown::Key,
        ttl_left: Duration,
        next_cursor: Option<String>,
    ) -> Json {
        let size = self
            .range(range.clone())
            .map(|entry| entry.visible.bytes().len() + 1)
            .sum();
        let mut list = ArrayBuilder::with_capacity(size);
        let is_shown = |entry: &&Entry| !entry.needs_any(&client.lacking);
        let own = (range.start == 0).then_some(&self.shown.own);
        for entry in self.range(range).filter(is_shown) {
            let takes_tasks = client.taking_tasks.contains(&entry.backend);
            match takes_tasks
                .then(|| task_support::optional_for_tool(&entry.visible))
                .flatten()
            {
                Some(offered) => list.push(&offered),
                None => list.push(&entry.visible),
            };
        }
        for tool in own.into_iter().flatten() {
            list.push(tool);
        }
        let mut result = ObjectBuilder::new();
        result.member(
            self.whole.kind.map_or("entries", ListKind::member),
            &list.finish(),
        );
        if let Some(cursor) = next_cursor {
            result.string("nextCursor", &cursor);
        }
        let rest = &self.shown.rest;
        for (key, value) in &rest.members {
            match (
                key.as_text(),
                value.as_i64(),
                i64::try_from(ttl_left.as_millis()),
            ) {
                ("\"ttlMs\"", Some(ttl), Ok(left)) if left < ttl => result.integer("ttlMs", left),
                _ => result.raw_member(key, value),
            };
        }
        if let Some(meta) = &rest.meta {
            result.member("_meta", meta);
        }
        result.finish()
    }

    /// The server name of the entry at a position, and the entry's offset in that server's part.
    fn place(&self, at: usize) -> Option<(&str, u32)> {
        let (part, entries) = self.parts().find(|(_, entries)| entries.contains(&at))?;
        Some((
            &part.contribution.backend,
            u32::try_from(at - entries.start).ok()?,
        ))
    }

    /// The position of an entry; at most the end of its server's part, which may have become
    /// shorter.
    pub(crate) fn position(&self, backend: &str, offset: u32) -> Option<usize> {
        let (_, Range { start, end }) = self
            .parts()
            .find(|(part, _)| part.contribution.backend == backend)?;
        Some(start.saturating_add(usize::try_from(offset).ok()?).min(end))
    }

    /// Whether `other` offers clients the same entries, in any order and from any servers. Other
    /// members of the results do not count, because some servers write them differently each time.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        fn sorted(list: &ListView) -> Vec<&bytes::Bytes> {
            let mut entries: Vec<_> = list.entries().map(|entry| entry.visible.bytes()).collect();
            entries.sort_unstable();
            entries
        }
        self.len() == other.len() && sorted(self) == sorted(other)
    }
}
