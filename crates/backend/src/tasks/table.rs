//! A table that is bounded in number and size and whose entries expire.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_canonical::Holder;
use tokio::time::Instant;

/// A task of one principal at one endpoint. Servers may give the same id to tasks of different clients.
pub(super) type TaskKey = (Holder, String);

/// A bounded table with entries that expire.
pub(super) struct Table<K, V> {
    max_entries: usize,
    max_bytes: usize,
    entries: Mutex<Entries<K, V>>,
}

struct Entries<K, V> {
    by_key: HashMap<K, Entry<V>>,
    bytes: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    lifetime: Duration,
    expires: Instant,
}

impl<K: Clone + Eq + Hash, V: Clone> Table<K, V> {
    /// A table of at most `max_entries` entries, which take at most `max_bytes` bytes.
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self { max_entries, max_bytes, entries: Mutex::new(Entries { by_key: HashMap::new(), bytes: 0 }) }
    }

    /// Inserts a value that takes `bytes` bytes with its key, for `lifetime`. If the table is full, the entries that
    /// expire first are removed; returns false if that does not suffice.
    pub(super) fn insert(&self, key: K, value: V, bytes: usize, lifetime: Duration) -> bool {
        if bytes > self.max_bytes || self.max_entries == 0 {
            return false;
        }
        let mut entries = self.lock();
        entries.remove_expired();
        entries.remove(&key);
        while entries.by_key.len() >= self.max_entries || entries.bytes.saturating_add(bytes) > self.max_bytes {
            let first = entries.by_key.iter().min_by_key(|(_, entry)| entry.expires).map(|(key, _)| key.clone());
            let Some(first) = first else { return false };
            entries.remove(&first);
        }
        entries.bytes += bytes;
        let expires = Instant::now() + lifetime;
        entries.by_key.insert(key, Entry { value, bytes, lifetime, expires });
        true
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.lock().by_key.get(key).filter(|entry| entry.is_live()).map(|entry| entry.value.clone())
    }

    /// The same, and starts the lifetime anew.
    pub(super) fn touch(&self, key: &K) -> Option<V> {
        let mut touched = None;
        self.change(key, |value| {
            touched = Some(value.clone());
            true
        });
        touched
    }

    /// Changes a value in place, and starts its lifetime anew; removes it if `change` returns false.
    /// Returns false if there is none.
    pub(super) fn change(&self, key: &K, change: impl FnOnce(&mut V) -> bool) -> bool {
        let mut entries = self.lock();
        let Some(entry) = entries.by_key.get_mut(key).filter(|entry| entry.is_live()) else { return false };
        entry.expires = Instant::now() + entry.lifetime;
        if !change(&mut entry.value) {
            entries.remove(key);
        }
        true
    }

    pub(super) fn remove(&self, key: &K) -> Option<V> {
        self.lock().remove(key)
    }

    pub(super) fn all(&self) -> Vec<(K, V)> {
        let entries = self.lock();
        let live = entries.by_key.iter().filter(|(_, entry)| entry.is_live());
        live.map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Entry<V> {
    fn is_live(&self) -> bool {
        self.expires > Instant::now()
    }
}

impl<K: Eq + Hash, V> Entries<K, V> {
    fn remove_expired(&mut self) {
        let mut freed = 0;
        self.by_key.retain(|_, entry| {
            freed += if entry.is_live() { 0 } else { entry.bytes };
            entry.is_live()
        });
        self.bytes -= freed;
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.by_key.remove(key)?;
        self.bytes -= entry.bytes;
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(id: &str) -> String {
        id.to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn table_is_bounded_in_number_and_size() {
        let table = Table::new(2, 100);
        let get = |id| table.get(&key(id));
        assert!(table.insert(key("a"), 1, 40, 3 * SECOND));
        assert!(table.insert(key("b"), 2, 40, 2 * SECOND));
        // The entry that expires first is removed.
        assert!(table.insert(key("c"), 3, 40, SECOND));
        assert_eq!((get("a"), get("b"), get("c")), (Some(1), None, Some(3)));
        assert!(table.insert(key("d"), 4, 90, SECOND));
        assert_eq!((get("a"), get("c"), get("d")), (None, None, Some(4)));
        assert!(!table.insert(key("e"), 5, 101, SECOND));
        assert_eq!(table.all(), [(key("d"), 4)]);
        assert!(table.insert(key("d"), 7, 100, SECOND));
        assert_eq!(table.remove(&key("d")), Some(7));
        assert!(table.insert(key("f"), 8, 100, SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn entries_expire_unless_touched() {
        let table = Table::new(9, 99);
        table.insert(key("a"), 1, 50, 2 * SECOND);
        table.insert(key("b"), 2, 49, 2 * SECOND);
        advance(SECOND).await;
        assert_eq!((table.get(&key("a")), table.touch(&key("b"))), (Some(1), Some(2)));
        advance(SECOND).await;
        assert_eq!((table.get(&key("a")), table.get(&key("b"))), (None, Some(2)));
        assert!(table.insert(key("c"), 3, 50, SECOND));
        advance(2 * SECOND).await;
        assert!(table.all().is_empty());
    }
}
