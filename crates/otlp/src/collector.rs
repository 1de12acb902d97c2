//! The client that sends metrics and log records to a collector.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use opentelemetry_http::HttpClient as _;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message as _;
use tokio::runtime::Handle;

use crate::client::Client;
use crate::export::{Export, NotExported, refused_count};
#[cfg(feature = "grpc")]
use crate::grpc::Services;
use crate::{OtlpProtocol, OtlpTarget, StartError};

/// A client that sends metrics and log records to a collector.
pub(crate) enum Collector {
    Http(Client),
    #[cfg(feature = "grpc")]
    Grpc(Services),
}

impl Collector {
    pub(crate) fn new(target: &OtlpTarget, handle: &Handle) -> Result<Self, StartError> {
        Ok(match target.protocol {
            OtlpProtocol::HttpProtobuf => Self::Http(Client::new(target, handle.clone())?),
            #[cfg(feature = "grpc")]
            OtlpProtocol::Grpc => Self::Grpc(Services::new(target, handle)?),
            #[cfg(not(feature = "grpc"))]
            OtlpProtocol::Grpc => return Err(StartError::no_grpc()),
        })
    }

    /// Sends a request. Returns how many of its log records the collector refused.
    pub(crate) async fn send(&self, export: &Export) -> Result<u64, NotExported> {
        let client = match self {
            Self::Http(client) => client,
            #[cfg(feature = "grpc")]
            Self::Grpc(services) => return services.export(export.clone()).await,
        };
        let failed = |problem, is_temporary| NotExported {
            problem,
            is_temporary,
        };
        let body = match export {
            Export::Metrics(request) => request.encode_to_vec(),
            Export::Logs(request) => request.encode_to_vec(),
        };
        let post = http::Request::post("http://collector.invalid")
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(body.into())
            .map_err(|error| failed(error.to_string(), false))?;
        let response = client
            .send_bytes(post)
            .await
            .map_err(|error| failed(error.to_string(), true))?;
        let status = response.status();
        if !status.is_success() {
            return Err(failed(
                format!("HTTP status {}", status.as_u16()),
                is_temporary(status),
            ));
        }
        // An answer that cannot be decoded accepts the whole request.
        Ok(ExportLogsServiceResponse::decode(response.into_body())
            .as_ref()
            .map(refused_count)
            .unwrap_or_default())
    }
}

/// Whether a request may be sent again after this status (OTLP/HTTP, "Retryable Response Codes").
fn is_temporary(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
