//! The clients that tasks were made for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::{Caller, Peer};

use super::MAX_TASK_STATE;
use super::table::Table;

/// Owners of tasks with the same id that are recorded. No option: only made-up ids are those of many tasks.
const MAX_OWNERS: usize = 16;

/// The owners of tasks. A task that another client has made ([`Caller::owns_what_is_of`]) is treated as one that does
/// not exist.
///
/// No method waits: an implementation that replicas share answers from the owners that it has seen.
pub(crate) trait SessionTaskOwners: Send + Sync {
    /// Records that a task was made for `owner`, or that `owner` has asked for a task whose maker is
    /// not known. It takes a share of `peer`.
    fn add(&self, task: &str, owner: &Caller, peer: &Peer, is_maker: bool, lifetime: Duration);

    /// Whether a task was made for another client, and none of the same id for this one.
    fn is_foreign(&self, task: &str, caller: &Caller) -> bool;

    /// The tasks recorded for a caller, each with its number, which rises from task to task.
    fn tasks_of(&self, owner: &Caller) -> Vec<(u64, String)>;

    /// Deletes the record of a caller's task.
    fn remove(&self, task: &str, owner: &Caller);
}

/// [`SessionTaskOwners`] of this process.
pub(super) struct InMemory {
    owners: Table<String, Vec<Owner>>,
    next: AtomicU64,
}

#[derive(Clone)]
struct Owner {
    caller: Caller,
    is_maker: bool,
    number: u64,
}

impl InMemory {
    /// Owners of at most `limit` tasks.
    pub(super) fn new(limit: usize) -> Self {
        Self { owners: Table::new(limit, limit.saturating_mul(MAX_TASK_STATE)), next: AtomicU64::new(1) }
    }
}

impl SessionTaskOwners for InMemory {
    fn add(&self, task: &str, owner: &Caller, peer: &Peer, is_maker: bool, lifetime: Duration) {
        let new = || Owner { caller: owner.clone(), is_maker, number: self.next.fetch_add(1, Ordering::Relaxed) };
        let is_recorded = self.owners.change(&task.to_owned(), |owners| {
            let is_full = owners.len() >= MAX_OWNERS;
            match owners.iter_mut().find(|other| owner.owns_what_is_of(&other.caller)) {
                Some(known) => known.is_maker |= is_maker,
                None if is_full => {}
                None => owners.push(new()),
            }
            true
        });
        if !is_recorded {
            self.owners.insert(task.to_owned(), vec![new()], peer, task.len(), lifetime);
        }
    }

    fn is_foreign(&self, task: &str, caller: &Caller) -> bool {
        let owners = self.owners.touch(&task.to_owned()).unwrap_or_default();
        let mut makers = owners.iter().filter(|owner| owner.is_maker).peekable();
        makers.peek().is_some() && !makers.any(|owner| caller.owns_what_is_of(&owner.caller))
    }

    fn tasks_of(&self, owner: &Caller) -> Vec<(u64, String)> {
        let all = self.owners.all().into_iter();
        let numbered = all.filter_map(|(task, owners)| {
            let owned = owners.iter().find(|other| other.caller == *owner)?;
            Some((owned.number, task))
        });
        let mut tasks: Vec<_> = numbered.collect();
        tasks.sort_unstable();
        tasks
    }

    fn remove(&self, task: &str, owner: &Caller) {
        self.owners.change(&task.to_owned(), |owners| {
            owners.retain(|other| other.caller != *owner);
            !owners.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::{Principal, SessionKey};

    use super::*;

    #[tokio::test]
    async fn task_of_an_unauthenticated_client_is_foreign_to_other_sessions() {
        let owners = InMemory::new(8);
        let of = |session| Caller::session_of(Principal::anonymous(), SessionKey(session));
        owners.add("t", &of(1), &Peer::Local, true, Duration::from_secs(9));
        assert!(owners.is_foreign("t", &of(2)) && owners.is_foreign("t", &Caller::request_of(Principal::anonymous())));
        assert!(!owners.is_foreign("t", &of(1)));
        // Asking for it does not make it theirs.
        owners.add("t", &of(2), &Peer::Local, false, Duration::from_secs(9));
        assert!(owners.is_foreign("t", &of(2)) && !owners.is_foreign("t", &of(1)));
    }

    #[tokio::test]
    async fn tasks_are_foreign_to_principals_that_have_not_made_them() {
        let owners = InMemory::new(8);
        let [ann, bob, eve] =
            ["ann", "bob", "eve"].map(|name| Caller::session_of(Principal::named("issuer", name), SessionKey::fresh()));
        let is_foreign = |task, caller: &Caller| owners.is_foreign(task, caller);
        let add = |task, caller, is_maker| owners.add(task, caller, &Peer::Local, is_maker, Duration::from_secs(9));
        add("asked", &ann, false);
        assert!(!is_foreign("asked", &bob) && !is_foreign("unknown", &bob));
        add("made", &ann, true);
        assert!(is_foreign("made", &bob) && !is_foreign("made", &ann));
        // Servers may number the tasks of each session.
        add("made", &bob, true);
        assert!(is_foreign("made", &eve) && !is_foreign("made", &bob) && !is_foreign("made", &ann));
        assert_eq!(owners.tasks_of(&ann).into_iter().map(|(_, task)| task).collect::<Vec<_>>(), ["asked", "made"]);
        assert_eq!((owners.tasks_of(&bob).len(), owners.tasks_of(&eve).len()), (1, 0));
        owners.remove("made", &ann);
        assert_eq!((owners.tasks_of(&ann).len(), owners.tasks_of(&bob).len()), (1, 1));
    }
}
