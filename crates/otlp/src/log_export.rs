//! Exports texts as log records, in order, through a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_telemetry::Telemetry;
use opentelemetry_sdk::Resource;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{error, warn};

use crate::collector::Collector;
use crate::export::Export;
use crate::logs::{self, LogText};
use crate::start::runtime;
use crate::{OtlpTarget, StartError};

/// The limit of the records in the queue.
const QUEUE: usize = 8192;
/// The limit of the bytes of text in the queue.
const QUEUE_BYTES: usize = 16 << 20;
/// The limit of the records in one request.
const BATCH: usize = 512;
/// The bytes of text after which a request is full. With their attributes, records stay below the 4
/// MiB that gRPC allows.
const BATCH_BYTES: usize = 1 << 20;
/// How long records are collected before they are sent together.
const COLLECT: Duration = Duration::from_millis(200);
/// The pause before the first retry. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(250);
/// How often a request is sent: this takes about two minutes.
const ATTEMPTS: u32 = 10;

/// Exports texts as log records. It counts records that it cannot export.
#[derive(Debug)]
pub struct LogExport {
    queue: mpsc::Sender<Waiting>,
    /// One permit for each byte of text that may wait.
    room: Arc<Semaphore>,
    counts: Arc<Counts>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    lost: AtomicU64,
}

/// A text in the queue, with its permits of the room.
struct Waiting {
    text: LogText,
    _room: OwnedSemaphorePermit,
}

impl LogExport {
    /// Starts the export to `target`. The names of events and attributes begin with `namespace` and
    /// a dot.
    ///
    /// # Errors
    ///
    /// If the client of the collector cannot be created.
    pub fn start(
        target: &OtlpTarget,
        telemetry: &Telemetry,
        namespace: &'static str,
    ) -> Result<Self, StartError> {
        let handle = runtime()?;
        let collector = Collector::new(target, &handle)?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (stop, stopped) = watch::channel(false);
        let counts = Arc::<Counts>::default();
        let exporter = Exporter {
            collector,
            endpoint: target.display(),
            resource: telemetry
                .resource()
                .cloned()
                .unwrap_or_else(|| Resource::builder_empty().build()),
            namespace,
            waiting,
            stopped,
            counts: Arc::clone(&counts),
            is_failing: false,
        };
        let task = Mutex::new(Some(handle.spawn(exporter.run())));
        Ok(Self {
            queue,
            room: Arc::new(Semaphore::new(QUEUE_BYTES)),
            counts,
            stop,
            task,
        })
    }

    /// Exports a JSON object, whose members become attributes. Never blocks.
    pub fn line(&self, line: &str) {
        self.add(LogText {
            event: None,
            text: line.to_owned(),
        });
    }

    /// Exports any text, as an event with this name. Never blocks.
    pub fn note(&self, event: &'static str, text: &str) {
        self.add(LogText {
            event: Some(event),
            text: text.to_owned(),
        });
    }

    fn add(&self, text: LogText) {
        let bytes = u32::try_from(text.text.len()).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes).ok();
        let added = room.and_then(|room| self.queue.try_send(Waiting { text, _room: room }).ok());
        if added.is_none() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many records the collector accepted.
    pub fn exported(&self) -> u64 {
        self.counts.exported.load(Ordering::Relaxed)
    }

    /// How many records were lost, because too many waited or because the collector did not accept
    /// them.
    pub fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// Delivers the waiting records within `bound`, and ends. Returns whether all of them were
    /// delivered.
    pub async fn end(&self, bound: Duration) -> bool {
        let lost = self.lost();
        self.stop.send_replace(true);
        let task = self.task.lock().take();
        let Some(mut task) = task else { return true };
        let is_done = timeout(bound, &mut task).await.is_ok();
        task.abort();
        is_done && self.lost() == lost
    }
}

impl Drop for LogExport {
    fn drop(&mut self) {
        let task = self.task.lock().take();
        task.iter().for_each(JoinHandle::abort);
    }
}

/// The task that exports.
struct Exporter {
    collector: Collector,
    endpoint: String,
    resource: Resource,
    namespace: &'static str,
    waiting: mpsc::Receiver<Waiting>,
    stopped: watch::Receiver<bool>,
    counts: Arc<Counts>,
    /// Whether the log says already that the export fails.
    is_failing: bool,
}

impl Exporter {
    async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            let count = batch.len() as u64;
            let texts = batch.iter().map(|one| &one.text);
            let request = Export::Logs(logs::request(&self.resource, self.namespace, texts));
            self.deliver(&request, count).await;
        }
    }

    /// Collects the next records. Returns `None` at the end.
    async fn next_batch(&mut self) -> Option<Vec<Waiting>> {
        let first = tokio::select! {
            biased;
            first = self.waiting.recv() => first?,
            () = is_stopped(&mut self.stopped) => {
                self.waiting.close();
                self.waiting.recv().await?
            }
        };
        if self.waiting.len() < BATCH {
            // Waits until the time is over or the export ends.
            let _ = timeout(COLLECT, is_stopped(&mut self.stopped)).await;
        }
        let (mut bytes, mut batch) = (first.text.text.len(), vec![first]);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Ok(next) = self.waiting.try_recv() else {
                break;
            };
            bytes += next.text.text.len();
            batch.push(next);
        }
        Some(batch)
    }

    /// Sends a request with `count` records until the collector accepts it, or until all attempts
    /// have failed.
    async fn deliver(&mut self, request: &Export, count: u64) {
        for attempt in 1..=ATTEMPTS {
            let failed = match self.collector.send(request).await {
                Ok(refused) => {
                    self.is_failing = false;
                    let lost = refused.min(count);
                    self.counts.lost.fetch_add(lost, Ordering::Relaxed);
                    self.counts
                        .exported
                        .fetch_add(count - lost, Ordering::Relaxed);
                    return;
                }
                Err(failed) => failed,
            };
            let is_last = !failed.is_temporary || attempt == ATTEMPTS || *self.stopped.borrow();
            let (endpoint, problem) = (&self.endpoint, &failed.problem);
            if is_last {
                self.counts.lost.fetch_add(count, Ordering::Relaxed);
                error!(
                    endpoint,
                    problem,
                    lost = count,
                    "log records are lost: the collector does not accept them"
                );
                return;
            }
            if !std::mem::replace(&mut self.is_failing, true) {
                warn!(endpoint, problem, "cannot export log records; trying again");
            }
            let _ = timeout(
                PAUSE * 2_u32.pow(attempt - 1),
                is_stopped(&mut self.stopped),
            )
            .await;
        }
    }
}

/// Waits until the export has to end. It also ends when its owner is dropped.
async fn is_stopped(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|is_stopped| *is_stopped).await;
}
