//! The worker threads of the process. Each has its own runtime, which serves client connections.
//!
//! A call may use values of its worker (`PerWorker`), so that it wakes no other thread.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of workers with their own values; further ones share them.
const MAX_WORKERS: usize = 64;

thread_local! {
    /// `None` on a thread that is not a worker.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

static WORKERS: AtomicUsize = AtomicUsize::new(1);

/// Makes the current thread worker `number`, from 0, of `workers`. To be called at the start of the
/// thread. Must not be called on a runtime that moves tasks between threads.
pub fn enter(number: usize, workers: usize) {
    WORKERS.store(workers.max(1), Ordering::Relaxed);
    NUMBER.set(Some(number % MAX_WORKERS));
}

/// The number of workers; 1 if none has entered.
pub(crate) fn workers() -> usize {
    WORKERS.load(Ordering::Relaxed)
}

/// One value for each worker, made at its first use. Threads that are not workers share one.
pub struct PerWorker<T> {
    of_workers: Box<[OnceLock<Box<T>>]>,
    of_others: OnceLock<Box<T>>,
}

impl<T> Default for PerWorker<T> {
    fn default() -> Self {
        Self {
            of_workers: (0..MAX_WORKERS).map(|_| OnceLock::new()).collect(),
            of_others: OnceLock::new(),
        }
    }
}

impl<T> PerWorker<T> {
    /// All values made so far.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.of_workers
            .iter()
            .chain([&self.of_others])
            .filter_map(|own| own.get().map(Box::as_ref))
    }

    /// The value of the current thread.
    pub fn get(&self, make: impl FnOnce() -> T) -> &T {
        let own = NUMBER
            .get()
            .and_then(|number| self.of_workers.get(number))
            .unwrap_or(&self.of_others);
        own.get_or_init(|| Box::new(make()))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_worker_has_a_value_and_all_other_threads_share_one() {
        let made = AtomicUsize::new(0);
        let values = PerWorker::default();
        let get = |number: Option<usize>| {
            let in_thread = || {
                if let Some(number) = number {
                    enter(number, 1);
                }
                *values.get(|| made.fetch_add(1, Ordering::Relaxed))
            };
            thread::scope(|scope| scope.spawn(in_thread).join().unwrap())
        };
        assert_eq!(
            [
                get(Some(1)),
                get(None),
                get(Some(0)),
                get(Some(1)),
                get(None),
                get(Some(MAX_WORKERS))
            ],
            [0, 1, 2, 0, 1, 2]
        );
    }
}
