//! Lists of single principals.
//!
//! If a server says that its list is private, Fanlight reads it for each principal and serves it to
//! nobody else (2026-07-28 server/utilities/caching, Cache Scope Field). The list of a canary is
//! treated likewise for the principals that use the canary.
//!
//! A principal has catalogues of its own, with its own parts for servers whose lists are private.
//! All other parts come from the common catalogues; without private parts the whole list does.
//! Fanlight learns which parts are private by reading them for itself. Authenticated clients see
//! nothing of that reading.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::memory::ReaderMemory;
use super::{Catalogue, ListKind, chained, pick_catalogue};
use crate::topology::{BackendId, Reader, Topology};

/// How many principals' lists are kept; the least recently used leave first. No option, since their
/// bytes are limited as well.
const READERS: usize = 1024;

/// The principals that have lists of their own.
pub(super) struct OwnLists {
    readers: Mutex<Readers>,
    memory: Arc<ReaderMemory>,
}

#[derive(Default)]
struct Readers {
    lists: HashMap<Reader, Lists>,
    /// The number of uses so far.
    uses: u64,
}

struct Lists {
    catalogues: [Arc<Catalogue>; 5],
    /// The number of the last use.
    used: u64,
}

/// The owner of a principal's catalogue, and the common catalogue beside it.
pub(super) struct Own {
    pub(super) reader: Reader,
    /// The common catalogue of the same kind.
    pub(super) shared: Arc<Catalogue>,
    pub(super) memory: Arc<ReaderMemory>,
}

impl Own {
    /// The servers whose parts are the reader's own, with the number of changes that each has
    /// announced.
    pub(super) fn parts(&self, topology: &Topology) -> Vec<(BackendId, u64)> {
        self.shared.with_state(|state| {
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
    /// Creates empty lists that may take `bytes` together.
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

    /// The list of a principal, made if there is none. `all` are the common catalogues.
    pub(super) fn catalogue(
        &self,
        reader: &Reader,
        kind: ListKind,
        all: &[Arc<Catalogue>; 5],
    ) -> Arc<Catalogue> {
        let mut readers = self.readers.lock();
        readers.uses += 1;
        let used = readers.uses;
        if let Some(lists) = readers.lists.get_mut(reader) {
            lists.used = used;
            return Arc::clone(pick_catalogue(&lists.catalogues, kind));
        }
        let left = if readers.lists.len() < READERS {
            None
        } else {
            readers.remove_oldest(None)
        };
        let catalogues = chained(|kind, claiming| {
            let shared = Arc::clone(pick_catalogue(all, kind));
            let own = Own {
                reader: reader.clone(),
                shared: Arc::clone(&shared),
                memory: Arc::clone(&self.memory),
            };
            Arc::new(shared.for_reader(claiming, own))
        });
        let found = Arc::clone(pick_catalogue(&catalogues, kind));
        readers
            .lists
            .insert(reader.clone(), Lists { catalogues, used });
        drop(readers);
        // Outside of the lock, because dropping the lists may take long.
        drop(left);
        found
    }

    /// Calls `act` for each catalogue of each principal.
    pub(super) fn for_each(&self, act: impl Fn(&Catalogue)) {
        self.readers
            .lock()
            .lists
            .values()
            .flat_map(|lists| &lists.catalogues)
            .for_each(|catalogue| act(catalogue));
    }

    /// Drops the least recently used lists of a principal other than `reader`.
    fn evict_another(&self, reader: &Reader) -> bool {
        let evicted = self.readers.lock().remove_oldest(Some(reader));
        evicted.is_some()
    }
}

impl Readers {
    /// Removes the least recently used lists.
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
