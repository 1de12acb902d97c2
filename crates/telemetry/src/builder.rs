//! Starts telemetry: the registry of metrics, and the pipeline for ended spans.

use std::io;
use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SpanExporter};

use crate::console::Console;
use crate::content_rules::ContentRules;
use crate::file::TraceFile;
use crate::pipeline::{BatchExport, Pipeline, Recorder};
use crate::running::Running;
use crate::worker::{Worker, Write};
use crate::{BatchSettings, Guard, Metrics, Ring, RingLimits, Settings, Telemetry};

/// Spans that wait for the console, and for the file; further ones are dropped and counted.
const SPAN_QUEUE: usize = 4096;

/// The limit of the bytes of content that one call keeps, if there is no ring.
const MOST_CONTENT: usize = 1 << 20;

/// Why telemetry did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The trace file could not be opened.
    #[error("cannot write traces to {path}: {source}")]
    File {
        /// The path of the file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for telemetry: {0}")]
    Thread(#[source] io::Error),
}

/// Telemetry before its start.
#[derive(Debug)]
pub struct Builder {
    settings: Settings,
    resource: Resource,
    metrics: Arc<Metrics>,
    export: Option<BatchExport>,
}

impl Builder {
    /// Prepares telemetry with these settings and without an exporter.
    pub fn new(settings: Settings) -> Self {
        let resource = resource(&settings);
        let metrics = Metrics::new(settings.metrics)
            .with_dropped_log_lines(Arc::clone(&settings.dropped_log_lines));
        let metrics = Arc::new(metrics);
        Self {
            settings,
            resource,
            metrics,
            export: None,
        }
    }

    /// Exports sampled spans through `exporter`, in batches.
    #[must_use]
    pub fn export_spans(self, exporter: impl SpanExporter + 'static, batch: BatchSettings) -> Self {
        let export = BatchExport::new(exporter, batch, &self.resource, Arc::clone(&self.metrics));
        Self {
            export: Some(export),
            ..self
        }
    }

    /// Starts telemetry. The guard ends it.
    ///
    /// # Errors
    ///
    /// If the trace file cannot be opened or a thread cannot be started.
    pub fn start(self) -> Result<(Telemetry, Guard), StartError> {
        let Self {
            settings,
            resource,
            metrics,
            export,
        } = self;
        let is_delivered =
            settings.console.is_some() || settings.file.is_some() || export.is_some();
        let (ring, writers) = if settings.tracing {
            (
                settings.ring.map(|limits| Arc::new(Ring::new(limits))),
                writers(&settings, &resource, &metrics)?,
            )
        } else {
            (None, Vec::new())
        };
        let pipeline = Pipeline::new(ring.clone(), writers, export.filter(|_| settings.tracing));
        // Spans that nobody would get are not recorded.
        let recorder = (!pipeline.is_empty()).then(|| {
            let (sampling, propagators) = (settings.sampling, settings.propagators);
            let most = settings.ring.map_or(MOST_CONTENT, RingLimits::trace_bytes);
            let content = ContentRules::new(settings.content, most);
            Arc::new(Recorder {
                pipeline,
                sampling,
                propagators,
                running: Running::default(),
                content,
                is_delivered,
            })
        });
        let guard = Guard::new(recorder.clone());
        Ok((
            Telemetry::new(recorder, ring, metrics, resource, settings.propagators),
            guard,
        ))
    }
}

impl Telemetry {
    /// Starts telemetry without an exporter. The guard ends it.
    ///
    /// # Errors
    ///
    /// If the trace file cannot be opened or a thread cannot be started.
    pub fn start(settings: Settings) -> Result<(Self, Guard), StartError> {
        Builder::new(settings).start()
    }
}

fn writers(
    settings: &Settings,
    resource: &Resource,
    metrics: &Arc<Metrics>,
) -> Result<Vec<Worker>, StartError> {
    let mut writers = Vec::new();
    if let Some(render) = settings.console {
        let console = Console::new(io::stderr(), render);
        writers.push(start("trace-console", console, metrics)?);
    }
    if let Some(file) = &settings.file {
        let open = TraceFile::open(file.clone(), resource.clone());
        let open = open.map_err(|source| StartError::File {
            path: file.path.display().to_string(),
            source,
        })?;
        writers.push(start("trace-file", open, metrics)?);
    }
    Ok(writers)
}

fn start(name: &str, writer: impl Write, metrics: &Arc<Metrics>) -> Result<Worker, StartError> {
    Worker::start(name, writer, SPAN_QUEUE, Arc::clone(metrics)).map_err(StartError::Thread)
}

fn resource(settings: &Settings) -> Resource {
    let given = settings
        .resource
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    Resource::builder_empty()
        .with_service_name("fanlight")
        .with_attribute(KeyValue::new(
            "service.version",
            settings.service_version.clone(),
        ))
        // Unique for each process, so that a collector tells replicas apart.
        .with_attribute(KeyValue::new(
            "service.instance.id",
            RandomIdGenerator::default().new_trace_id().to_string(),
        ))
        .with_attributes(given)
        .build()
}
