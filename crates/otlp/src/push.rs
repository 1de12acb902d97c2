//! Exports the metrics at an interval, and once more at the end.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_telemetry::metrics::Metrics;
use http::header::CONTENT_TYPE;
use opentelemetry_http::HttpClient as _;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_sdk::Resource;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use url::Url;

use crate::client::Client;
use crate::error::StartError;
#[cfg(feature = "grpc")]
use crate::grpc::MetricsService;
use crate::metrics;
use crate::settings::{OtlpProtocol, OtlpTarget};

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
        let endpoint = target.shown();
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
                let result = collector.send(request).await;
                match result {
                    Err(problem) if !std::mem::replace(&mut failing, true) => {
                        tracing::warn!(endpoint, %problem, "cannot export metrics; trying again");
                    }
                    Err(_) => {}
                    Ok(()) => failing = false,
                }
                if last {
                    return;
                }
            }
        });
        Ok(Self { stop: Some(stop), task })
    }

    /// Exports once more and ends, within `bound`. Returns whether that was in time.
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

/// A client of the collector.
enum Collector {
    Http {
        client: Client,
        endpoint: Url,
    },
    #[cfg(feature = "grpc")]
    Grpc(MetricsService),
}

impl Collector {
    fn new(target: &OtlpTarget, handle: &Handle) -> Result<Self, StartError> {
        Ok(match target.protocol {
            OtlpProtocol::HttpProtobuf => {
                Self::Http { client: Client::new(target, handle.clone())?, endpoint: target.endpoint.clone() }
            }
            #[cfg(feature = "grpc")]
            OtlpProtocol::Grpc => Self::Grpc(MetricsService::new(target, handle)?),
            #[cfg(not(feature = "grpc"))]
            OtlpProtocol::Grpc => return Err(StartError::no_grpc()),
        })
    }

    async fn send(&self, request: ExportMetricsServiceRequest) -> Result<(), String> {
        let (client, endpoint) = match self {
            Self::Http { client, endpoint } => (client, endpoint),
            #[cfg(feature = "grpc")]
            Self::Grpc(service) => return service.export(request).await,
        };
        let post = http::Request::post(endpoint.as_str()).header(CONTENT_TYPE, "application/x-protobuf");
        let post = post.body(request.encode_to_vec().into()).map_err(|error| error.to_string())?;
        let response = client.send_bytes(post).await.map_err(|error| error.to_string())?;
        if response.status().is_success() { Ok(()) } else { Err(format!("HTTP status {}", response.status().as_u16())) }
    }
}
