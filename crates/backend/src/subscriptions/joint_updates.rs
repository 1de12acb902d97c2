//! Merges the updates of a resource that several processes of a server announce.
//!
//! Calls of clients without a session run in separate processes. Each process subscribes to all
//! resources of its principal's clients, as the base connection's process does. A change that all
//! of them see is announced by each.
//!
//! So an update is held until every subscribed process has announced it. It is held only for a
//! moment, because only the process of a call may know what the call changed. Clients are told
//! after the last merged announcement, so they read newer content than any of them announced.

use std::time::Duration;

use fanlight_canonical::{Names, Principal};
use fanlight_protocol::Notification;
use fanlight_protocol::uri::with_parents;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum number of held updates. A constant: further ones are delivered at once, as with a
/// single process.
const MOST_HELD: usize = 256;

/// A process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessNumber(u64);

impl ProcessNumber {
    /// The process of the base connection.
    pub(super) const BASE: Self = Self(0);
}

/// The processes of one server that announce updates, and the held updates.
pub(crate) struct JointUpdates {
    /// The maximum time to hold an update.
    settle: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last number that a process or a held update has got.
    last: u64,
    /// The processes with subscriptions that serve clients without a session.
    processes: Vec<Process>,
    held: Vec<Held>,
}

struct Process {
    number: ProcessNumber,
    principal: Principal,
    uris: Names,
}

/// An update that waits for the announcements of more processes.
struct Held {
    number: u64,
    principal: Principal,
    notification: Notification,
    missing: Vec<ProcessNumber>,
}

/// The decision about a message that may have to wait for other processes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission<T> {
    Deliver,
    /// The message joins one that is already held.
    Merged,
    /// The message is held: `take_due` must be called at this time, with this number if there is
    /// one.
    Held(Instant, T),
}

impl JointUpdates {
    pub(super) fn new(settle: Duration) -> Self {
        Self {
            settle,
            state: Mutex::default(),
        }
    }

    /// A number for another process.
    pub(super) fn next_process(&self) -> ProcessNumber {
        let mut state = self.state.lock();
        state.last += 1;
        ProcessNumber(state.last)
    }

    /// Records the subscriptions of a process of `principal`'s clients. A process without
    /// subscriptions has no entry.
    pub(crate) fn set_subscribed(&self, number: ProcessNumber, principal: &Principal, uris: Names) {
        let mut state = self.state.lock();
        state.processes.retain(|process| process.number != number);
        if !uris.is_empty() {
            state.processes.push(Process {
                number,
                principal: principal.clone(),
                uris,
            });
        }
    }

    /// The principals whose own processes are subscribed to a resource.
    pub(super) fn principals(&self, uri: &str) -> Vec<Principal> {
        let mut found = Vec::new();
        for process in &self.state.lock().processes {
            if process.announces(uri) && !found.contains(&process.principal) {
                found.push(process.principal.clone());
            }
        }
        found
    }

    /// Decides about an update of `uri` for `principal` that the process `from` announced.
    /// `is_base_subscribed` says whether the base connection's process will announce it as well.
    pub(super) fn admit(
        &self,
        (principal, from): (&Principal, ProcessNumber),
        notification: &Notification,
        uri: &str,
        is_base_subscribed: bool,
    ) -> Admission<u64> {
        let mut state = self.state.lock();
        let is_same = |held: &Held| {
            held.principal == *principal && held.notification.text == notification.text
        };
        if let Some(held) = state.held.iter_mut().find(|held| is_same(held)) {
            held.missing.retain(|process| *process != from);
            if !held.missing.is_empty() {
                return Admission::Merged;
            }
            state.held.retain(|held| !held.missing.is_empty());
            return Admission::Deliver;
        }
        let own = state
            .processes
            .iter()
            .filter(|process| process.principal == *principal && process.announces(uri));
        let base = is_base_subscribed.then_some(ProcessNumber::BASE);
        let missing: Vec<_> = own
            .map(|process| process.number)
            .chain(base)
            .filter(|process| *process != from)
            .collect();
        if missing.is_empty() || state.held.len() >= MOST_HELD {
            return Admission::Deliver;
        }
        state.last += 1;
        let number = state.last;
        state.held.push(Held {
            number,
            principal: principal.clone(),
            notification: notification.clone(),
            missing,
        });
        Admission::Held(Instant::now() + self.settle, number)
    }

    /// A held update that has waited long enough, with its principal; `None` if it has been
    /// delivered.
    pub(super) fn take_due(&self, number: u64) -> Option<(Principal, Notification)> {
        let mut state = self.state.lock();
        let at = state.held.iter().position(|held| held.number == number)?;
        let held = state.held.swap_remove(at);
        Some((held.principal, held.notification))
    }
}

impl Process {
    /// Whether the process is subscribed to a resource, or to one that contains it.
    fn announces(&self, uri: &str) -> bool {
        with_parents(uri).any(|parent| self.uris.contains(parent))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fanlight_protocol::{Json, Method};

    use super::Admission::{Deliver, Held, Merged};
    use super::*;

    const URI: &str = "a://r";

    fn principal(name: &str) -> Principal {
        Principal::new("https://issuer.example", name)
    }

    fn update(params: &'static str) -> Notification {
        Notification::new(Method::ResourceUpdated, Some(&Json::literal(params)))
    }

    /// Updates with processes of these principals that are subscribed to [`URI`].
    fn with_processes<const N: usize>(principals: [&str; N]) -> (JointUpdates, [ProcessNumber; N]) {
        let updates = JointUpdates::new(Duration::from_millis(100));
        let numbers = principals.map(|name| {
            let number = updates.next_process();
            updates.set_subscribed(number, &principal(name), Names::from([Arc::from(URI)]));
            number
        });
        (updates, numbers)
    }

    #[tokio::test(start_paused = true)]
    async fn update_is_delivered_once_all_processes_have_announced_it() {
        let (updates, [first, second]) = with_processes(["ann", "ann"]);
        let (ann, notification) = (principal("ann"), update(r#"{"uri":"a://r/part"}"#));
        let admit = |from| updates.admit((&ann, from), &notification, "a://r/part", true);
        for _ in 0..2 {
            let Held(until, number) = admit(first) else {
                panic!("not held")
            };
            assert_eq!(until, Instant::now() + updates.settle);
            assert_eq!(
                (admit(first), admit(ProcessNumber::BASE), admit(second)),
                (Merged, Merged, Deliver)
            );
            assert!(updates.take_due(number).is_none(), "delivered already");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn update_of_one_process_alone_is_due_after_a_moment() {
        let (updates, [first, second]) = with_processes(["ann", "ann"]);
        let (ann, notification) = (principal("ann"), update(r#"{"uri":"a://r"}"#));
        let Held(_, number) = updates.admit((&ann, first), &notification, URI, true) else {
            panic!("not held")
        };
        let (whose, due) = updates.take_due(number).expect("due");
        assert_eq!((whose, due.text), (ann.clone(), notification.text.clone()));
        // A late announcement may be another change.
        assert!(matches!(
            updates.admit((&ann, second), &notification, URI, true),
            Held(..)
        ));
    }

    #[test]
    fn updates_of_other_principals_and_with_other_members_are_not_merged() {
        let (updates, [ann, bob]) = with_processes(["ann", "bob"]);
        let (one, other) = (
            update(r#"{"uri":"a://r","n":1}"#),
            update(r#"{"uri":"a://r","n":2}"#),
        );
        assert_eq!(
            updates.principals(URI),
            [principal("ann"), principal("bob")]
        );
        for (whose, process) in [("ann", ann), ("bob", bob)] {
            for notification in [&one, &other] {
                assert_eq!(
                    updates.admit((&principal(whose), process), notification, URI, false),
                    Deliver
                );
            }
        }
        updates.set_subscribed(bob, &principal("bob"), Names::new());
        assert_eq!(updates.principals(URI), [principal("ann")]);
    }

    #[test]
    fn held_updates_are_bounded() {
        let (updates, [process]) = with_processes(["ann"]);
        let ann = principal("ann");
        let admit = |n: usize| {
            let params = Json::parse(format!(r#"{{"uri":"a://r","n":{n}}}"#).into(), 8).unwrap();
            updates.admit(
                (&ann, process),
                &Notification::new(Method::ResourceUpdated, Some(&params)),
                URI,
                true,
            )
        };
        assert!((0..MOST_HELD).all(|n| matches!(admit(n), Held(..))));
        assert_eq!(admit(MOST_HELD), Deliver);
    }
}
