//! Starts telemetry with its exporters, and ends it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_telemetry::{Builder, Metrics, Settings, Telemetry};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::client::Client;
use crate::collector::Collector;
use crate::export::Export;
use crate::{ExportSettings, OtlpProtocol, OtlpTarget, StartError, metrics};

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
        builder = builder.export_spans(exporter(target, &runtime()?)?, export.batch);
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

/// The exporting task, aborted on drop.
#[derive(Debug)]
pub(crate) struct Push {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Push {
    pub(crate) fn start(
        registry: Arc<Metrics>,
        resource: Resource,
        target: &OtlpTarget,
        handle: &Handle,
        every: Duration,
    ) -> Result<Self, StartError> {
        let collector = Collector::new(target, handle)?;
        let endpoint = target.display();
        let (stop, mut stopped) = oneshot::channel();
        let task = handle.spawn(async move {
            let since = SystemTime::now();
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            let mut failing = false;
            loop {
                let last = tokio::select! {
                    _ = ticks.tick() => false,
                    _ = &mut stopped => true,
                };
                let request = metrics::request(&resource, since, &registry.snapshot());
                match collector.send(&Export::Metrics(request)).await {
                    Err(failed) if !std::mem::replace(&mut failing, true) => {
                        tracing::warn!(
                            endpoint,
                            problem = failed.problem,
                            "cannot export metrics; trying again"
                        );
                    }
                    Err(_) => {}
                    Ok(_) => failing = false,
                }
                if last {
                    return;
                }
            }
        });
        Ok(Self {
            stop: Some(stop),
            task,
        })
    }

    /// Exports once more and ends, within `bound`. Returns whether this succeeded in time.
    pub(crate) async fn stop(mut self, bound: Duration) -> bool {
        if let Some(stop) = self.stop.take() {
            // The task may have ended already.
            let _ = stop.send(());
        }
        tokio::time::timeout(bound, &mut self.task).await.is_ok()
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Exports spans to `target`, using the runtime of `handle`.
pub(crate) fn exporter(target: &OtlpTarget, handle: &Handle) -> Result<SpanExporter, StartError> {
    let exporter = match target.protocol {
        OtlpProtocol::HttpProtobuf => SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(target, handle.clone())?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(target.display())
            .with_timeout(target.timeout)
            .build(),
        #[cfg(feature = "grpc")]
        OtlpProtocol::Grpc => {
            use opentelemetry_otlp::WithTonicConfig as _;
            SpanExporter::builder()
                .with_tonic()
                .with_channel(crate::grpc::channel(target, handle)?)
                .with_metadata(crate::grpc::metadata(target)?)
                .with_timeout(target.timeout)
                .build()
        }
        #[cfg(not(feature = "grpc"))]
        OtlpProtocol::Grpc => return Err(StartError::no_grpc()),
    };
    exporter.map_err(|error| StartError::Exporter {
        reason: error.to_string(),
    })
}
