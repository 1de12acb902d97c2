//! Which thread serves which connection.
//!
//! Each worker is a runtime of one thread, and a connection stays where it was put: what one request needs is then woken
//! on the thread that serves it, and no queue is shared between threads.
//!
//! Must not know: what connections carry, or who started the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

/// The threads that serve connections.
pub(super) struct Workers {
    /// The one that the listener is on.
    own: Worker,
    others: Vec<Worker>,
}

struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

/// A connection's place at a worker, given back when this is dropped.
pub(super) struct Place(Arc<AtomicUsize>);

impl Workers {
    /// The current runtime and `others`.
    pub(super) fn new(others: &[Handle]) -> Self {
        let worker = |runtime| Worker { runtime, connections: Arc::default() };
        Self { own: worker(Handle::current()), others: others.iter().cloned().map(worker).collect() }
    }

    /// A place at the worker with the fewest connections, and its runtime.
    pub(super) fn place(&self) -> (&Handle, Place) {
        let load = |worker: &&Worker| worker.connections.load(Ordering::Relaxed);
        let least = self.others.iter().min_by_key(load).filter(|other| load(other) < load(&&self.own));
        let worker = least.unwrap_or(&self.own);
        worker.connections.fetch_add(1, Ordering::Relaxed);
        (&worker.runtime, Place(Arc::clone(&worker.connections)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_where_the_fewest_are() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (own, first, second) = (runtime(), runtime(), runtime());
        let _entered = own.enter();
        let workers = Workers::new(&[first.handle().clone(), second.handle().clone()]);
        let places: Vec<_> = (0..4).map(|_| workers.place()).map(|(runtime, place)| (runtime.id(), place)).collect();
        let ids: Vec<_> = places.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [own.handle().id(), first.handle().id(), second.handle().id(), own.handle().id()]);
        let (_, gone) = places.into_iter().nth(2).unwrap();
        drop(gone);
        assert_eq!(workers.place().0.id(), own.handle().id(), "all of them gone, the listener's own comes first");
    }
}
