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
        let entries = self.uris.values_mut().chain(self.tasks.values_mut());
        entries.for_each(|entry| entry.verdict = Verdict::Pending);
        self.generation += 1;
    }

    /// Records a modern server's answer to `asked`.
    pub(super) fn acknowledge(&mut self, asked: &Filter, honoured: &Filter) {
        for (entries, asked, honoured) in [
            (&mut self.uris, &asked.uris, &honoured.uris),
            (&mut self.tasks, &asked.tasks, &honoured.tasks),
        ] {
            for (name, entry) in entries.iter_mut().filter(|(name, _)| asked.contains(*name)) {
                entry.verdict = verdict(honoured.contains(name));
            }
        }
    }

    /// The changes to request from a legacy server, which has accepted the subscriptions `held`,
    /// except for resources in `busy`, which have a running request.
    pub(super) fn changes(
        &self,
        held: &HashSet<Arc<str>>,
        busy: &HashSet<Arc<str>>,
    ) -> PendingChanges {
        let is_undecided = |(uri, entry): &(&Arc<str>, &Entry)| {
            matches!(entry.verdict, Verdict::Pending) && !busy.contains(*uri)
        };
        let is_unwanted = |uri: &&Arc<str>| !self.uris.contains_key(*uri) && !busy.contains(*uri);
        PendingChanges {
            generation: self.generation,
            subscribe: self
                .uris
                .iter()
                .filter(is_undecided)
                .map(|(uri, entry)| (Arc::clone(uri), entry.params.clone()))
                .collect(),
            unsubscribe: held.iter().filter(is_unwanted).cloned().collect(),
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
