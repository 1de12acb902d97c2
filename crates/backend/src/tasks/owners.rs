//! The owners of tasks: the clients that tasks were made for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::{Caller, Peer};

use super::table::Table;

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
