//! The names of tools and prompts that may become labels: those in a catalogue, so many of each
//! backend over the life of the process.
//!
//! Must not know: where catalogues come from.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;

use super::family::label;
use crate::kept::capped;
use crate::message::Target;
use crate::names::OTHER;

/// Longest name that becomes a label, in characters.
const LONGEST: usize = 128;
/// Lists of an owner that are remembered as read: clients ask for the same pages over and over.
const READ: usize = 16;

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
}

/// A name's place; 0 is any that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameId {
    kind: NameKind,
    place: u32,
}

#[derive(Debug)]
pub(crate) struct Known {
    most: usize,
    tables: RwLock<Tables>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Tables {
    texts: Vec<Arc<str>>,
    owners: HashMap<(u16, NameKind), Owned, RandomState>,
}

/// What is known of one owner.
#[derive(Debug, Default)]
struct Owned {
    /// Every name that ever was a label; places are for good.
    names: HashMap<Arc<str>, Place, RandomState>,
    /// Hashes of lists whose names are among them, oldest first. Should two lists ever have the same, names of one are
    /// no labels.
    read: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    number: u32,
    /// Whether it is in the catalogue now.
    current: bool,
}

impl NameId {
    pub(super) fn label(self) -> &'static str {
        match self.kind {
            NameKind::Tool => label::TOOL,
            NameKind::Prompt => label::PROMPT,
        }
    }
}

impl Known {
    pub(super) fn new(most: usize) -> Self {
        Self { most, tables: RwLock::default(), hasher: RandomState::default() }
    }

    pub(super) fn set<'a>(&self, owner: u16, kind: NameKind, names: impl IntoIterator<Item = &'a str>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let owned = tables.owners.entry((owner, kind)).or_default();
        owned.names.values_mut().for_each(|place| place.current = false);
        owned.read.clear();
        tables.add(self.most, owner, kind, names);
    }

    /// Adds what `names` finds in `list`, unless it is one of those that were read last.
    pub(super) fn learn(&self, owner: u16, kind: NameKind, list: &[u8], names: impl FnOnce() -> Vec<String>) {
        let hash = self.hasher.hash_one(list);
        let known = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        if known.owners.get(&(owner, kind)).is_some_and(|owned| owned.read.contains(&hash)) {
            return;
        }
        drop(known);
        let names = names();
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let owned = tables.add(self.most, owner, kind, names.iter().map(String::as_str));
        if owned.read.len() >= READ {
            owned.read.pop_front();
        }
        owned.read.push_back(hash);
    }

    pub(super) fn id(&self, owner: u16, target: Target<'_>) -> Option<NameId> {
        let (kind, name) = match target {
            Target::Tool(name) => (NameKind::Tool, name),
            Target::Prompt(name) => (NameKind::Prompt, name),
            Target::None | Target::Resource(_) => return None,
        };
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let place = tables.owners.get(&(owner, kind)).and_then(|owned| owned.names.get(name));
        let place = place.filter(|place| place.current).map_or(0, |place| place.number);
        Some(NameId { kind, place })
    }

    pub(super) fn text(&self, id: NameId) -> String {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let place = (id.place as usize).checked_sub(1);
        place.and_then(|place| tables.texts.get(place)).map_or_else(|| OTHER.to_owned(), |text| text.to_string())
    }
}

impl Tables {
    fn add<'a>(
        &mut self,
        most: usize,
        owner: u16,
        kind: NameKind,
        names: impl IntoIterator<Item = &'a str>,
    ) -> &mut Owned {
        let Self { texts, owners } = self;
        let owned = owners.entry((owner, kind)).or_default();
        let known = &mut owned.names;
        for name in names {
            if name.is_empty() || capped(name, LONGEST).len() < name.len() {
                continue;
            }
            if let Some(place) = known.get_mut(name) {
                place.current = true;
            } else if known.len() < most {
                let text: Arc<str> = Arc::from(name);
                texts.push(Arc::clone(&text));
                let number = u32::try_from(texts.len()).unwrap_or(0);
                known.insert(text, Place { number, current: true });
            }
        }
        owned
    }
}
