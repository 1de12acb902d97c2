//! Starting telemetry with its exporters, and ending it.

use std::sync::Arc;
use std::time::Duration;

use fanlight_telemetry::{Builder, Settings, Telemetry};
use tokio::runtime::Handle;

use crate::push::Push;
use crate::settings::ExportSettings;
use crate::spans;

/// Why telemetry did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The exporter could not be made.
    #[error("cannot export telemetry: {reason}")]
    Exporter {
        /// What is wrong.
        reason: String,
    },
    /// A header for the collector is malformed.
    #[error("the header {name:?} for the collector has a name or value that HTTP does not allow")]
    Header {
        /// Its name.
        name: String,
    },
    /// A certificate or key for the connection to the collector cannot be used.
    #[error("cannot use {path} for TLS to the collector: {reason}")]
    Certificate {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Exporting needs a Tokio runtime.
    #[error("telemetry must be started within a Tokio runtime to be exported")]
    NoRuntime,
    /// Something else that telemetry needs is missing.
    #[error(transparent)]
    Telemetry(#[from] fanlight_telemetry::StartError),
}

impl StartError {
    #[cfg(not(feature = "grpc"))]
    pub(crate) fn no_grpc() -> Self {
        let reason = "this build has no OTLP over gRPC: use http/protobuf, or build with the feature otlp-grpc";
        Self::Exporter { reason: reason.to_owned() }
    }
}

/// Starts telemetry and the exporters that `export` names. The guard ends both.
///
/// # Errors
///
/// If an exporter, a writer or a thread cannot be started.
pub fn start(settings: Settings, export: &ExportSettings) -> Result<(Telemetry, Guard), StartError> {
    let records_spans = settings.tracing;
    let mut builder = Builder::new(settings);
    if let Some(target) = export.traces.as_ref().filter(|_| records_spans) {
        builder = builder.export_spans(spans::exporter(target, &runtime()?)?, export.batch);
    }
    let (telemetry, guard) = builder.start()?;
    let push = match (&export.metrics, telemetry.metrics(), telemetry.resource()) {
        (Some(target), Some(metrics), Some(resource)) => {
            let metrics = Arc::clone(metrics);
            Some(Push::start(metrics, resource.clone(), target, &runtime()?, export.metrics_every)?)
        }
        _ => None,
    };
    Ok((telemetry, Guard { telemetry: guard, push }))
}

fn runtime() -> Result<Handle, StartError> {
    Handle::try_current().map_err(|_| StartError::NoRuntime)
}

/// Ends telemetry and its exporters when the program ends.
#[derive(Debug)]
pub struct Guard {
    telemetry: fanlight_telemetry::Guard,
    push: Option<Push>,
}

impl Guard {
    /// Delivers queued spans and the last metrics, within about `bound`. Returns whether everything was delivered.
    /// Spans that end afterwards are lost.
    pub async fn shutdown(self, bound: Duration) -> bool {
        let metrics = async {
            match self.push {
                Some(push) => push.stop(bound).await,
                None => true,
            }
        };
        let (spans, metrics) = tokio::join!(self.telemetry.shutdown(bound), metrics);
        spans && metrics
    }
}
