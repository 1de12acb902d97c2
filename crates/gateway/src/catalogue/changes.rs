//! Changes of a list: noting that a server has announced one, and reading its part again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::{Outcome, Parent};
use fanlight_protocol::Json;
use tokio::time::Instant;

use super::load::covers;
use super::part::Part;
use super::starting::Wait;
use super::{Catalogue, rests};
use crate::topology::{BackendId, Topology, View};

impl Catalogue {
    /// Notes that the list has probably changed since the newest snapshot.
    pub(crate) fn mark_stale(&self) {
        match &self.own {
            Some(own) if own.parts(&self.topology.load()).is_empty() => {
                own.shared.mark_parts_stale();
            }
            _ => self.mark_parts_stale(),
        }
    }

    fn mark_parts_stale(&self) {
        self.with_state(|state| {
            state.suspect = true;
            state.parts.values_mut().for_each(|part| {
                part.announced += 1;
                part.changes += 1;
            });
        });
    }

    /// Marks all parts as outdated after Fanlight has begun to declare another extension to
    /// servers, because they may list more now.
    pub(super) fn read_with_more(&self) {
        let declared = self.capabilities.current();
        let was_read_with_it = |part: &Part| {
            part.loaded
                .as_ref()
                .is_some_and(|loaded| covers(&loaded.declared, &declared))
        };
        self.with_state(|state| {
            state.suspect = true;
            // A list kept from an earlier run may already have been read with this extension.
            let others = state
                .parts
                .values_mut()
                .filter(|part| part.running.is_some() || !was_read_with_it(part));
            others.for_each(|part| part.announced += 1);
        });
    }

    /// Notes that a server has announced a change of its part. Returns whether the part is private.
    pub(super) fn announced(&self, backend: BackendId) -> bool {
        self.with_state(|state| {
            state.changed_unseen |= state.snapshots.is_empty();
            let part = state.part(backend);
            part.announced += 1;
            part.changes += 1;
            part.is_private
        })
    }

    /// Notes that a server announces changes of its part from now on. The part is read again,
    /// because it may have changed before without an announcement.
    pub(super) fn announces(&self, backend: BackendId) {
        self.with_state(|state| {
            let part = state.part(backend);
            part.announces = true;
            part.announced += 1;
            part.changes += 1;
        });
    }

    /// Notes that Fanlight no longer hears of this server's changes.
    pub(super) fn announces_no_more(&self, backend: BackendId) {
        self.with_state(|state| state.part(backend).announces = false);
    }

    /// Reads a server's part again if it was read before the connection made at `made`. The part
    /// may differ, because the server may be another process.
    pub(super) async fn compare(
        self: &Arc<Self>,
        topology: &Arc<Topology>,
        backend: BackendId,
        made: Instant,
    ) {
        let is_older = self.with_state(|state| {
            let part = state
                .parts
                .get_mut(&backend)
                .filter(|part| part.is_older_than_connection(made));
            let Some(part) = part else { return false };
            part.announced += 1;
            part.changes += 1;
            true
        });
        if is_older {
            self.update(topology, backend).await;
        }
    }

    /// The servers whose parts were kept from an earlier run of Fanlight, with the time of reading.
    pub(crate) fn kept_since(&self) -> HashMap<BackendId, SystemTime> {
        self.with_state(|state| {
            let kept = |(backend, part): (&BackendId, &Part)| {
                Some((*backend, part.loaded.as_ref()?.kept_since?))
            };
            state.parts.iter().filter_map(kept).collect()
        })
    }

    /// The original names and definitions of all entries, for each server whose whole list is
    /// known. Private lists are included only `with_private`, as Fanlight itself is shown them.
    pub(crate) fn own_entries(
        &self,
        with_private: bool,
    ) -> HashMap<BackendId, Vec<(String, Json)>> {
        self.with_state(|state| {
            let known = |(backend, part): (&BackendId, &Part)| {
                let list = &part.loaded.as_ref()?.contribution;
                let is_known = list.outcome == Outcome::Ok
                    && !list.is_stale
                    && (with_private || !part.is_private);
                is_known.then(|| (*backend, self.kind.own_entries(&list.results)))
            };
            state.parts.iter().filter_map(known).collect()
        })
    }

    /// Servers that announce changes and have lists past their `ttlMs`. Fanlight still serves these
    /// lists, but should read them again meanwhile.
    pub(crate) fn expired_backends(&self) -> Vec<BackendId> {
        let now = Instant::now();
        let shared = self.own.as_ref().map_or(self, |own| &own.shared);
        let reader = self.own.as_ref().map(|own| &own.reader);
        let mut overdue: Vec<_> = shared.with_state(|state| {
            let is_served = |backend: BackendId, part: &Part| {
                reader.is_none_or(|reader| !reader.has_own_part(backend, part.is_private))
            };
            let overdue = state
                .parts
                .iter()
                .filter(|(id, part)| is_served(**id, part) && part.is_overdue(now));
            overdue.map(|(backend, _)| *backend).collect()
        });
        if !overdue.is_empty() {
            let topology = self.topology.load();
            overdue.retain(|backend| !rests(&topology, *backend, reader));
        }
        overdue
    }

    /// Reads a server's part again if it is outdated, and merges it. Lists that no client has asked
    /// for stay unread, unless clients have to be notified of their changes.
    pub(super) async fn update(self: &Arc<Self>, topology: &Arc<Topology>, backend: BackendId) {
        let now = Instant::now();
        let (is_wanted, need) = self.with_state(|state| {
            let part = state
                .parts
                .get(&backend)
                .filter(|part| part.loaded.is_some() || part.running.is_some());
            let need = part
                .filter(|part| part.is_behind() || part.is_overdue(now))
                .map(|part| part.announced);
            (state.changed_unseen, need)
        });
        if is_wanted {
            drop(
                self.current(&View::everything(topology), &Parent::default())
                    .await,
            );
        } else if let Some(need) = need {
            self.read(topology, backend, need, Wait::Whole, &Parent::default())
                .await;
            drop(self.merge(topology));
        }
    }

    /// Takes the first snapshot in the background, for a client that has to be notified of changes.
    pub(crate) fn begin(self: &Arc<Self>, topology: &Arc<Topology>) {
        let first = self.with_state(|state| {
            !std::mem::replace(&mut state.begun, true) && state.snapshots.is_empty()
        });
        if first {
            let (catalogue, topology) = (Arc::clone(self), Arc::clone(topology));
            let taking = async move {
                drop(
                    catalogue
                        .current(&View::everything(&topology), &Parent::default())
                        .await,
                );
            };
            drop(self.background.spawn(taking));
        }
    }
}
