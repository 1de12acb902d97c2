//! Where an ended span goes: to the ring, to the writers, and, if sampled, to the batch exporter.
//!
//! All of it by value or reference count, on the thread that ended the span, without waiting for
//! anything: what has no room is dropped and counted.
//!
//! Must not know: what the spans say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    Sampler, SamplingDecision, SamplingResult, ShouldSample, Span, SpanData, SpanExporter, SpanProcessor,
};

use crate::metrics::{DropReason, Metrics};
use crate::ring::Ring;
use crate::worker::Worker;

/// How long a writer has for what waits, at the least.
const LAST_WRITE: Duration = Duration::from_millis(200);

/// Hands ended spans on.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) ring: Option<Arc<Ring>>,
    pub(crate) writers: Vec<Worker>,
    pub(crate) exporter: Option<Gate>,
}

impl SpanProcessor for Pipeline {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let kept_here = self.ring.is_some() || !self.writers.is_empty();
        match &self.exporter {
            Some(exporter) if !kept_here => return exporter.offer(span),
            // The clone is made only for spans the exporter takes.
            Some(exporter) if span.span_context.is_sampled() => exporter.offer(span.clone()),
            _ => {}
        }
        let span = Arc::new(span);
        for writer in &self.writers {
            writer.offer(&span);
        }
        if let Some(ring) = &self.ring {
            ring.push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.as_ref().map_or(Ok(()), |exporter| exporter.next.force_flush())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let exported = self.exporter.as_ref().map_or(Ok(()), |exporter| exporter.next.shutdown_with_timeout(left()));
        // Writing what waits is a matter of milliseconds; an exporter that took all the time there
        // was does not keep it from happening.
        let written = self.writers.iter().all(|writer| writer.stop(Instant::now() + left().max(LAST_WRITE)));
        if written { exported } else { exported.and(Err(OTelSdkError::Timeout(timeout))) }
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Some(exporter) = &mut self.exporter {
            exporter.next.set_resource(resource);
        }
    }
}

/// The way into the batch processor. Lets sampled spans in only, since the processor would export
/// those that are merely recorded too; and counts what is inside, since the processor tells nobody
/// how many spans it dropped.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) next: Box<dyn SpanProcessor>,
    pub(crate) inside: Arc<AtomicUsize>,
    pub(crate) capacity: usize,
    pub(crate) metrics: Arc<Metrics>,
}

impl Gate {
    fn offer(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.inside.fetch_add(1, Ordering::Relaxed) >= self.capacity {
            self.inside.fetch_sub(1, Ordering::Relaxed);
            self.metrics.span_dropped(DropReason::QueueFull, 1);
            return;
        }
        self.next.on_end(span);
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

/// The configured sampler; what it drops is still recorded, for the ring and the writers, and goes
/// on with flags 00.
#[derive(Clone, Debug)]
pub(crate) struct RecordAll {
    pub(crate) sampler: Sampler,
    pub(crate) keep_unsampled: bool,
}

impl ShouldSample for RecordAll {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let mut result = self.sampler.should_sample(parent, trace_id, name, kind, attributes, links);
        if self.keep_unsampled && result.decision == SamplingDecision::Drop {
            result.decision = SamplingDecision::RecordOnly;
        }
        debug_assert!(parent.is_none_or(|parent| parent.span().span_context().trace_state() == &result.trace_state));
        result
    }
}
