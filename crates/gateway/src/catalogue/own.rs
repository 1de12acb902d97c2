//! Lists of single principals: where a server says that its list is private (2026-07-28 server/utilities/caching, Cache
//! Scope Field), it is read for each principal and served to nobody else. So is the list of a canary for the principals that it
//! serves.
//!
//! A principal has its own catalogues, with its own parts of the backends whose lists are private. All other parts are those
//! of the catalogues for all, and where no part is private, so is the whole list. Which parts are private is known from
//! Fanlight's own reading of them, of which clients that are authenticated see nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::memory::ReaderMemory;
use super::{Catalogue, ListKind, chained, of_kind};
use crate::topology::{BackendId, Reader, Topology};

/// Principals whose lists are kept at most; those that were used longest ago leave first. No option: their bytes are bounded
/// as well.
const READERS: usize = 1024;

/// The principals that have lists of their own.
pub(super) struct OwnLists {
    readers: Mutex<Readers>,
    memory: Arc<ReaderMemory>,
}

#[derive(Default)]
struct Readers {
    lists: HashMap<Reader, Lists>,
    /// Counts uses.
    uses: u64,
}

struct Lists {
    catalogues: [Arc<Catalogue>; 5],
    /// The number of the last use.
    used: u64,
}

/// Whose list a catalogue is.
pub(super) struct Own {
    pub(super) reader: Reader,
    /// The same list for all.
    pub(super) shared: Arc<Catalogue>,
    pub(super) memory: Arc<ReaderMemory>,
}

impl Own {
    /// The backends whose parts are the reader's own, and how many changes each has announced.
    pub(super) fn parts(&self, topology: &Topology) -> Vec<(BackendId, u64)> {
        self.shared.with(|state| {
            let own = topology.ids().filter_map(|backend| {
                let part = state.parts.get(&backend);
                let is_private = part.is_some_and(|part| part.is_private);
                let announced = part.map_or(0, |part| part.announced);
                self.reader
                    .has_own_part(backend, is_private)
                    .then_some((backend, announced))
            });
            own.collect()
        })
    }
}

impl OwnLists {
    /// Lists of at most so many bytes.
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new_cyclic(|itself: &Weak<Self>| {
            let itself = Weak::clone(itself);
            let evict = move |reader: &Reader| {
                itself
                    .upgrade()
                    .is_some_and(|lists| lists.evict_another(reader))
            };
            Self {
                readers: Mutex::default(),
                memory: Arc::new(ReaderMemory::new(bytes, evict)),
            }
        })
    }

    /// The list of a principal beside that of `all`.
    pub(super) fn of(
        &self,
        reader: &Reader,
        kind: ListKind,
        all: &[Arc<Catalogue>; 5],
    ) -> Arc<Catalogue> {
        let mut readers = self.lock();
        readers.uses += 1;
        let used = readers.uses;
        if let Some(lists) = readers.lists.get_mut(reader) {
            lists.used = used;
            return Arc::clone(of_kind(&lists.catalogues, kind));
        }
        let left = if readers.lists.len() < READERS {
            None
        } else {
            readers.remove_oldest(None)
        };
        let catalogues = chained(|kind, claiming| {
            let shared = Arc::clone(of_kind(all, kind));
            let own = Own {
                reader: reader.clone(),
                shared: Arc::clone(&shared),
                memory: Arc::clone(&self.memory),
            };
            Arc::new(shared.for_reader(claiming, own))
        });
        let found = Arc::clone(of_kind(&catalogues, kind));
        readers
            .lists
            .insert(reader.clone(), Lists { catalogues, used });
        drop(readers);
        // Not under the lock: much may be dropped.
        drop(left);
        found
    }

    /// Does something to the lists of each principal.
    pub(super) fn for_each(&self, act: impl Fn(&Catalogue)) {
        self.lock()
            .lists
            .values()
            .flat_map(|lists| &lists.catalogues)
            .for_each(|catalogue| act(catalogue));
    }

    /// Drops the lists of the principal other than `reader` that has not used them for longest.
    fn evict_another(&self, reader: &Reader) -> bool {
        let evicted = self.lock().remove_oldest(Some(reader));
        evicted.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Readers {
    /// Takes the lists of the principal that has not used them for longest.
    fn remove_oldest(&mut self, except: Option<&Reader>) -> Option<Lists> {
        let others = self
            .lists
            .iter()
            .filter(|(reader, _)| Some(*reader) != except);
        let oldest = others
            .min_by_key(|(_, lists)| lists.used)
            .map(|(reader, _)| reader.clone())?;
        self.lists.remove(&oldest)
    }
}
