//! The demand of all listeners, as `subscriptions/listen` asks for it, and the part that the server
//! has accepted.

use std::collections::HashMap;
use std::sync::Arc;

use fanlight_canonical::{Interest, Names};
use fanlight_protocol::subscription::{Change, Lists};
use fanlight_protocol::{Json, Method};

use super::SubscriptionRegistry;
use super::state::{Entry, Verdict};

/// The server's agreement.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreement {
    /// The generation of the demand that the server answered.
    generation: u64,
    /// The generation up to which nobody should wait for an answer.
    unanswered: u64,
    lists: Lists,
    /// The members of the filter that Fanlight does not know.
    unknown: Option<Json>,
}

/// A request about a resource to a legacy server, with the client's `params` if any.
pub(crate) type ResourceRequest = (Method, Arc<str>, Option<Json>);

impl Agreement {
    /// Whether the server announces this change, as far as known.
    pub(super) fn announces(&self, change: Change) -> bool {
        self.generation == 0 || self.lists.has(change)
    }
}

fn verdict(is_accepted: bool) -> Verdict {
    if is_accepted {
        Verdict::Accepted
    } else {
        Verdict::Refused(None)
    }
}

impl SubscriptionRegistry {
    /// Waits for the part of an interest that the server accepts.
    pub(crate) async fn honoured(&self, interest: &Interest) -> Interest {
        let agreement = self.agreed(&interest.uris).await;
        let state = self.state.lock();
        let is_accepted = |entries: &HashMap<Arc<str>, Entry>, name: &Arc<str>| {
            let entry = entries.get(name);
            entry.is_some_and(|entry| matches!(entry.verdict, Verdict::Accepted))
        };
        let mut honoured = Interest {
            lists: agreement.lists & interest.lists,
            unknown: agreement.unknown.filter(|_| interest.unknown.is_some()),
            ..interest.clone()
        };
        honoured.uris.retain(|uri| is_accepted(&state.uris, uri));
        honoured
            .tasks
            .retain(|task| is_accepted(&state.tasks, task));
        honoured
    }

    /// Waits until the server has answered to the current demand. Of resources it considers only
    /// `uris`, since the answer for another may take long.
    pub(super) async fn agreed(&self, uris: &Names) -> Agreement {
        let generation = self.state.lock().generation;
        let mut agreement = self.agreement.subscribe();
        let is_agreed = |agreement: &Agreement| {
            let state = self.state.lock();
            let is_pending = |uri: &Arc<str>| {
                let entry = state.uris.get(uri);
                entry.is_some_and(|entry| matches!(entry.verdict, Verdict::Pending))
            };
            agreement.unanswered >= generation
                || agreement.generation >= generation && !uris.iter().any(is_pending)
        };
        // The sender lives as long as `self`.
        agreement
            .wait_for(is_agreed)
            .await
            .map(|agreement| agreement.clone())
            .unwrap_or_default()
    }

    /// The generation, which grows with every change of the demand on the base connection.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    /// The demand on the base connection without what the server refuses, and its generation.
    pub(crate) fn demand(&self) -> (u64, Interest) {
        let state = self.state.lock();
        let wanted = |entries: &HashMap<Arc<str>, Entry>| {
            let wanted = entries.iter().filter(|(_, entry)| entry.is_wanted());
            wanted.map(|(name, _)| Arc::clone(name)).collect()
        };
        let demand = Interest {
            lists: state.lists(),
            uris: wanted(&state.uris),
            tasks: wanted(&state.tasks),
            session: false,
            unknown: self.settings.unknown.clone(),
        };
        (state.generation, demand)
    }

    /// Forgets the server's agreement for a new connection.
    pub(crate) fn reset_verdicts(&self) {
        self.change(|state| {
            let entries = state.uris.values_mut().chain(state.tasks.values_mut());
            entries.for_each(|entry| entry.verdict = Verdict::Pending);
            state.generation += 1;
        });
    }

    /// The requests that a legacy server has to get, and the generation of the demand. It has
    /// accepted the subscriptions `held`; resources in `busy` have a running request. Unless it
    /// `accepts` subscriptions, it gets only those that sessions have asked for.
    pub(crate) fn changes(
        &self,
        held: &Names,
        busy: &Names,
        accepts: bool,
    ) -> (u64, Vec<ResourceRequest>) {
        let state = &mut *self.state.lock();
        let is_unwanted = |uri: &&Arc<str>| !state.uris.contains_key(*uri) && !busy.contains(*uri);
        let unwanted = held.iter().filter(is_unwanted);
        let mut changes: Vec<_> = unwanted
            .map(|uri| (Method::Unsubscribe, Arc::clone(uri), None))
            .collect();
        let undecided = state.uris.iter_mut().filter(|(uri, entry)| {
            matches!(entry.verdict, Verdict::Pending) && !busy.contains(*uri)
        });
        for (uri, entry) in undecided {
            if held.contains(uri) {
                entry.verdict = Verdict::Accepted;
            } else if !accepts && !entry.has_session() {
                entry.verdict = Verdict::Refused(None);
            } else {
                changes.push((Method::Subscribe, Arc::clone(uri), entry.params.clone()));
            }
        }
        (state.generation, changes)
    }

    /// Records a legacy server's answer.
    pub(crate) fn set_verdict(&self, uri: &Arc<str>, verdict: Verdict) {
        if let Some(entry) = self.state.lock().uris.get_mut(uri) {
            entry.verdict = verdict;
        }
        // Wakes callers that wait for the verdict.
        self.agreement.send_modify(|_| ());
    }

    /// Records a legacy server's declarations as its answer to the demand up to `generation`.
    /// Resources are requested one by one. `has_stream` tells whether notifications can arrive.
    pub(crate) fn set_declared(
        &self,
        generation: u64,
        lists: Lists,
        tasks: bool,
        has_stream: bool,
    ) {
        for entry in self.state.lock().tasks.values_mut() {
            entry.verdict = verdict(tasks && has_stream);
        }
        let lists = if has_stream { lists } else { Lists::default() };
        self.agreement.send_replace(Agreement {
            generation,
            unanswered: 0,
            lists,
            unknown: None,
        });
    }

    /// Records that nobody should wait any longer for a modern server's answer to the demand up to
    /// `generation`.
    pub(crate) fn leave_unanswered(&self, generation: u64) {
        self.agreement
            .send_modify(|agreement| agreement.unanswered = generation);
    }

    /// Records that a modern server accepts `honoured` of `asked`, which answers the demand up to
    /// `generation`.
    pub(crate) fn acknowledge(&self, generation: u64, asked: &Interest, honoured: &Interest) {
        self.acknowledge_part(asked, honoured);
        self.agreement.send_replace(Agreement {
            generation,
            unanswered: 0,
            lists: honoured.lists,
            unknown: honoured.unknown.clone(),
        });
    }

    /// Records that a modern server accepts `honoured` of `asked`; the demand may be larger.
    pub(crate) fn acknowledge_part(&self, asked: &Interest, honoured: &Interest) {
        let state = &mut *self.state.lock();
        for (entries, asked, honoured) in [
            (&mut state.uris, &asked.uris, &honoured.uris),
            (&mut state.tasks, &asked.tasks, &honoured.tasks),
        ] {
            for (name, entry) in entries.iter_mut().filter(|(name, _)| asked.contains(*name)) {
                entry.verdict = verdict(honoured.contains(name));
            }
        }
    }
}
