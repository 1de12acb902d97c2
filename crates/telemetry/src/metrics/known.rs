//! The names of tools and prompts that may be labels.
//!
//! These are names that lists contained. Their number per server is limited until the process ends.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::RwLock;

use super::family::label;
use crate::names::OTHER;
use crate::subject::Target;
use crate::text::truncated;

/// The limit of a name that becomes a label, in characters.
const LONGEST: usize = 128;
/// How many recently read lists of an owner are remembered, because clients request the same pages
/// repeatedly.
const READ: usize = 16;

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
}

/// The number of a name. 0 stands for all unknown names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameId {
    kind: NameKind,
    number: u32,
}

/// The names of all servers and their numbers.
#[derive(Debug)]
pub(crate) struct KnownNames {
    /// The limit of the names of each kind per owner.
    most: usize,
    tables: RwLock<Tables>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Tables {
    texts: Vec<Arc<str>>,
    /// The names by the number of the owner, then by kind. Each message looks up a name here.
    owners: Vec<[OwnerNames; 2]>,
}

/// The names of one owner: a server, or Fanlight.
#[derive(Debug, Default)]
struct OwnerNames {
    /// The number of each name. It never changes.
    names: HashMap<Arc<str>, u32, RandomState>,
    /// The hashes of the lists that were read last, oldest first. If two hashes collide, the names
    /// in one of the lists do not become labels.
    read: VecDeque<u64>,
}

impl NameId {
    pub(super) fn label(self) -> &'static str {
        match self.kind {
            NameKind::Tool => label::TOOL,
            NameKind::Prompt => label::PROMPT,
        }
    }
}

impl KnownNames {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            tables: RwLock::default(),
            hasher: RandomState::default(),
        }
    }

    /// Adds the names in `list`, unless this list was read recently.
    pub(super) fn learn(
        &self,
        owner: u16,
        kind: NameKind,
        list: &[u8],
        names: impl FnOnce() -> Vec<String>,
    ) {
        let hash = self.hasher.hash_one(list);
        let known = self.tables.read();
        if known
            .names(owner, kind)
            .is_some_and(|owned| owned.read.contains(&hash))
        {
            return;
        }
        drop(known);
        let names = names();
        let mut tables = self.tables.write();
        let owned = tables.add(self.most, owner, kind, names.iter().map(String::as_str));
        let Some(owned) = owned else { return };
        if owned.read.len() >= READ {
            owned.read.pop_front();
        }
        owned.read.push_back(hash);
    }

    /// The number of a listed tool, whose name becomes a label.
    pub(super) fn listed_id(&self, owner: u16, name: &str) -> Option<NameId> {
        let id = || self.id(owner, Target::Tool(name));
        if id().is_some_and(|id| id.number == 0) {
            let mut tables = self.tables.write();
            tables.add(self.most, owner, NameKind::Tool, [name]);
        }
        id()
    }

    pub(super) fn id(&self, owner: u16, target: Target<'_>) -> Option<NameId> {
        let (kind, name) = match target {
            Target::Tool(name) => (NameKind::Tool, name),
            Target::Prompt(name) => (NameKind::Prompt, name),
            Target::None | Target::Resource(_) => return None,
        };
        let tables = self.tables.read();
        let number = tables
            .names(owner, kind)
            .and_then(|owned| owned.names.get(name));
        Some(NameId {
            kind,
            number: number.copied().unwrap_or(0),
        })
    }

    pub(super) fn text(&self, id: NameId) -> String {
        let tables = self.tables.read();
        let index = (id.number as usize).checked_sub(1);
        index
            .and_then(|index| tables.texts.get(index))
            .map_or_else(|| OTHER.to_owned(), |text| text.to_string())
    }
}

impl Tables {
    fn names(&self, owner: u16, kind: NameKind) -> Option<&OwnerNames> {
        self.owners.get(usize::from(owner))?.get(kind as usize)
    }

    fn add<'a>(
        &mut self,
        most: usize,
        owner: u16,
        kind: NameKind,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Option<&mut OwnerNames> {
        let Self { texts, owners } = self;
        let index = usize::from(owner);
        if owners.len() <= index {
            owners.resize_with(index + 1, Default::default);
        }
        let owned = owners.get_mut(index)?.get_mut(kind as usize)?;
        let known = &mut owned.names;
        for name in names {
            if name.is_empty() || truncated(name, LONGEST).len() < name.len() {
                continue;
            }
            if known.len() < most && !known.contains_key(name) {
                let text: Arc<str> = Arc::from(name);
                texts.push(Arc::clone(&text));
                let number = u32::try_from(texts.len()).unwrap_or(0);
                known.insert(text, number);
            }
        }
        Some(owned)
    }
}
