//! Sends the metrics to a collector every so often, and once more at the end.
//!
//! Must not know: what is counted.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

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

use super::{Metrics, otlp};
use crate::export::Client;
use crate::grpc::MetricsService;
use crate::settings::{OtlpProtocol, OtlpTarget};
use crate::telemetry::StartError;

/// The task. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Push {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Push {
    pub(crate) fn start(
        metrics: Arc<Metrics>,
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
                let request = otlp::request(&resource, since, &metrics.snapshot());
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

    /// Sends what there is and ends, at most within `bound`.
    pub(crate) async fn stop(mut self, bound: Duration) -> bool {
        if let Some(stop) = self.stop.take() {
            // A task that has ended already needs no telling.
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

/// The way to the collector.
enum Collector {
    Http { client: Client, endpoint: Url },
    Grpc(MetricsService),
}

impl Collector {
    fn new(target: &OtlpTarget, handle: &Handle) -> Result<Self, StartError> {
        Ok(match target.protocol {
            OtlpProtocol::HttpProtobuf => {
                Self::Http { client: Client::new(target, handle.clone())?, endpoint: target.endpoint.clone() }
            }
            OtlpProtocol::Grpc => Self::Grpc(MetricsService::new(target, handle)?),
        })
    }

    async fn send(&self, request: ExportMetricsServiceRequest) -> Result<(), String> {
        let (client, endpoint) = match self {
            Self::Http { client, endpoint } => (client, endpoint),
            Self::Grpc(service) => return service.export(request).await,
        };
        let post = http::Request::post(endpoint.as_str()).header(CONTENT_TYPE, "application/x-protobuf");
        let post = post.body(request.encode_to_vec().into()).map_err(|error| error.to_string())?;
        let response = client.send_bytes(post).await.map_err(|error| error.to_string())?;
        if response.status().is_success() { Ok(()) } else { Err(format!("HTTP status {}", response.status().as_u16())) }
    }
}
