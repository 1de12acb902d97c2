//! The demand of all listeners, as `subscriptions/listen` asks for it, and the part that the server
//! has accepted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_canonical::Interest;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::subscription::{self, Change, Lists};
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
    pub(super) async fn agreed(&self, uris: &[Arc<str>]) -> Agreement {
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
    pub(crate) fn demand(&self) -> (u64, Filter) {
        let state = self.state.lock();
        let wanted = |entries: &HashMap<Arc<str>, Entry>| {
            let wanted = entries.iter().filter(|(_, entry)| entry.is_wanted());
            wanted.map(|(name, _)| Arc::clone(name)).collect()
        };
        let demand = Filter {
            lists: state.lists(),
            uris: wanted(&state.uris),
            tasks: wanted(&state.tasks),
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
        held: &HashSet<Arc<str>>,
        busy: &HashSet<Arc<str>>,
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
    pub(crate) fn acknowledge(&self, generation: u64, asked: &Filter, honoured: &Filter) {
        self.acknowledge_part(asked, honoured);
        self.agreement.send_replace(Agreement {
            generation,
            unanswered: 0,
            lists: honoured.lists,
            unknown: honoured.unknown.clone(),
        });
    }

    /// Records that a modern server accepts `honoured` of `asked`; the demand may be larger.
    pub(crate) fn acknowledge_part(&self, asked: &Filter, honoured: &Filter) {
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

/// A choice of notifications: the wanted ones, or those that the server has agreed to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) lists: Lists,
    pub(crate) uris: HashSet<Arc<str>>,
    pub(crate) tasks: HashSet<Arc<str>>,
    /// Members that Fanlight does not know.
    pub(crate) unknown: Option<Json>,
}

impl Filter {
    pub(crate) fn from_interest(interest: &Interest) -> Self {
        Self {
            lists: interest.lists,
            uris: interest.uris.iter().cloned().collect(),
            tasks: interest.tasks.iter().cloned().collect(),
            unknown: interest.unknown.clone(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this contains everything in `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.lists & other.lists == other.lists
            && other.uris.is_subset(&self.uris)
            && other.tasks.is_subset(&self.tasks)
            && (other.unknown.is_none() || other.unknown == self.unknown)
    }

    /// The `params` of `subscriptions/listen`.
    pub(crate) fn to_params(&self) -> Json {
        let Self {
            lists,
            uris,
            tasks,
            unknown,
        } = self;
        let filter = subscription::filter(*lists, uris, tasks, unknown.as_ref());
        ObjectBuilder::new()
            .member("notifications", &filter)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::subscription::Change;

    use super::*;

    #[test]
    fn filter_covers_equal_and_smaller_filters() {
        let filter = Filter {
            lists: Change::Tools.into(),
            uris: ["a".into(), "b".into()].into(),
            ..Filter::default()
        };
        let smaller = Filter {
            uris: ["b".into()].into(),
            ..Filter::default()
        };
        assert!(filter.covers(&filter) && filter.covers(&smaller) && !smaller.covers(&filter));
        let unknown = Filter {
            unknown: Some(Json::literal(r#"{"x":1}"#)),
            ..filter.clone()
        };
        assert!(unknown.covers(&filter) && !filter.covers(&unknown));
    }
}
