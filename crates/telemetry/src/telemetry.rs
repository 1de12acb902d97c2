//! The handle that the request path has, and what stands behind it from start to shutdown.
//!
//! Must not know: where its settings come from.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use tokio::runtime::Handle;

use crate::backend::{BackendInfo, BackendTelemetry};
use crate::console::Console;
use crate::export;
use crate::file::TraceFile;
use crate::inbound::HeaderContext;
use crate::message::Arrival;
use crate::metrics::{Metrics, Push};
use crate::parent::Parent;
use crate::pipeline::Pipeline;
use crate::recorder::Recorder;
use crate::ring::Ring;
use crate::settings::Settings;
use crate::span::ServerSpan;
use crate::worker::Worker;

/// What the request path has. Cheap to clone; one that is off records nothing and allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Telemetry(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    recorder: Option<Recorder>,
    ring: Option<Arc<Ring>>,
    metrics: Arc<Metrics>,
    resource: Resource,
}

/// Why telemetry did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The exporter could not be made.
    #[error("cannot export telemetry: {reason}")]
    Exporter {
        /// What is wrong.
        reason: String,
    },
    /// A header for the collector is none.
    #[error("the header {name:?} for the collector has a name or value that HTTP does not allow")]
    Header {
        /// Its name.
        name: String,
    },
    /// A certificate or key for the way to the collector cannot be used.
    #[error("cannot use {path} for TLS to the collector: {reason}")]
    Certificate {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The trace file could not be opened.
    #[error("cannot write traces to {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for telemetry: {0}")]
    Thread(#[source] io::Error),
    /// Exporting needs a Tokio runtime.
    #[error("telemetry must be started within a Tokio runtime to be exported")]
    NoRuntime,
}

impl Telemetry {
    /// One that is off.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Starts what `settings` ask for. The guard ends it.
    pub fn start(settings: Settings) -> Result<(Self, Guard), StartError> {
        let resource = resource(&settings);
        let metrics = Arc::new(Metrics::new(settings.metrics));
        let ring = settings.ring.filter(|_| settings.tracing).map(|limits| Arc::new(Ring::new(limits)));
        let pipeline = pipeline(&settings, &resource, ring.clone(), &metrics)?;
        // Where nothing is done with spans they would only cost.
        let recorder = (!pipeline.is_empty())
            .then(|| Recorder::new(pipeline, settings.export.sampling, settings.delivers_spans()));
        let push = match &settings.export.metrics {
            Some(target) => {
                let every = settings.export.metrics_every;
                Some(Push::start(Arc::clone(&metrics), resource.clone(), target, &runtime()?, every)?)
            }
            None => None,
        };
        let guard = Guard { recorder: recorder.clone(), push };
        Ok((Self(Some(Arc::new(Shared { recorder, ring, metrics, resource }))), guard))
    }

    /// A message from a client arrived.
    #[must_use]
    pub fn server(&self, message: &Arrival<'_>) -> ServerSpan {
        let registry = self.metrics().cloned();
        let parent = match self.0.as_ref().and_then(|shared| shared.recorder.as_ref()) {
            Some(recorder) => Parent::live(ServerSpan::begin(recorder, message, None, None)),
            None => passing(message),
        };
        ServerSpan::new(parent, registry, None, message)
    }

    /// What is done for nobody in particular: connecting at the start, refreshing a catalogue. Its
    /// spans begin traces of their own.
    #[must_use]
    pub fn root(&self) -> Parent {
        let recorder = self.0.as_ref().and_then(|shared| shared.recorder.clone());
        recorder.map_or_else(Parent::default, Parent::root)
    }

    /// What spans and counters of one backend need; made once per backend.
    #[must_use]
    pub fn backend(&self, info: BackendInfo) -> BackendTelemetry {
        BackendTelemetry::new(info, self.0.as_ref().map(|shared| Arc::clone(&shared.metrics)))
    }

    /// The last traces, if they are kept.
    #[must_use]
    pub fn ring(&self) -> Option<&Arc<Ring>> {
        self.0.as_ref()?.ring.as_ref()
    }

    /// The counters, unless all is off.
    #[must_use]
    pub fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.0.as_ref().map(|shared| &shared.metrics)
    }

    /// What the resource is that all spans and metrics are of; needed to write traces as OTLP-JSON.
    #[must_use]
    pub fn resource(&self) -> Option<&Resource> {
        self.0.as_ref().map(|shared| &shared.resource)
    }

    /// The metrics in the Prometheus text format; empty if all is off.
    #[must_use]
    pub fn prometheus(&self) -> String {
        self.0.as_ref().map(|shared| shared.metrics.prometheus(&shared.resource)).unwrap_or_default()
    }
}

fn passing(message: &Arrival<'_>) -> Parent {
    HeaderContext::read(&message.carriers).map_or_else(Parent::default, Parent::passing)
}

/// What ends when the program ends: the batch that waits, the writers, the last metrics.
#[derive(Debug)]
pub struct Guard {
    recorder: Option<Recorder>,
    push: Option<Push>,
}

impl Guard {
    /// Delivers what waits and ends, at most within about `bound`. Says whether all was delivered.
    /// Spans that end afterwards are lost.
    pub async fn shutdown(self, bound: Duration) -> bool {
        let recorder = self.recorder;
        // The SDK blocks, and its exporter needs this runtime meanwhile.
        let spans = tokio::task::spawn_blocking(move || {
            recorder.is_none_or(|recorder| match recorder.pipeline().shutdown(bound) {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(%error, "not all traces could be delivered");
                    false
                }
            })
        });
        let metrics = async {
            match self.push {
                Some(push) => push.stop(bound).await,
                None => true,
            }
        };
        let (spans, metrics) = tokio::join!(tokio::time::timeout(bound + Duration::from_millis(500), spans), metrics);
        matches!(spans, Ok(Ok(true))) && metrics
    }
}

fn pipeline(
    settings: &Settings,
    resource: &Resource,
    ring: Option<Arc<Ring>>,
    metrics: &Arc<Metrics>,
) -> Result<Pipeline, StartError> {
    if !settings.tracing {
        return Ok(Pipeline::new(None, Vec::new(), None));
    }
    let writers = writers(settings, resource, metrics)?;
    let exporter = match &settings.export.traces {
        Some(target) => Some(export::gate(&settings.export, target, resource, &runtime()?, metrics)?),
        None => None,
    };
    Ok(Pipeline::new(ring, writers, exporter))
}

fn writers(settings: &Settings, resource: &Resource, metrics: &Arc<Metrics>) -> Result<Vec<Worker>, StartError> {
    let mut writers = Vec::new();
    if settings.console {
        let console = Console::new(io::stderr());
        writers.push(Worker::start("trace-console", console, Arc::clone(metrics)).map_err(StartError::Thread)?);
    }
    if let Some(file) = &settings.file {
        let open = TraceFile::open(file.clone(), resource.clone());
        let open = open.map_err(|source| StartError::File { path: file.path.display().to_string(), source })?;
        writers.push(Worker::start("trace-file", open, Arc::clone(metrics)).map_err(StartError::Thread)?);
    }
    Ok(writers)
}

fn resource(settings: &Settings) -> Resource {
    let given = settings.export.resource.iter();
    let given = given.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    Resource::builder_empty()
        .with_service_name("fanlight")
        .with_attribute(KeyValue::new("service.version", settings.service_version.clone()))
        .with_attributes(given)
        .build()
}

fn runtime() -> Result<Handle, StartError> {
    Handle::try_current().map_err(|_| StartError::NoRuntime)
}
