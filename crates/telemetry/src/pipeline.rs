//! The destinations of an ended span: the ring, the writers and, if the span is sampled, the batch
//! exporter.
//!
//! The ring and the writers share one record. The exporter gets a span of the SDK, which is made
//! only for sampled spans. All of this happens on the thread that ended the span, and never blocks:
//! spans that do not fit into a queue are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor as _,
};

use crate::content_rules::ContentRules;
use crate::metrics::{DropReason, Metrics};
use crate::record::Record;
use crate::running::Running;
use crate::span_data::mask_content;
use crate::worker::Worker;
use crate::{BatchSettings, Propagators, Ring, Sampling};

/// The least time in which a writer may write its queue at shutdown. There is no option: a shorter
/// time would only lose recorded spans.
const LAST_WRITE: Duration = Duration::from_millis(200);
/// How long delivery may take if the pipeline is dropped without a shutdown. The program always
/// shuts down, which has its own time limit.
const UNASKED: Duration = Duration::from_secs(5);

/// Delivers ended spans.
#[derive(Debug)]
pub(crate) struct Pipeline {
    ring: Option<Arc<Ring>>,
    writers: Vec<Worker>,
    exporter: Option<BatchExport>,
    /// Whether the pipeline was shut down. Spans that end afterwards are lost.
    is_closed: AtomicBool,
}

impl Pipeline {
    pub(crate) fn new(
        ring: Option<Arc<Ring>>,
        writers: Vec<Worker>,
        exporter: Option<BatchExport>,
    ) -> Self {
        Self {
            ring,
            writers,
            exporter,
            is_closed: AtomicBool::new(false),
        }
    }

    /// Whether spans have no destination.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_none() && self.writers.is_empty() && self.exporter.is_none()
    }

    /// Delivers an ended span with about `size` bytes.
    pub(crate) fn deliver(&self, span: Arc<Record>, size: usize) {
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

    /// Delivers all queued spans, within about `timeout`.
    pub(crate) fn shutdown(&self, timeout: Duration) -> OTelSdkResult {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let exported = self.exporter.as_ref().map_or(Ok(()), |exporter| {
            exporter.processor.shutdown_with_timeout(left())
        });
        // Writing takes milliseconds, so the writers get this time even if the exporter has used up
        // all of it.
        let written = self
            .writers
            .iter()
            .all(|writer| writer.stop(Instant::now() + left().max(LAST_WRITE)));
        if written {
            exported
        } else {
            exported.and(Err(OTelSdkError::Timeout(timeout)))
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // Nobody can receive the result.
        let _ = self.shutdown(UNASKED);
    }
}

/// The batch processor of an exporter, for sampled spans. It counts the spans in its queue itself,
/// because the processor does not report how many spans it dropped.
#[derive(Debug)]
pub(crate) struct BatchExport {
    processor: BatchSpanProcessor,
    queued: Arc<AtomicUsize>,
    capacity: usize,
    metrics: Arc<Metrics>,
}

impl BatchExport {
    pub(crate) fn new(
        exporter: impl SpanExporter + 'static,
        settings: BatchSettings,
        resource: &Resource,
        metrics: Arc<Metrics>,
    ) -> Self {
        let queued = Arc::new(AtomicUsize::new(0));
        let counted = Counted {
            exporter,
            queued: Arc::clone(&queued),
            metrics: Arc::clone(&metrics),
        };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(settings.queue)
            .with_max_export_batch_size(settings.size)
            .with_scheduled_delay(settings.delay)
            .build();
        let mut processor = BatchSpanProcessor::builder(counted)
            .with_batch_config(config)
            .build();
        processor.set_resource(resource);
        Self {
            processor,
            queued,
            capacity: settings.queue,
            metrics,
        }
    }

    fn offer(&self, span: &Record) {
        if self.queued.fetch_add(1, Ordering::Relaxed) >= self.capacity {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            self.metrics.span_dropped(DropReason::QueueFull, 1);
            return;
        }
        self.processor.on_end(span.to_exported());
    }
}

/// An exporter that counts the spans that left the queue, and the spans that it could not deliver.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    queued: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        batch.iter_mut().for_each(mask_content);
        let count = batch.len();
        self.queued.fetch_sub(count, Ordering::Relaxed);
        let result = self.exporter.export(batch).await;
        if result.is_err() {
            self.metrics
                .span_dropped(DropReason::ExportFailed, count as u64);
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

/// Records spans. Ended spans have no reference to the recorder, because its ring refers to them.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) pipeline: Pipeline,
    pub(crate) sampling: Sampling,
    pub(crate) propagators: Propagators,
    /// The rules for the content of calls.
    pub(crate) content: ContentRules,
    /// The running requests of clients.
    pub(crate) running: Running,
    /// Whether spans leave the process, to a collector, a file or the terminal. If they stay in the
    /// ring, messages keep the context with which they came: otherwise the store of traces would
    /// miss a parent that it never gets.
    pub(crate) is_delivered: bool,
}

impl Recorder {
    /// Delivers an ended span with about `size` bytes.
    pub(crate) fn deliver(&self, span: Arc<Record>, size: usize) {
        self.pipeline.deliver(span, size);
    }
}
