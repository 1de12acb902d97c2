//! The names of tools and prompts that may become labels: those in a catalogue, so many of each
//! backend over the life of the process.
//!
//! Must not know: where catalogues come from.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;

use super::family::label;
use crate::kept::capped;
use crate::message::Target;
use crate::names::OTHER;

/// Longest name that becomes a label, in characters.
const LONGEST: usize = 128;

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
}

#[derive(Debug, Default)]
struct Tables {
    texts: Vec<Arc<str>>,
    owners: HashMap<(u16, NameKind), Names, RandomState>,
}

/// Every name that ever was a label of this owner; places are for good.
type Names = HashMap<Arc<str>, Place, RandomState>;

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
        Self { most, tables: RwLock::default() }
    }

    pub(super) fn set<'a>(&self, owner: u16, kind: NameKind, names: impl IntoIterator<Item = &'a str>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        for place in tables.owners.entry((owner, kind)).or_default().values_mut() {
            place.current = false;
        }
        tables.add(self.most, owner, kind, names);
    }

    pub(super) fn add<'a>(&self, owner: u16, kind: NameKind, names: impl IntoIterator<Item = &'a str>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables.add(self.most, owner, kind, names);
    }

    pub(super) fn id(&self, owner: u16, target: Target<'_>) -> Option<NameId> {
        let (kind, name) = match target {
            Target::Tool(name) => (NameKind::Tool, name),
            Target::Prompt(name) => (NameKind::Prompt, name),
            Target::None | Target::Resource(_) => return None,
        };
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let place = tables.owners.get(&(owner, kind)).and_then(|known| known.get(name));
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
    fn add<'a>(&mut self, most: usize, owner: u16, kind: NameKind, names: impl IntoIterator<Item = &'a str>) {
        let Self { texts, owners } = self;
        let known = owners.entry((owner, kind)).or_default();
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
    }
}
