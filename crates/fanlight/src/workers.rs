//! The threads that serve clients beside the main one: a runtime of one thread for each processor.
//!
//! A runtime that shares its work between threads pays for that with each message; here a connection
//! stays on the thread it was given. The main thread does what is nobody's connection, and serves
//! connections as well.
//!
//! Must not know: what runs on them.

use std::num::NonZero;
use std::thread::{self, JoinHandle};

use fanlight_backend::worker;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// The worker threads. Dropping this ends them, and what still runs on them.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    end: CancellationToken,
}

struct Worker {
    runtime: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// As many that there are `count` with the main thread, which this is called on; 0 for one for
    /// each processor.
    pub(crate) fn start(count: usize) -> Result<Self, Failure> {
        let count = match count {
            0 => thread::available_parallelism().map_or(1, NonZero::get),
            count => count,
        };
        worker::enter(0, count);
        let mut all = Self { workers: Vec::new(), end: CancellationToken::new() };
        for number in 1..count {
            let worker = Worker::start(number, count, all.end.clone())
                .map_err(|error| Failure::other(format!("cannot start worker thread {number} of {count}: {error}")))?;
            all.workers.push(worker);
        }
        Ok(all)
    }

    /// Their runtimes.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        self.workers.iter().map(|worker| worker.runtime.clone()).collect()
    }
}

impl Worker {
    fn start(number: usize, count: usize, end: CancellationToken) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            worker::enter(number, count);
            runtime.block_on(end.cancelled());
            // What is left is dropped; nothing waits for a blocked read.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, thread: Some(thread) })
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
