//! What is remembered of tasks, by task id: bounded in number and size, and forgotten after a time.
//!
//! Must not know: what is remembered.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Bytes of a task id at most. Longer ones are not remembered.
const LONGEST_ID: usize = 1024;

/// A bounded table with entries that expire.
#[derive(Debug)]
pub(super) struct Table<V> {
    most: usize,
    most_bytes: usize,
    entries: Mutex<Entries<V>>,
}

#[derive(Debug)]
struct Entries<V> {
    by_id: HashMap<String, Entry<V>>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    lifetime: Duration,
    expires: Instant,
}

impl<V: Clone> Table<V> {
    /// A table of at most `most` entries, which take at most `most_bytes` bytes.
    pub(super) fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, entries: Mutex::new(Entries { by_id: HashMap::new(), bytes: 0 }) }
    }

    /// Remembers something that takes `bytes` bytes for `lifetime`. Where there is no room, what
    /// would be forgotten soonest makes room; says whether that sufficed.
    pub(super) fn insert(&self, id: &str, value: V, bytes: usize, lifetime: Duration) -> bool {
        if id.len() > LONGEST_ID || bytes > self.most_bytes || self.most == 0 {
            return false;
        }
        let mut entries = self.lock();
        entries.forget_expired();
        entries.remove(id);
        while entries.by_id.len() >= self.most || entries.bytes.saturating_add(bytes) > self.most_bytes {
            let soonest = entries.by_id.iter().min_by_key(|(_, entry)| entry.expires).map(|(id, _)| id.clone());
            let Some(soonest) = soonest else { return false };
            entries.remove(&soonest);
        }
        entries.bytes += bytes;
        let expires = Instant::now() + lifetime;
        entries.by_id.insert(id.to_owned(), Entry { value, bytes, lifetime, expires });
        true
    }

    /// What is remembered.
    pub(super) fn get(&self, id: &str) -> Option<V> {
        self.lock().by_id.get(id).filter(|entry| entry.lives()).map(|entry| entry.value.clone())
    }

    /// The same; its time begins anew.
    pub(super) fn touch(&self, id: &str) -> Option<V> {
        let mut entries = self.lock();
        let entry = entries.by_id.get_mut(id).filter(|entry| entry.lives())?;
        entry.expires = Instant::now() + entry.lifetime;
        Some(entry.value.clone())
    }

    pub(super) fn remove(&self, id: &str) -> Option<V> {
        self.lock().remove(id)
    }

    /// Everything that is remembered.
    pub(super) fn all(&self) -> Vec<(String, V)> {
        let entries = self.lock();
        let live = entries.by_id.iter().filter(|(_, entry)| entry.lives());
        live.map(|(id, entry)| (id.clone(), entry.value.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries<V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Entry<V> {
    fn lives(&self) -> bool {
        self.expires > Instant::now()
    }
}

impl<V> Entries<V> {
    fn forget_expired(&mut self) {
        let mut freed = 0;
        self.by_id.retain(|_, entry| {
            let lives = entry.lives();
            freed += if lives { 0 } else { entry.bytes };
            lives
        });
        self.bytes -= freed;
    }

    fn remove(&mut self, id: &str) -> Option<V> {
        let entry = self.by_id.remove(id)?;
        self.bytes -= entry.bytes;
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn number_and_size_are_bounded() {
        let table = Table::new(2, 100);
        assert!(table.insert("a", 1, 40, 3 * SECOND));
        assert!(table.insert("b", 2, 40, 2 * SECOND));
        // The one that would be forgotten first makes room.
        assert!(table.insert("c", 3, 40, SECOND));
        assert_eq!((table.get("a"), table.get("b"), table.get("c")), (Some(1), None, Some(3)));
        assert!(table.insert("d", 4, 90, SECOND));
        assert_eq!((table.get("a"), table.get("c"), table.get("d")), (None, None, Some(4)));
        assert!(!table.insert("e", 5, 101, SECOND));
        assert!(!table.insert(&"x".repeat(LONGEST_ID + 1), 6, 1, SECOND));
        assert_eq!(table.all(), [("d".to_owned(), 4)]);
        assert!(table.insert("d", 7, 100, SECOND));
        assert_eq!(table.remove("d"), Some(7));
        assert!(table.insert("f", 8, 100, SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn entries_expire_unless_touched() {
        let table = Table::new(9, 99);
        table.insert("a", 1, 50, 2 * SECOND);
        table.insert("b", 2, 49, 2 * SECOND);
        advance(SECOND).await;
        assert_eq!((table.get("a"), table.touch("b")), (Some(1), Some(2)));
        advance(SECOND).await;
        assert_eq!((table.get("a"), table.get("b")), (None, Some(2)));
        assert!(table.insert("c", 3, 50, SECOND));
        advance(2 * SECOND).await;
        assert!(table.all().is_empty());
    }
}
