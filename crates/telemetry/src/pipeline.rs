//! Where an ended span goes: to the ring, to the writers, and, if sampled, to the batch exporter.
//!
//! The ring and the writers get it by reference count; what the exporter takes is made here, and only
//! for what it takes. All of it on the thread that ended the span, without waiting for anything: what
//! has no room is dropped and counted.
//!
//! Must not know: what the spans say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter, SpanProcessor};

use crate::metrics::{DropReason, Metrics};
use crate::record::Record;
use crate::ring::Ring;
use crate::worker::Worker;

/// How long a writer has for what waits, at the least.
const LAST_WRITE: Duration = Duration::from_millis(200);
/// How long what waits has if nobody shuts this down.
const UNASKED: Duration = Duration::from_secs(5);

/// Hands ended spans on.
#[derive(Debug)]
pub(crate) struct Pipeline {
    ring: Option<Arc<Ring>>,
    writers: Vec<Worker>,
    exporter: Option<Gate>,
    /// Once it is, spans that end are lost.
    is_closed: AtomicBool,
}

impl Pipeline {
    pub(crate) fn new(ring: Option<Arc<Ring>>, writers: Vec<Worker>, exporter: Option<Gate>) -> Self {
        Self { ring, writers, exporter, is_closed: AtomicBool::new(false) }
    }

    /// Whether nothing would be done with a span.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_none() && self.writers.is_empty() && self.exporter.is_none()
    }

    /// A span has ended, and takes about `size` bytes.
    pub(crate) fn ended(&self, span: Arc<Record>, size: usize) {
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        if let Some(exporter) = self.exporter.as_ref().filter(|_| span.context.is_sampled()) {
            exporter.offer(&span);
        }
        for writer in &self.writers {
            writer.offer(&span);
        }
        if let Some(ring) = &self.ring {
            ring.push(span, size);
        }
    }

    /// Delivers what waits, within about `timeout`.
    pub(crate) fn shutdown(&self, timeout: Duration) -> OTelSdkResult {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let exported = self.exporter.as_ref().map_or(Ok(()), |exporter| exporter.next.shutdown_with_timeout(left()));
        // Writing what waits is a matter of milliseconds; an exporter that took all the time there
        // was does not keep it from happening.
        let written = self.writers.iter().all(|writer| writer.stop(Instant::now() + left().max(LAST_WRITE)));
        if written { exported } else { exported.and(Err(OTelSdkError::Timeout(timeout))) }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.shutdown(UNASKED);
    }
}

/// The way into the batch processor, for sampled spans only. Counts what is inside, since the processor
/// tells nobody how many spans it dropped.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) next: Box<dyn SpanProcessor>,
    pub(crate) inside: Arc<AtomicUsize>,
    pub(crate) capacity: usize,
    pub(crate) metrics: Arc<Metrics>,
}

impl Gate {
    fn offer(&self, span: &Record) {
        if self.inside.fetch_add(1, Ordering::Relaxed) >= self.capacity {
            self.inside.fetch_sub(1, Ordering::Relaxed);
            self.metrics.span_dropped(DropReason::QueueFull, 1);
            return;
        }
        self.next.on_end(span.to_span_data());
    }
}

/// Takes from the gate's count what the processor has taken out of its queue, and counts what could
/// not be delivered.
#[derive(Debug)]
pub(crate) struct Counted<E> {
    pub(crate) exporter: E,
    pub(crate) inside: Arc<AtomicUsize>,
    pub(crate) metrics: Arc<Metrics>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.inside.fetch_sub(count, Ordering::Relaxed);
        let result = self.exporter.export(batch).await;
        if result.is_err() {
            self.metrics.span_dropped(DropReason::ExportFailed, count as u64);
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
