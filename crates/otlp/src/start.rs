//! Starts telemetry with its exporters, and ends it.

use std::sync::Arc;
use std::time::Duration;

use fanlight_telemetry::{Builder, Settings, Telemetry};
use tokio::runtime::Handle;

use crate::error::StartError;
use crate::push::Push;
use crate::settings::ExportSettings;
use crate::spans;

/// Starts telemetry and the exporters in `export`. The guard ends both.
///
/// # Errors
///
/// If an exporter, a writer or a thread cannot be started.
pub fn start(
    settings: Settings,
    export: &ExportSettings,
) -> Result<(Telemetry, Guard), StartError> {
    let records_spans = settings.tracing;
    let mut builder = Builder::new(settings);
    if let Some(target) = export.traces.as_ref().filter(|_| records_spans) {
        builder = builder.export_spans(spans::exporter(target, &runtime()?)?, export.batch);
    }
    let (telemetry, guard) = builder.start()?;
    let push = match (&export.metrics, telemetry.metrics(), telemetry.resource()) {
        (Some(target), Some(metrics), Some(resource)) => {
            let metrics = Arc::clone(metrics);
            Some(Push::start(
                metrics,
                resource.clone(),
                target,
                &runtime()?,
                export.metrics_every,
            )?)
        }
        _ => None,
    };
    Ok((
        telemetry,
        Guard {
            telemetry: guard,
            push,
        },
    ))
}

/// The runtime of the exporters.
pub(crate) fn runtime() -> Result<Handle, StartError> {
    Handle::try_current().map_err(|_| StartError::NoRuntime)
}

/// Ends telemetry and its exporters when the program ends.
#[derive(Debug)]
pub struct Guard {
    telemetry: fanlight_telemetry::Guard,
    push: Option<Push>,
}

impl Guard {
    /// Delivers queued spans and the last metrics, within about `bound`. Returns whether everything
    /// was delivered. Spans that end afterwards are lost.
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
