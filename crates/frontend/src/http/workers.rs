//! Assigns connections to threads.
//!
//! Each worker is a runtime of one thread, and a connection stays on its worker. So all tasks of a
//! request run on one thread, and threads share no queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

/// The threads that serve connections.
pub(super) struct Workers {
    /// The worker on which the listener runs.
    own: Worker,
    others: Vec<Worker>,
}

struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

/// A connection's assignment to a worker, until dropped.
pub(super) struct Assignment(Arc<AtomicUsize>);

impl Workers {
    /// Uses the current runtime and `others`.
    pub(super) fn new(others: &[Handle]) -> Self {
        let worker = |runtime| Worker {
            runtime,
            connections: Arc::default(),
        };
        Self {
            own: worker(Handle::current()),
            others: others.iter().cloned().map(worker).collect(),
        }
    }

    /// Assigns a connection to the worker with the fewest; returns the worker's runtime.
    pub(super) fn assign(&self) -> (&Handle, Assignment) {
        let load = |worker: &&Worker| worker.connections.load(Ordering::Relaxed);
        let least = self
            .others
            .iter()
            .min_by_key(load)
            .filter(|other| load(other) < load(&&self.own));
        let worker = least.unwrap_or(&self.own);
        worker.connections.fetch_add(1, Ordering::Relaxed);
        (&worker.runtime, Assignment(Arc::clone(&worker.connections)))
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_assigned_to_the_worker_with_the_fewest() {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
        };
        let (own, first, second) = (runtime(), runtime(), runtime());
        let _entered = own.enter();
        let workers = Workers::new(&[first.handle().clone(), second.handle().clone()]);
        let assigned: Vec<_> = (0..4)
            .map(|_| workers.assign())
            .map(|(runtime, assignment)| (runtime.id(), assignment))
            .collect();
        let ids: Vec<_> = assigned.iter().map(|(id, _)| *id).collect();
        assert_eq!(
            ids,
            [
                own.handle().id(),
                first.handle().id(),
                second.handle().id(),
                own.handle().id()
            ]
        );
        let (_, gone) = assigned.into_iter().nth(2).unwrap();
        drop(gone);
        assert_eq!(
            workers.assign().0.id(),
            own.handle().id(),
            "of workers with equally many, the listener's own comes first"
        );
    }
}
