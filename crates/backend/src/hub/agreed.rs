//! What the server has been told of what is to be heard, and what it has agreed to.
//!
//! Must not know: servers, or waiting.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_protocol::Json;

use super::filter::Filter;
use super::registry::{Entry, Made, Registry};
use fanlight_canonical::Interest;

/// What is to be done at a legacy server.
pub(crate) struct Changes {
    pub(crate) generation: u64,
    pub(crate) subscribe: Vec<(Arc<str>, Option<Json>)>,
    pub(crate) unsubscribe: Vec<Arc<str>>,
}

impl Registry {
    /// Nothing has been agreed on with the server yet.
    pub(super) fn renew(&mut self) {
        self.uris.retain(|_, entry| {
            entry.made = Made::Open;
            !entry.subscribers.is_empty()
        });
        self.tasks.values_mut().for_each(|entry| entry.made = Made::Open);
        self.dirty = self.uris.keys().cloned().collect();
        self.generation += 1;
    }

    /// Takes up what a modern server answered to `asked`.
    pub(super) fn acknowledge(&mut self, asked: &Filter, honoured: &Filter) {
        let verdict = |yes| if yes { Made::Accepted } else { Made::Refused(None) };
        self.uris.retain(|_, entry| !entry.subscribers.is_empty());
        for (uri, entry) in &mut self.uris {
            if asked.uris.contains(uri) {
                entry.made = verdict(honoured.uris.contains(uri));
            }
        }
        for (task, entry) in &mut self.tasks {
            if asked.tasks.contains(task) {
                entry.made = verdict(honoured.tasks.contains(task));
            }
        }
        self.dirty.clear();
    }

    /// What is to be done at a legacy server. Each change is given out once; those of resources in
    /// `busy`, for which something is being done, later.
    pub(super) fn changes(&mut self, busy: &HashSet<Arc<str>>) -> Changes {
        let mut changes = Changes { generation: self.generation, subscribe: Vec::new(), unsubscribe: Vec::new() };
        let (later, now) = std::mem::take(&mut self.dirty).into_iter().partition(|uri| busy.contains(uri));
        self.dirty = later;
        for uri in HashSet::<_>::into_iter(now) {
            let Some(entry) = self.uris.get(&uri) else { continue };
            match (entry.subscribers.is_empty(), &entry.made) {
                (false, Made::Open) => changes.subscribe.push((uri, entry.params.clone())),
                (true, Made::Accepted) => {
                    self.uris.remove(&uri);
                    changes.unsubscribe.push(uri);
                }
                (true, _) => {
                    self.uris.remove(&uri);
                }
                (false, _) => {}
            }
        }
        changes
    }

    /// Takes up what a legacy server answered.
    pub(super) fn set_made(&mut self, uri: &Arc<str>, made: Made) {
        match self.uris.get_mut(uri) {
            Some(entry) => {
                entry.made = made;
                if entry.subscribers.is_empty() {
                    self.dirty.insert(Arc::clone(uri));
                }
            }
            // All have left meanwhile.
            None if matches!(made, Made::Accepted) => {
                self.uris.insert(Arc::clone(uri), Entry { made, ..Entry::default() });
                self.dirty.insert(Arc::clone(uri));
                self.generation += 1;
            }
            None => {}
        }
    }

    /// What of a listener's resources and tasks is honoured.
    pub(super) fn accepted(&self, interest: &Interest) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let among = |entries: &HashMap<Arc<str>, Entry>, wanted: &[Arc<str>]| {
            let accepted =
                |key: &&Arc<str>| entries.get(*key).is_some_and(|entry| matches!(entry.made, Made::Accepted));
            wanted.iter().filter(accepted).cloned().collect::<Vec<_>>()
        };
        (among(&self.uris, &interest.uris), among(&self.tasks, &interest.tasks))
    }

    /// Whether the server has still to say something to any of a listener's resources.
    pub(super) fn is_open(&self, uris: &[Arc<str>]) -> bool {
        uris.iter().any(|uri| self.uris.get(uri).is_some_and(|entry| matches!(entry.made, Made::Open)))
    }

    pub(super) fn accept_tasks(&mut self, accepted: bool) {
        for entry in self.tasks.values_mut() {
            entry.made = if accepted { Made::Accepted } else { Made::Refused(None) };
        }
    }
}
