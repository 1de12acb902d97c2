//! OTLP over gRPC: the channel of all signals, and the services for metrics and log records.

use http::HeaderMap;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::runtime::Handle;
use tonic::Code;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use crate::client::headers;
use crate::export::{Export, NotExported, refused_count};
use crate::{OtlpTarget, StartError, USER_AGENT, tls};

/// A channel that connects when it is first used, and reconnects. It runs on the runtime of
/// `handle`, so any thread can use it.
pub(crate) fn channel(target: &OtlpTarget, handle: &Handle) -> Result<Channel, StartError> {
    let url = &target.endpoint;
    // The message of the library could show the URL.
    let failed = |_| StartError::Exporter {
        reason: format!("{} cannot be used for gRPC", target.display()),
    };
    let mut endpoint = Endpoint::from_shared(target.display())
        .and_then(|endpoint| endpoint.user_agent(USER_AGENT))
        .map_err(failed)?
        .connect_timeout(target.timeout)
        .timeout(target.timeout);
    if url.scheme() == "https" {
        endpoint = endpoint
            .tls_config(tls::for_channel(&target.tls)?)
            .map_err(failed)?;
    }
    let _entered = handle.enter();
    Ok(endpoint.connect_lazy())
}

/// The headers of each request.
pub(crate) fn metadata(target: &OtlpTarget) -> Result<MetadataMap, StartError> {
    headers(target).map(MetadataMap::from_headers)
}

/// The collector's services for metrics and log records.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    channel: Channel,
    headers: HeaderMap,
}

impl Services {
    pub(crate) fn new(target: &OtlpTarget, handle: &Handle) -> Result<Self, StartError> {
        Ok(Self {
            channel: channel(target, handle)?,
            headers: headers(target)?,
        })
    }

    /// Sends a request. Returns how many of its log records the collector refused.
    pub(crate) async fn export(&self, export: Export) -> Result<u64, NotExported> {
        let answer = match export {
            Export::Metrics(request) => {
                let mut client = MetricsServiceClient::new(self.channel.clone());
                client.export(self.request(request)).await.map(|_| 0)
            }
            Export::Logs(request) => {
                let mut client = LogsServiceClient::new(self.channel.clone());
                client
                    .export(self.request(request))
                    .await
                    .map(|answer| refused_count(answer.get_ref()))
            }
        };
        // Only the code: the message could repeat a secret.
        answer.map_err(|status| NotExported {
            problem: format!("gRPC status {:?}", status.code()),
            is_temporary: is_temporary(status.code()),
        })
    }

    fn request<T>(&self, body: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(body);
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        request
    }
}

/// Whether a request may be sent again after this code (OTLP/gRPC, "Failures").
fn is_temporary(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}
