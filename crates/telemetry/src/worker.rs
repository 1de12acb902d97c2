//! A thread that writes ended spans from a bounded queue.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use opentelemetry_sdk::trace::SpanData;
use parking_lot::Mutex;

use crate::metrics::{DropReason, Metrics};
use crate::record::Record;
use crate::span_data::mask_content;

/// The limit of the spans that are written at once.
const BATCH: usize = 256;

/// Writes spans.
pub(crate) trait Write: Send + 'static {
    /// Writes `spans`, which ended in this order.
    fn write(&mut self, spans: Vec<SpanData>) -> io::Result<()>;
}

/// The thread and its queue. On drop the thread writes the queue and ends.
#[derive(Debug)]
pub(crate) struct Worker {
    /// `None` after shutdown.
    queue: Mutex<Option<SyncSender<Arc<Record>>>>,
    done: Mutex<Receiver<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    metrics: Arc<Metrics>,
}

impl Worker {
    /// Starts the thread, with a queue for `capacity` spans. `name` may have at most 15 characters.
    pub(crate) fn start(
        name: &str,
        writer: impl Write,
        capacity: usize,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let (queue, spans) = sync_channel(capacity);
        let (ended, done) = sync_channel(1);
        let counted = Arc::clone(&metrics);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                run(writer, &spans, &counted);
                // This fails if nobody waits for the end.
                let _ = ended.send(());
            })?;
        Ok(Self {
            queue: Mutex::new(Some(queue)),
            done: Mutex::new(done),
            thread: Mutex::new(Some(thread)),
            metrics,
        })
    }

    /// Queues a span. If the queue is full, the span is dropped and counted.
    pub(crate) fn offer(&self, span: &Arc<Record>) {
        let queue = self.queue.lock();
        let taken = queue
            .as_ref()
            .is_some_and(|queue| queue.try_send(Arc::clone(span)).is_ok());
        if !taken {
            self.metrics.span_dropped(DropReason::QueueFull, 1);
        }
    }

    /// Closes the queue and waits until it is written, but not longer than until `deadline`.
    /// Returns whether it was written.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        *self.queue.lock() = None;
        let done = self.done.lock();
        let left = deadline.saturating_duration_since(Instant::now());
        let ended = !matches!(done.recv_timeout(left), Err(RecvTimeoutError::Timeout));
        if let Some(thread) = self.thread.lock().take().filter(|_| ended) {
            // The thread has signalled its end, so this returns at once.
            let _ = thread.join();
        }
        ended
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop(Instant::now() + Duration::from_secs(1));
    }
}

fn run(mut writer: impl Write, spans: &Receiver<Arc<Record>>, metrics: &Metrics) {
    let mut failing = false;
    while let Ok(first) = spans.recv() {
        let batch = std::iter::once(first).chain(spans.try_iter().take(BATCH - 1));
        let mut batch: Vec<_> = batch.map(|span| span.to_exported()).collect();
        batch.iter_mut().for_each(mask_content);
        let count = batch.len() as u64;
        match writer.write(batch) {
            Ok(()) => failing = false,
            Err(error) => {
                metrics.span_dropped(DropReason::WriteFailed, count);
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "spans dropped: cannot write traces");
                }
            }
        }
    }
}
