//! The subscriptions requested from the server, and the part that it accepted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_canonical::Interest;
use fanlight_protocol::Json;

use super::filter::Filter;
use super::state::{Entry, State, Verdict};

/// The changes to request from a legacy server.
pub(crate) struct PendingChanges {
    pub(crate) generation: u64,
    /// Resources to subscribe to, with the client's `params`, if any.
    pub(crate) subscribe: Vec<(Arc<str>, Option<Json>)>,
    pub(crate) unsubscribe: Vec<Arc<str>>,
}

fn verdict(is_accepted: bool) -> Verdict {
    if is_accepted {
        Verdict::Accepted
    } else {
        Verdict::Refused(None)
    }
}

impl State {
    /// Forgets all verdicts for a new connection.
    pub(super) fn reset_verdicts(&mut self) {
        self.uris.retain(|_, entry| {
            entry.verdict = Verdict::Pending;
            !entry.subscribers.is_empty()
        });
        self.tasks
            .values_mut()
            .for_each(|entry| entry.verdict = Verdict::Pending);
        self.dirty = self.uris.keys().cloned().collect();
        self.generation += 1;
    }

    /// Records a modern server's answer to `asked`.
    pub(super) fn acknowledge(&mut self, asked: &Filter, honoured: &Filter) {
        self.uris.retain(|_, entry| !entry.subscribers.is_empty());
        for (entries, asked, honoured) in [
            (&mut self.uris, &asked.uris, &honoured.uris),
            (&mut self.tasks, &asked.tasks, &honoured.tasks),
        ] {
            for (name, entry) in entries.iter_mut().filter(|(name, _)| asked.contains(*name)) {
                entry.verdict = verdict(honoured.contains(name));
            }
        }
        self.dirty.clear();
    }

    /// The changes to request from a legacy server. Each change is returned once. Changes of
    /// resources in `busy`, which have a running request, are kept for later.
    pub(super) fn take_changes(&mut self, busy: &HashSet<Arc<str>>) -> PendingChanges {
        let mut changes = PendingChanges {
            generation: self.generation,
            subscribe: Vec::new(),
            unsubscribe: Vec::new(),
        };
        let (later, now) = std::mem::take(&mut self.dirty)
            .into_iter()
            .partition(|uri| busy.contains(uri));
        self.dirty = later;
        for uri in HashSet::<_>::into_iter(now) {
            let Some(entry) = self.uris.get(&uri) else {
                continue;
            };
            match (entry.subscribers.is_empty(), &entry.verdict) {
                (false, Verdict::Pending) => changes.subscribe.push((uri, entry.params.clone())),
                (false, _) => {}
                (true, verdict) => {
                    let was_accepted = matches!(verdict, Verdict::Accepted);
                    self.uris.remove(&uri);
                    changes.unsubscribe.extend(was_accepted.then_some(uri));
                }
            }
        }
        changes
    }

    /// Records a legacy server's answer.
    pub(super) fn set_verdict(&mut self, uri: &Arc<str>, verdict: Verdict) {
        match self.uris.get_mut(uri) {
            Some(entry) => {
                entry.verdict = verdict;
                if entry.subscribers.is_empty() {
                    self.dirty.insert(Arc::clone(uri));
                }
            }
            // All subscribers have left meanwhile.
            None if matches!(verdict, Verdict::Accepted) => {
                self.uris.insert(
                    Arc::clone(uri),
                    Entry {
                        verdict,
                        ..Entry::default()
                    },
                );
                self.dirty.insert(Arc::clone(uri));
                self.generation += 1;
            }
            None => {}
        }
    }

    /// The resources and tasks of an interest that the server has accepted.
    pub(super) fn accepted(&self, interest: &Interest) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let among = |entries: &HashMap<Arc<str>, Entry>, wanted: &[Arc<str>]| {
            let accepted = |key: &&Arc<str>| {
                entries
                    .get(*key)
                    .is_some_and(|entry| matches!(entry.verdict, Verdict::Accepted))
            };
            wanted.iter().filter(accepted).cloned().collect::<Vec<_>>()
        };
        (
            among(&self.uris, &interest.uris),
            among(&self.tasks, &interest.tasks),
        )
    }

    /// Whether the server's answer for one of these resources is still missing.
    pub(super) fn any_pending(&self, uris: &[Arc<str>]) -> bool {
        uris.iter().any(|uri| {
            self.uris
                .get(uri)
                .is_some_and(|entry| matches!(entry.verdict, Verdict::Pending))
        })
    }

    pub(super) fn set_tasks_accepted(&mut self, accepted: bool) {
        self.tasks
            .values_mut()
            .for_each(|entry| entry.verdict = verdict(accepted));
    }
}
