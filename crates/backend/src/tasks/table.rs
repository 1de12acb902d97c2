//! A table with limits of number and size, whose entries expire. At a limit, the peer with the most
//! loses first.

use std::hash::Hash;
use std::time::Duration;

use fanlight_canonical::{Holder, Peer};
use fanlight_fair as fair;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A task of one principal at one endpoint. Servers may give the same id to different clients'
/// tasks.
pub(super) type TaskKey = (Holder, String);

/// A limited table with expiring entries.
pub(super) struct Table<K, V> {
    max_entries: usize,
    max_bytes: usize,
    entries: Mutex<fair::Table<Peer, K, Entry<V>>>,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    lifetime: Duration,
    expires: Instant,
}

impl<K: Clone + Eq + Hash, V: Clone> Table<K, V> {
    /// Creates a table for at most `max_entries` entries with at most `max_bytes` bytes.
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max_entries,
            max_bytes,
            entries: Mutex::default(),
        }
    }

    /// Adds a value of `peer` for `lifetime`; `bytes` is its size with its key. If the table is
    /// full, removes entries of the peer with the most, first those that expire first, but never of
    /// a peer with less than `peer`. Returns false if that does not suffice.
    pub(super) fn insert(
        &self,
        key: K,
        value: V,
        peer: &Peer,
        bytes: usize,
        lifetime: Duration,
    ) -> bool {
        if bytes > self.max_bytes || self.max_entries == 0 {
            return false;
        }
        let mut entries = self.entries.lock();
        entries.remove_if(|_, entry| !entry.is_live());
        entries.remove(&key);
        loop {
            let is_full = entries.len() >= self.max_entries;
            let held: usize = entries.values().map(|entry| entry.bytes).sum();
            if !is_full && held.saturating_add(bytes) <= self.max_bytes {
                break;
            }
            let amount = |of: &&Peer| -> (usize, bool) {
                let own = entries.share_entries(of);
                let amount = own.map(|(_, entry)| if is_full { 1 } else { entry.bytes });
                // If several peers have equally much, the newcomer loses.
                (amount.sum(), *of == peer)
            };
            let Some(noisiest) = entries.shares().max_by_key(amount) else {
                return false;
            };
            let own = entries.share_entries(noisiest);
            let first = own.min_by_key(|(_, entry)| entry.expires);
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                entries.remove(&first);
            }
        }
        let entry = Entry {
            value,
            bytes,
            lifetime,
            expires: Instant::now() + lifetime,
        };
        entries.insert(key, peer.clone(), entry);
        true
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock();
        let entry = entries.get(key).filter(|entry| entry.is_live())?;
        Some(entry.value.clone())
    }

    /// Returns the value, and restarts its lifetime.
    pub(super) fn touch(&self, key: &K) -> Option<V> {
        let mut touched = None;
        self.change(key, |value| {
            touched = Some(value.clone());
            true
        });
        touched
    }

    /// Changes a value and restarts its lifetime; removes it if `change` returns false. Returns
    /// false if there is no value.
    pub(super) fn change(&self, key: &K, change: impl FnOnce(&mut V) -> bool) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.is_live()) else {
            return false;
        };
        entry.expires = Instant::now() + entry.lifetime;
        if !change(&mut entry.value) {
            entries.remove(key);
        }
        true
    }

    pub(super) fn remove(&self, key: &K) -> Option<V> {
        Some(self.entries.lock().remove(key)?.value)
    }

    pub(super) fn entries(&self) -> Vec<(K, V)> {
        let entries = self.entries.lock();
        let live = entries.iter().filter(|(_, entry)| entry.is_live());
        live.map(|(key, entry)| (key.clone(), entry.value.clone()))
            .collect()
    }
}

impl<V> Entry<V> {
    fn is_live(&self) -> bool {
        self.expires > Instant::now()
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
        assert!(table.insert(key("a"), 1, &Peer::Local, 40, 3 * SECOND));
        assert!(table.insert(key("b"), 2, &Peer::Local, 40, 2 * SECOND));
        // Removes the entry that expires first.
        assert!(table.insert(key("c"), 3, &Peer::Local, 40, SECOND));
        assert_eq!((get("a"), get("b"), get("c")), (Some(1), None, Some(3)));
        assert!(table.insert(key("d"), 4, &Peer::Local, 90, SECOND));
        assert_eq!((get("a"), get("c"), get("d")), (None, None, Some(4)));
        assert!(!table.insert(key("e"), 5, &Peer::Local, 101, SECOND));
        assert_eq!(table.entries(), [(key("d"), 4)]);
        assert!(table.insert(key("d"), 7, &Peer::Local, 100, SECOND));
        assert_eq!(table.remove(&key("d")), Some(7));
        assert!(table.insert(key("f"), 8, &Peer::Local, 100, SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn entries_expire_unless_touched() {
        let table = Table::new(9, 99);
        table.insert(key("a"), 1, &Peer::Local, 50, 2 * SECOND);
        table.insert(key("b"), 2, &Peer::Local, 49, 2 * SECOND);
        advance(SECOND).await;
        assert_eq!(
            (table.get(&key("a")), table.touch(&key("b"))),
            (Some(1), Some(2))
        );
        advance(SECOND).await;
        assert_eq!(
            (table.get(&key("a")), table.get(&key("b"))),
            (None, Some(2))
        );
        assert!(table.insert(key("c"), 3, &Peer::Local, 50, SECOND));
        advance(2 * SECOND).await;
        assert!(table.entries().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn peer_with_most_loses_first() {
        let peer = |last| Peer::Address([10, 0, 0, last].into());
        let table = Table::new(4, 100);
        let insert = |id, of, bytes| table.insert(key(id), 0, &peer(of), bytes, SECOND);
        let kept = || {
            let mut kept: Vec<_> = table.entries().into_iter().map(|(key, _)| key).collect();
            kept.sort();
            kept.concat()
        };
        assert!(insert("a", 1, 10) && insert("b", 2, 10) && insert("c", 2, 10));
        advance(SECOND / 2).await;
        assert!(insert("d", 2, 10) && insert("e", 2, 10) && insert("f", 2, 10));
        assert!(kept().starts_with('a') && kept().len() == 4, "{}", kept());
        assert!(
            insert("g", 3, 10) && insert("h", 3, 10) && kept().contains('a'),
            "{}",
            kept()
        );
        // Bytes decide if bytes are scarce.
        assert!(table.remove(&key("g")).is_some() && insert("i", 2, 60));
        assert!(
            insert("j", 1, 30) && !kept().contains('i') && kept().contains('a'),
            "{}",
            kept()
        );
        advance(SECOND).await;
        assert!(insert("k", 1, 100));
        assert_eq!(table.entries.lock().shares().count(), 1);
    }
}
