//! What is recorded and where it goes.
//!
//! Must not know: the configuration file, and how the standard variables are called.

use std::path::PathBuf;
use std::time::Duration;

use opentelemetry::trace::{SpanKind, TraceId};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample as _};
use url::Url;

use crate::metrics::MetricLimits;
use crate::ring::RingLimits;

/// Everything there is to set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether spans are recorded at all. Metrics are counted in any case.
    pub tracing: bool,
    /// The ring of the last traces; none keeps none.
    pub ring: Option<RingLimits>,
    /// Print each finished trace to the standard error stream.
    pub console: bool,
    /// Append ended spans to a file.
    pub file: Option<FileSettings>,
    /// What goes to a collector.
    pub export: ExportSettings,
    /// How many names and series metrics have at most.
    pub metrics: MetricLimits,
    /// `service.version`.
    pub service_version: String,
}

#[cfg(any(test, feature = "test-support"))]
impl Default for Settings {
    /// The ring, and nothing else.
    fn default() -> Self {
        Self {
            tracing: true,
            ring: Some(RingLimits::default()),
            console: false,
            file: None,
            export: ExportSettings::default(),
            metrics: MetricLimits::default(),
            service_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl Settings {
    /// Whether spans go anywhere but to the ring.
    pub(crate) fn delivers_spans(&self) -> bool {
        self.console || self.file.is_some() || self.export.traces.is_some()
    }
}

/// `--trace-file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// The file.
    pub path: PathBuf,
    /// The size in bytes at which a new one is begun.
    pub max_bytes: u64,
    /// How many earlier ones are kept.
    pub kept: usize,
}

/// What goes to a collector, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportSettings {
    /// Where sampled spans go; none goes nowhere.
    pub traces: Option<OtlpTarget>,
    /// Where metrics go.
    pub metrics: Option<OtlpTarget>,
    /// How often metrics go.
    pub metrics_every: Duration,
    /// Which traces are sampled.
    pub sampling: Sampling,
    /// More resource attributes; `service.name` among them replaces `fanlight`.
    pub resource: Vec<(String, String)>,
    /// Most spans that wait to be exported.
    pub queue: usize,
    /// Most spans in one request.
    pub batch: usize,
    /// How long spans wait for others before they go.
    pub delay: Duration,
}

impl Default for ExportSettings {
    /// What the OpenTelemetry specification says where a variable is not set.
    fn default() -> Self {
        Self {
            traces: None,
            metrics: None,
            metrics_every: Duration::from_secs(60),
            sampling: Sampling::ParentBasedAlwaysOn,
            resource: Vec::new(),
            queue: 2048,
            batch: 512,
            delay: Duration::from_secs(5),
        }
    }
}

/// How OTLP travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// `http/protobuf`: one POST for each batch.
    #[default]
    HttpProtobuf,
    /// `grpc`: over HTTP/2.
    Grpc,
}

impl OtlpProtocol {
    /// Every one there is.
    pub const ALL: [Self; 2] = [Self::HttpProtobuf, Self::Grpc];

    /// As `OTEL_EXPORTER_OTLP_PROTOCOL` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HttpProtobuf => "http/protobuf",
            Self::Grpc => "grpc",
        }
    }
}

/// What a configuration says of the collector; it goes before the variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collector<'a> {
    /// Its base URL.
    pub endpoint: Option<&'a str>,
    /// How to speak to it.
    pub protocol: Option<OtlpProtocol>,
}

/// A collector's endpoint for one signal.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpTarget {
    /// The whole URL, e.g. `http://127.0.0.1:4318/v1/traces`; for gRPC e.g. `http://127.0.0.1:4317`, and a path is
    /// not used.
    pub endpoint: Url,
    /// How to speak to it.
    pub protocol: OtlpProtocol,
    /// Headers of each request. Secret: never shown.
    pub headers: Vec<(String, String)>,
    /// How long one export may take, retries included.
    pub timeout: Duration,
    /// What TLS is made with, where `endpoint` is `https`.
    pub tls: TlsFiles,
}

/// Files in PEM that TLS to a collector is made with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates that the collector's has to lead to; those of the system if there is none.
    pub certificate: Option<PathBuf>,
    /// Fanlight's own certificate, with its chain, for a collector that asks for one.
    pub client_certificate: Option<PathBuf>,
    /// The private key of that.
    pub client_key: Option<PathBuf>,
}

impl OtlpTarget {
    /// The endpoint without what could be secret.
    #[must_use]
    pub fn shown(&self) -> String {
        let origin = self.endpoint.origin().ascii_serialization();
        match self.protocol {
            OtlpProtocol::HttpProtobuf => format!("{origin}{}", self.endpoint.path()),
            OtlpProtocol::Grpc => origin,
        }
    }
}

impl std::fmt::Debug for OtlpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let mut shown = f.debug_struct("OtlpTarget");
        shown.field("protocol", &self.protocol.as_str()).field("endpoint", &self.shown());
        shown.field("headers", &headers).finish()
    }
}

/// Which traces are sampled, by the names of `OTEL_TRACES_SAMPLER`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// `always_on`
    AlwaysOn,
    /// `always_off`
    AlwaysOff,
    /// `traceidratio`
    Ratio(f64),
    /// `parentbased_always_on`
    ParentBasedAlwaysOn,
    /// `parentbased_always_off`
    ParentBasedAlwaysOff,
    /// `parentbased_traceidratio`
    ParentBasedRatio(f64),
}

impl Sampling {
    /// Whether a span of the trace is sampled; `above` says it of the span above it, if there is one.
    pub(crate) fn samples(self, above: Option<bool>, trace_id: TraceId) -> bool {
        match (self, above) {
            (Self::AlwaysOn, _) | (Self::ParentBasedAlwaysOn, None) => true,
            (Self::AlwaysOff, _) | (Self::ParentBasedAlwaysOff, None) => false,
            (Self::Ratio(ratio), _) | (Self::ParentBasedRatio(ratio), None) => is_among(ratio, trace_id),
            (Self::ParentBasedAlwaysOn | Self::ParentBasedAlwaysOff | Self::ParentBasedRatio(_), Some(above)) => above,
        }
    }
}

/// By the SDK's own rule, so that all who sample this trace by this ratio come to the same.
fn is_among(ratio: f64, trace_id: TraceId) -> bool {
    let sampler = Sampler::TraceIdRatioBased(ratio);
    let result = sampler.should_sample(None, trace_id, "", &SpanKind::Internal, &[], &[]);
    result.decision == SamplingDecision::RecordAndSample
}

/// A setting that cannot be followed. Names the variable; shows no value that could be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not a URL.
    #[error("{variable} is no http or https URL: set it to e.g. http://127.0.0.1:4318")]
    Endpoint {
        /// The variable or setting.
        variable: String,
    },
    /// A protocol this program does not speak.
    #[error(
        "{variable} is {value:?}, which Fanlight does not speak: use http/protobuf (port 4318 as a rule) or grpc (4317)"
    )]
    Protocol {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
    },
    /// Not a number that makes sense there.
    #[error("{variable} is {value:?}: {wanted}")]
    Value {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// What it can be.
        wanted: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_decide_only_where_they_are_asked() {
        let (low, high) = (TraceId::from(1), TraceId::from(u128::from(u64::MAX)));
        for (sampling, root, below_sampled, below_unsampled) in [
            (Sampling::AlwaysOn, [true, true], true, true),
            (Sampling::AlwaysOff, [false, false], false, false),
            (Sampling::Ratio(0.5), [true, false], true, true),
            (Sampling::ParentBasedAlwaysOn, [true, true], true, false),
            (Sampling::ParentBasedAlwaysOff, [false, false], true, false),
            (Sampling::ParentBasedRatio(0.5), [true, false], true, false),
        ] {
            assert_eq!([low, high].map(|id| sampling.samples(None, id)), root, "{sampling:?}");
            assert_eq!(sampling.samples(Some(true), low), below_sampled, "{sampling:?}");
            assert_eq!(sampling.samples(Some(false), low), below_unsampled, "{sampling:?}");
        }
    }
}
