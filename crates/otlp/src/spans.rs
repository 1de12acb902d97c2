//! The OTLP exporter of spans.
//!
//! This module chooses protocol and client. The exporter would choose by its features, and any
//! crate of the build can switch those on.

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use tokio::runtime::Handle;

use crate::client::Client;
use crate::error::StartError;
use crate::settings::{OtlpProtocol, OtlpTarget};

/// Exports spans to `target`, using the runtime of `handle`.
pub(crate) fn exporter(target: &OtlpTarget, handle: &Handle) -> Result<SpanExporter, StartError> {
    let exporter = match target.protocol {
        OtlpProtocol::HttpProtobuf => SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(target, handle.clone())?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(target.endpoint.as_str())
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
