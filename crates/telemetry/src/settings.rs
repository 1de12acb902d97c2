//! Settings of telemetry.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use opentelemetry::trace::{SpanKind, TraceId};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample as _};

use crate::inbound::{Carriers, HeaderContext, Inbound};
use crate::metrics::MetricLimits;
use crate::{ContentSettings, RingLimits};

/// Settings of telemetry.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether spans are recorded. Metrics are always counted.
    pub tracing: bool,
    /// The limits of the ring of recent traces; `None` for no ring.
    pub ring: Option<RingLimits>,
    /// Renders the OTLP-JSON of each finished trace, for the standard error stream; `None` prints
    /// none.
    pub console: Option<fn(&str) -> String>,
    /// The file that gets all ended spans.
    pub file: Option<FileSettings>,
    /// The rule for which traces are sampled.
    pub sampling: Sampling,
    /// The kinds of context that are read from messages and sent with them.
    pub propagators: Propagators,
    /// Further resource attributes. A `service.name` among them replaces `fanlight`.
    pub resource: Vec<(String, String)>,
    /// Limits of metrics.
    pub metrics: MetricLimits,
    /// The value of `service.version`.
    pub service_version: String,
    /// The calls whose content is kept.
    pub content: ContentSettings,
    /// The log's counter of dropped log lines.
    pub dropped_log_lines: Arc<AtomicU64>,
}

#[cfg(any(test, feature = "test-support"))]
impl Default for Settings {
    /// Settings with only the ring.
    fn default() -> Self {
        Self {
            tracing: true,
            ring: Some(RingLimits::default()),
            console: None,
            file: None,
            sampling: Sampling::default(),
            propagators: Propagators::default(),
            resource: Vec::new(),
            metrics: MetricLimits::default(),
            service_version: env!("CARGO_PKG_VERSION").to_owned(),
            content: ContentSettings::default(),
            dropped_log_lines: Arc::default(),
        }
    }
}

/// The settings of `--trace-file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// The path of the file.
    pub path: PathBuf,
    /// The size in bytes at which the file is rotated.
    pub max_bytes: u64,
    /// How many rotated files are kept.
    pub kept: usize,
}

impl FileSettings {
    /// The file at `path`, rotated at 64 MiB, with three earlier files.
    pub const fn new(path: PathBuf) -> Self {
        Self {
            path,
            max_bytes: 64 << 20,
            kept: 3,
        }
    }
}

/// How spans are queued and batched for an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// The limit of the queue. Further spans are dropped and counted.
    pub queue: usize,
    /// The limit of the spans in one export.
    pub size: usize,
    /// How long spans wait until a batch is full.
    pub delay: Duration,
}

impl Default for BatchSettings {
    /// The defaults of OpenTelemetry: a queue of 2048 spans, batches of 512, and a delay of five
    /// seconds.
    fn default() -> Self {
        Self {
            queue: 2048,
            size: 512,
            delay: Duration::from_secs(5),
        }
    }
}

/// The kinds of context that are read from messages and sent with them, by the names of
/// `OTEL_PROPAGATORS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Propagators {
    /// `tracecontext`
    pub trace_context: bool,
    /// `baggage`
    pub baggage: bool,
}

impl Default for Propagators {
    /// Both propagators are on, as in OpenTelemetry.
    fn default() -> Self {
        Self {
            trace_context: true,
            baggage: true,
        }
    }
}

impl Propagators {
    /// The part of a received context that is used.
    pub(crate) fn filter(self, found: Inbound) -> Inbound {
        let baggage = found.baggage.filter(|_| self.baggage);
        match self.trace_context {
            true => Inbound { baggage, ..found },
            false => Inbound {
                baggage,
                ..Inbound::default()
            },
        }
    }

    /// The context in headers that is forwarded if nothing is recorded.
    pub(crate) fn header(self, carriers: &Carriers<'_>) -> Option<HeaderContext> {
        let found = HeaderContext::read(carriers).filter(|_| self.trace_context)?;
        Some(HeaderContext {
            baggage: found.baggage.filter(|_| self.baggage),
            ..found
        })
    }
}

/// The rule for which traces are sampled, as `OTEL_TRACES_SAMPLER` names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Whether a trace with a parent is sampled if its parent is (`parentbased_…`).
    pub follows_parent: bool,
    /// The ratio of all other traces that is sampled.
    pub ratio: f64,
}

impl Default for Sampling {
    /// `parentbased_always_on`, as in OpenTelemetry.
    fn default() -> Self {
        Self {
            follows_parent: true,
            ratio: 1.0,
        }
    }
}

impl Sampling {
    /// Whether a span of the trace is sampled. `above` is whether its parent is sampled; `None`
    /// without a parent.
    pub(crate) fn samples(self, above: Option<bool>, trace_id: TraceId) -> bool {
        above
            .filter(|_| self.follows_parent)
            .unwrap_or_else(|| is_among(self.ratio, trace_id))
    }
}

/// Whether the trace is among this ratio of all traces. The SDK's rule decides, so every process
/// with this ratio samples the same traces.
fn is_among(ratio: f64, trace_id: TraceId) -> bool {
    let sampler = Sampler::TraceIdRatioBased(ratio);
    let result = sampler.should_sample(None, trace_id, "", &SpanKind::Internal, &[], &[]);
    result.decision == SamplingDecision::RecordAndSample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_follows_parents_only_if_parent_based() {
        let (low, high) = (TraceId::from(1), TraceId::from(u128::from(u64::MAX)));
        for (follows_parent, ratio, root, below_sampled, below_unsampled) in [
            (false, 1.0, [true, true], true, true),
            (false, 0.0, [false, false], false, false),
            (false, 0.5, [true, false], true, true),
            (true, 1.0, [true, true], true, false),
            (true, 0.0, [false, false], true, false),
            (true, 0.5, [true, false], true, false),
        ] {
            let sampling = Sampling {
                follows_parent,
                ratio,
            };
            assert_eq!(
                [low, high].map(|id| sampling.samples(None, id)),
                root,
                "{sampling:?}"
            );
            assert_eq!(
                sampling.samples(Some(true), low),
                below_sampled,
                "{sampling:?}"
            );
            assert_eq!(
                sampling.samples(Some(false), low),
                below_unsampled,
                "{sampling:?}"
            );
        }
    }
}
