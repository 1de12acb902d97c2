//! Lists of single principals: where a server says that its list is private (2026-07-28 server/utilities/caching, Cache
//! Scope Field), it is read for each principal and served to nobody else.
//!
//! A principal has its own catalogues, with its own parts of the backends whose lists are private. All other parts are those
//! of the catalogues for all, and where no part is private, so is the whole list. Which parts are private is known from
//! Fanlight's own reading of them, of which clients that are authenticated see nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fanlight_canonical::Principal;
use tokio::time::Instant;

use super::memory::ReaderMemory;
use super::{Catalogue, ListKind, chained, of_kind};

/// Principals whose lists are kept at most; those that were used longest ago leave first. No option: their bytes are bounded
/// as well.
const READERS: usize = 1024;

/// The principals that have lists of their own.
pub(super) struct OwnLists {
    readers: Mutex<HashMap<Principal, Lists>>,
    memory: Arc<ReaderMemory>,
}

struct Lists {
    catalogues: [Arc<Catalogue>; 5],
    used: Instant,
}

/// Whose list a catalogue is.
pub(super) struct Own {
    pub(super) reader: Principal,
    /// The same list for all.
    pub(super) shared: Arc<Catalogue>,
    pub(super) memory: Arc<ReaderMemory>,
}

impl OwnLists {
    /// Lists of at most so many bytes.
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new_cyclic(|itself: &Weak<Self>| {
            let itself = Weak::clone(itself);
            let evict = move |reader: &Principal| itself.upgrade().is_some_and(|lists| lists.evict_another(reader));
            Self { readers: Mutex::default(), memory: Arc::new(ReaderMemory::new(bytes, evict)) }
        })
    }

    /// The list of a principal beside that of `all`.
    pub(super) fn of(&self, reader: &Principal, kind: ListKind, all: &[Arc<Catalogue>; 5]) -> Arc<Catalogue> {
        let now = Instant::now();
        let mut readers = self.lock();
        if let Some(lists) = readers.get_mut(reader) {
            lists.used = now;
            return Arc::clone(of_kind(&lists.catalogues, kind));
        }
        let left = if readers.len() < READERS { None } else { oldest(&readers, None).and_then(|one| readers.remove(&one)) };
        let catalogues = chained(|kind, claiming| {
            let shared = Arc::clone(of_kind(all, kind));
            let own = Own { reader: reader.clone(), shared: Arc::clone(&shared), memory: Arc::clone(&self.memory) };
            Arc::new(shared.for_reader(claiming, own))
        });
        let found = Arc::clone(of_kind(&catalogues, kind));
        readers.insert(reader.clone(), Lists { catalogues, used: now });
        drop(readers);
        // Not under the lock: much may be dropped.
        drop(left);
        found
    }

    /// Does something to the lists of each principal.
    pub(super) fn for_each(&self, act: impl Fn(&Catalogue)) {
        self.lock().values().flat_map(|lists| &lists.catalogues).for_each(|catalogue| act(catalogue));
    }

    /// Drops the lists of the principal other than `reader` that has not used them for longest.
    fn evict_another(&self, reader: &Principal) -> bool {
        let mut readers = self.lock();
        let evicted = oldest(&readers, Some(reader)).and_then(|oldest| readers.remove(&oldest));
        drop(readers);
        evicted.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Principal, Lists>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn oldest(readers: &HashMap<Principal, Lists>, except: Option<&Principal>) -> Option<Principal> {
    let others = readers.iter().filter(|(reader, _)| Some(*reader) != except);
    others.min_by_key(|(_, lists)| lists.used).map(|(reader, _)| reader.clone())
}
