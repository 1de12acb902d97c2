//! The worker threads that serve clients: one single-threaded runtime for each processor, including
//! the main thread.
//!
//! A work-stealing runtime would wake another thread for most messages; here a connection stays on
//! its thread. The main thread also runs everything that belongs to no connection.

use std::num::NonZero;
use std::thread::{self, JoinHandle};

use fanlight_backend::worker;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use fanlight_cli::failure::Failure;

/// The worker threads. Dropping this ends them and the tasks on them.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    end: CancellationToken,
}

struct Worker {
    runtime: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts worker threads so that there are `count` in total with the calling thread; 0 means
    /// one for each processor.
    pub(crate) fn start(count: usize) -> Result<Self, Failure> {
        let count = match count {
            0 => thread::available_parallelism().map_or(1, NonZero::get),
            count => count,
        };
        worker::enter(0, count);
        let mut all = Self {
            workers: Vec::new(),
            end: CancellationToken::new(),
        };
        for number in 1..count {
            let worker = Worker::start(number, count, all.end.clone()).map_err(|error| {
                Failure::other(format!(
                    "cannot start worker thread {number} of {count}: {error}"
                ))
            })?;
            all.workers.push(worker);
        }
        Ok(all)
    }

    /// The runtimes of the worker threads.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        self.workers
            .iter()
            .map(|worker| worker.runtime.clone())
            .collect()
    }
}

impl Worker {
    fn start(number: usize, count: usize, end: CancellationToken) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || {
                worker::enter(number, count);
                runtime.block_on(end.cancelled());
                // Drop the remaining tasks without waiting for blocked reads.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            runtime: handle,
            thread: Some(thread),
        })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end.cancel();
        for worker in &mut self.workers {
            // A thread that panicked has ended as well.
            let _ = worker.thread.take().map(JoinHandle::join);
        }
    }
}
