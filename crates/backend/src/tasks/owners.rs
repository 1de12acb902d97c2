//! The owners of tasks: the clients that tasks were made for.
//!
//! Their table has limits of number and size, and its entries expire. At a limit, the peer with the
//! most loses first.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::{Caller, Holder, Peer};
use fanlight_fair as fair;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum number of recorded owners per task id. A constant: only made-up ids are shared by
/// many tasks.
const MAX_OWNERS: usize = 16;

/// The owners of tasks. A task of another client ([`Caller::owns_what_is_of`]) is treated as if it
/// did not exist. A server's endpoints share the owners, so a task that one knows to be foreign is
/// foreign at all of them.
pub(crate) struct TaskOwners {
    owners: Table<String, Vec<Owner>>,
    next: AtomicU64,
}

/// The owners of a server's tasks from the view of one endpoint.
pub(super) struct AtEndpoint {
    pub(super) owners: Arc<TaskOwners>,
    pub(super) endpoint: u64,
}

#[derive(Clone)]
struct Owner {
    caller: Caller,
    is_maker: bool,
    number: u64,
    /// The endpoint that has the task.
    endpoint: u64,
}

impl TaskOwners {
    /// Records the owners of at most `limit` tasks, in at most this many bytes.
    pub(crate) fn new(limit: usize, bytes: usize) -> Self {
        Self {
            owners: Table::new(limit.max(1), bytes),
            next: AtomicU64::new(1),
        }
    }

    /// Whether no task is recorded as made at this endpoint.
    pub(crate) fn has_none_at(&self, endpoint: u64) -> bool {
        let is_at = |owner: &Owner| owner.is_maker && owner.endpoint == endpoint;
        !self
            .owners
            .entries()
            .iter()
            .any(|(_, owners)| owners.iter().any(is_at))
    }

    /// The endpoint with a caller's task, if known: its maker, or the last endpoint that had it.
    pub(crate) fn endpoint_of(&self, task: &str, caller: &Caller) -> Option<u64> {
        let owners = self.owners.get(&task.to_owned())?;
        let own = owners
            .iter()
            .find(|owner| caller.owns_what_is_of(&owner.caller));
        own.map(|owner| owner.endpoint)
    }
}

impl AtEndpoint {
    fn new_owner(&self, caller: &Caller, is_maker: bool) -> Owner {
        let number = self.owners.next.fetch_add(1, Ordering::Relaxed);
        Owner {
            caller: caller.clone(),
            is_maker,
            number,
            endpoint: self.endpoint,
        }
    }

    /// Records an owner of a task: the task was made for `owner`, or `owner` asked for it and its
    /// maker is unknown. The record counts in `peer`'s share.
    pub(super) fn add(
        &self,
        task: &str,
        owner: &Caller,
        peer: &Peer,
        is_maker: bool,
        lifetime: Duration,
    ) {
        let is_recorded = self.owners.owners.change(&task.to_owned(), |owners| {
            let is_full = owners.len() >= MAX_OWNERS;
            match owners
                .iter_mut()
                .find(|other| owner.owns_what_is_of(&other.caller))
            {
                Some(known) => known.is_maker |= is_maker,
                None if is_full => {}
                None => owners.push(self.new_owner(owner, is_maker)),
            }
            true
        });
        if !is_recorded {
            let first = vec![self.new_owner(owner, is_maker)];
            self.owners
                .owners
                .insert(task.to_owned(), first, peer, task.len(), lifetime);
        }
    }

    /// Whether a task was made for another client, and no task with the same id for this one.
    pub(super) fn is_foreign(&self, task: &str, caller: &Caller) -> bool {
        let owners = self
            .owners
            .owners
            .touch(&task.to_owned())
            .unwrap_or_default();
        let mut makers = owners.iter().filter(|owner| owner.is_maker).peekable();
        makers.peek().is_some() && !makers.any(|owner| caller.owns_what_is_of(&owner.caller))
    }

    /// The caller's recorded tasks, each with its number, which rises from task to task.
    pub(super) fn tasks_of(&self, owner: &Caller) -> Vec<(u64, String)> {
        let all = self.owners.owners.entries().into_iter();
        let numbered = all.filter_map(|(task, owners)| {
            let owned = owners.iter().find(|other| other.caller == *owner)?;
            Some((owned.number, task))
        });
        let mut tasks: Vec<_> = numbered.collect();
        tasks.sort_unstable();
        tasks
    }

    /// Removes the record of a caller's task.
    pub(super) fn remove(&self, task: &str, owner: &Caller) {
        self.owners.owners.change(&task.to_owned(), |owners| {
            owners.retain(|other| other.caller != *owner);
            !owners.is_empty()
        });
    }
}

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
    use fanlight_canonical::{Principal, SessionKey};

    use super::*;

    #[tokio::test]
    async fn task_of_an_unauthenticated_client_is_foreign_to_other_sessions() {
        let owners = AtEndpoint {
            owners: Arc::new(TaskOwners::new(8, 1 << 20)),
            endpoint: 0,
        };
        let of = |session| Caller::session_of(Principal::anonymous(), SessionKey(session));
        owners.add("t", &of(1), &Peer::Local, true, Duration::from_secs(9));
        assert!(
            owners.is_foreign("t", &of(2))
                && owners.is_foreign("t", &Caller::request_of(Principal::anonymous()))
        );
        assert!(!owners.is_foreign("t", &of(1)));
        // Asking for a task does not make a client its owner.
        owners.add("t", &of(2), &Peer::Local, false, Duration::from_secs(9));
        assert!(owners.is_foreign("t", &of(2)) && !owners.is_foreign("t", &of(1)));
    }

    #[tokio::test]
    async fn endpoints_of_a_server_know_whose_tasks_the_others_have() {
        let shared = Arc::new(TaskOwners::new(8, 1 << 20));
        let [first, second] = [1, 2].map(|endpoint| AtEndpoint {
            owners: Arc::clone(&shared),
            endpoint,
        });
        let [ann, bob] = ["ann", "bob"]
            .map(|name| Caller::session_of(Principal::new("issuer", name), SessionKey::generate()));
        first.add("a", &ann, &Peer::Local, true, Duration::from_secs(9));
        assert!(second.is_foreign("a", &bob) && !second.is_foreign("a", &ann));
        assert_eq!(
            (shared.endpoint_of("a", &ann), shared.endpoint_of("a", &bob)),
            (Some(1), None)
        );
        assert!(shared.has_none_at(2) && !shared.has_none_at(1));
        // Endpoints may number their tasks independently.
        second.add("a", &bob, &Peer::Local, true, Duration::from_secs(9));
        assert_eq!(
            (shared.endpoint_of("a", &ann), shared.endpoint_of("a", &bob)),
            (Some(1), Some(2))
        );
    }

    #[tokio::test]
    async fn tasks_are_foreign_to_principals_that_have_not_made_them() {
        let owners = AtEndpoint {
            owners: Arc::new(TaskOwners::new(8, 1 << 20)),
            endpoint: 0,
        };
        let [ann, bob, eve] = ["ann", "bob", "eve"]
            .map(|name| Caller::session_of(Principal::new("issuer", name), SessionKey::generate()));
        let is_foreign = |task, caller: &Caller| owners.is_foreign(task, caller);
        let add = |task, caller, is_maker| {
            owners.add(task, caller, &Peer::Local, is_maker, Duration::from_secs(9));
        };
        add("asked", &ann, false);
        assert!(!is_foreign("asked", &bob) && !is_foreign("unknown", &bob));
        add("made", &ann, true);
        assert!(is_foreign("made", &bob) && !is_foreign("made", &ann));
        // Servers may number the tasks of each session.
        add("made", &bob, true);
        assert!(is_foreign("made", &eve) && !is_foreign("made", &bob) && !is_foreign("made", &ann));
        assert_eq!(
            owners
                .tasks_of(&ann)
                .into_iter()
                .map(|(_, task)| task)
                .collect::<Vec<_>>(),
            ["asked", "made"]
        );
        assert_eq!(
            (owners.tasks_of(&bob).len(), owners.tasks_of(&eve).len()),
            (1, 0)
        );
        owners.remove("made", &ann);
        assert_eq!(
            (owners.tasks_of(&ann).len(), owners.tasks_of(&bob).len()),
            (1, 1)
        );
    }
}

#[cfg(test)]
mod table_tests {
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
