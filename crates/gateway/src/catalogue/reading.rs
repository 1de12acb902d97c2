//! Reading one backend's part of a list, once for all who wait for it.
//!
//! Must not know: what is made of the parts.

use std::sync::Arc;

use fanlight_canonical::Parent;
use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::part::Running;
use super::{Catalogue, load};

impl Catalogue {
    /// Reads one part, or waits for a reading that began after `need` changes had been heard of. Says
    /// whether it began one, which then stands in the trace of whoever began it.
    pub(super) async fn read(self: &Arc<Self>, backend: usize, need: u64, trace: &Parent) -> bool {
        let mut began = false;
        // If one is going on that is too old, the next one is not.
        for _ in 0..2 {
            let running = self.with(|state| {
                let part = state.parts.get_mut(backend)?;
                let number = part.readings + 1;
                let running = part.running.get_or_insert_with(|| {
                    (part.readings, began) = (number, true);
                    self.begin_reading(backend, number, part.heard, trace.clone())
                });
                Some((running.reflects, running.done.clone()))
            });
            let Some((reflects, done)) = running else { break };
            done.await;
            if reflects >= need {
                break;
            }
        }
        began
    }

    /// Reads in a task, so that it goes on when the one who asked goes away. Bounded by the time a
    /// list may take.
    fn begin_reading(self: &Arc<Self>, backend: usize, number: u64, reflects: u64, trace: Parent) -> Running {
        let (reader, catalogue) = (Arc::clone(self), Arc::clone(self));
        let reading = trace.clone().scope(async move {
            let Some(entry) = reader.sources.backends.get(backend) else { return };
            let loaded = load::one(reader.kind, entry.client.as_ref(), &reader.sources.limits, &trace).await;
            reader.with(|state| {
                state.last_read = Some(Instant::now());
                let Some(part) = state.parts.get_mut(backend) else { return };
                let was_announced = part.reflects < reflects;
                let is_new = part.store(loaded, reflects);
                state.version += u64::from(is_new);
                state.read_announced |= is_new && was_announced;
            });
        });
        let task = self.background.spawn(reading);
        let done = async move {
            if !matches!(task.await, Ok(Some(()))) {
                // Everything is ending, or reading it panicked: the next one asks anew.
                catalogue.with(|state| {
                    if let Some(part) = state.parts.get_mut(backend) {
                        part.running.take_if(|running| running.number == number);
                    }
                });
            }
        };
        Running { number, reflects, done: done.boxed().shared() }
    }
}
