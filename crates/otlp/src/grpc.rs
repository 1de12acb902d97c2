//! OTLP over gRPC: the channel under both signals, and the service for metrics.

use http::HeaderMap;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::runtime::Handle;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use crate::client::headers;
use crate::error::StartError;
use crate::settings::OtlpTarget;
use crate::{USER_AGENT, tls};

/// A channel that connects lazily and reconnects. It runs on the runtime of `handle`, so any thread can use it.
pub(crate) fn channel(target: &OtlpTarget, handle: &Handle) -> Result<Channel, StartError> {
    let url = &target.endpoint;
    if !url.username().is_empty() || url.password().is_some() {
        let reason = "a URL for gRPC has no user info: put the credentials into OTEL_EXPORTER_OTLP_HEADERS";
        return Err(StartError::Exporter { reason: reason.to_owned() });
    }
    // The library's message could show the URL.
    let failed = |_| StartError::Exporter { reason: format!("{} cannot be used for gRPC", target.shown()) };
    let mut endpoint = Endpoint::from_shared(target.shown())
        .and_then(|endpoint| endpoint.user_agent(USER_AGENT))
        .map_err(failed)?
        .connect_timeout(target.timeout)
        .timeout(target.timeout);
    if url.scheme() == "https" {
        endpoint = endpoint.tls_config(tls::for_channel(&target.tls)?).map_err(failed)?;
    }
    let _entered = handle.enter();
    Ok(endpoint.connect_lazy())
}

/// The headers of each request.
pub(crate) fn metadata(target: &OtlpTarget) -> Result<MetadataMap, StartError> {
    headers(target).map(MetadataMap::from_headers)
}

/// The collector's service for metrics.
#[derive(Clone, Debug)]
pub(crate) struct MetricsService {
    client: MetricsServiceClient<Channel>,
    headers: HeaderMap,
}

impl MetricsService {
    pub(crate) fn new(target: &OtlpTarget, handle: &Handle) -> Result<Self, StartError> {
        let client = MetricsServiceClient::new(channel(target, handle)?);
        Ok(Self { client, headers: headers(target)? })
    }

    /// Sends `request`. The error gives the code without the message, which could repeat a secret.
    pub(crate) async fn export(&self, request: ExportMetricsServiceRequest) -> Result<(), String> {
        let mut request = tonic::Request::new(request);
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        let mut client = self.client.clone();
        let answer = client.export(request).await;
        answer.map(drop).map_err(|status| format!("gRPC status {:?}", status.code()))
    }
}
