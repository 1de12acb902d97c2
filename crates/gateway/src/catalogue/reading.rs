//! Reading one backend's part of a list, once for all requests that wait for it.

use std::sync::Arc;

use fanlight_canonical::{BackendClient, CallContext, Parent};
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep_until};

use super::part::Running;
use super::{Catalogue, load};
use crate::topology::{BackendId, ListLimits, Topology};

impl Catalogue {
    /// Reads one part, or waits for a reading that began after `need` changes had been announced.
    /// Returns whether it began a reading, which then belongs to `trace`.
    pub(super) async fn read(
        self: &Arc<Self>,
        topology: &Topology,
        backend: BackendId,
        need: u64,
        trace: &Parent,
    ) -> bool {
        let Some(member) = topology.get(backend) else { return false };
        let mut began = false;
        // If the running one is too old, the next one is not.
        for _ in 0..2 {
            let (reflects, done) = self.with(|state| {
                let part = state.part(backend);
                let number = part.readings + 1;
                let running = part.running.get_or_insert_with(|| {
                    (part.readings, began) = (number, true);
                    let begun = Begun { backend, number, reflects: part.announced, changes: part.changes };
                    self.begin_reading(begun, Arc::clone(&member.client), topology.limits, trace.clone())
                });
                (running.reflects, running.done.clone())
            });
            done.await;
            if reflects >= need {
                break;
            }
        }
        began
    }

    /// Reads a part for which no request waits, and merges it.
    pub(super) fn read_in_background(self: &Arc<Self>, topology: &Arc<Topology>, backend: BackendId, need: u64) {
        if self.with(|state| state.part(backend).running.is_some()) {
            return;
        }
        let (catalogue, topology) = (Arc::clone(self), Arc::clone(topology));
        drop(self.background.spawn(async move {
            catalogue.read(&topology, backend, need, &Parent::default()).await;
            catalogue.merge(&topology);
        }));
    }

    /// Reads a part once its old list is too old to be served, so that clients are notified of what it has lost.
    fn read_at(self: &Arc<Self>, time: Instant, backend: BackendId) {
        let catalogue = Arc::downgrade(self);
        drop(self.background.spawn(async move {
            sleep_until(time).await;
            let Some(catalogue) = catalogue.upgrade() else { return };
            let topology = catalogue.topology.load();
            let need = catalogue.with(|state| {
                let part = state.parts.get_mut(&backend)?;
                part.is_expiring = false;
                part.is_stale().then_some(part.announced)
            });
            if let Some(need) = need.filter(|_| topology.get(backend).is_some()) {
                catalogue.read_in_background(&topology, backend, need);
            }
        }));
    }

    /// Reads in a task, so that the reading survives the request that began it. Bounded by the time a
    /// list may take.
    fn begin_reading(
        self: &Arc<Self>,
        begun: Begun,
        client: Arc<dyn BackendClient>,
        limits: ListLimits,
        trace: Parent,
    ) -> Running {
        let Begun { backend, number, reflects, changes } = begun;
        let (reader, catalogue) = (Arc::clone(self), Arc::clone(self));
        let reading = trace.clone().scope(async move {
            let began = Instant::now();
            let context = CallContext::for_lists_with(reader.capabilities.current(), &trace);
            let mut loaded = load::one(reader.kind, client.as_ref(), &limits, reader.memory.reserve(), context).await;
            let expires = reader.with(|state| {
                state.last_read = Some(Instant::now());
                let part = state.part(backend);
                let was_announced = part.reflects < reflects;
                part.learn_needs(reader.kind, &mut loaded, changes);
                let is_new = part.store(loaded, reflects, limits.stale, began.elapsed());
                let expires = part.expire(limits.stale);
                state.version += u64::from(is_new);
                state.read_announced |= is_new && was_announced;
                expires
            });
            if let Some(expires) = expires {
                reader.read_at(expires, backend);
            }
        });
        let task = self.background.spawn(reading);
        let done = async move {
            if !matches!(task.await, Ok(Some(()))) {
                // The gateway is ending, or the reading panicked: the next request reads again.
                catalogue.with(|state| state.part(backend).running.take_if(|running| running.number == number));
            }
        };
        Running { number, reflects, done: done.boxed().shared() }
    }
}

/// A reading as it began.
struct Begun {
    backend: BackendId,
    number: u64,
    /// How many changes had been announced.
    reflects: u64,
    /// How many of them were the server's own.
    changes: u64,
}
