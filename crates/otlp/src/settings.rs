//! Where spans and metrics are exported to.

use std::path::PathBuf;
use std::time::Duration;

use fanlight_telemetry::BatchSettings;
use url::Url;

/// Settings of the export.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportSettings {
    /// Where sampled spans go; `None` exports none.
    pub traces: Option<OtlpTarget>,
    /// Where metrics go; `None` exports none.
    pub metrics: Option<OtlpTarget>,
    /// The interval between exports of metrics.
    pub metrics_every: Duration,
    /// How spans are queued and batched.
    pub batch: BatchSettings,
}

impl Default for ExportSettings {
    /// Exports nothing.
    fn default() -> Self {
        Self {
            traces: None,
            metrics: None,
            metrics_every: Duration::from_secs(60),
            batch: BatchSettings::default(),
        }
    }
}

fanlight_protocol::named! {
    /// The transport of OTLP.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OtlpProtocol {
        /// `http/protobuf`: one POST request for each batch.
        #[default]
        HttpProtobuf = "http/protobuf",
        /// `grpc`: over HTTP/2.
        Grpc = "grpc",
    }
}

/// The collector in the configuration, which overrides the environment variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collector<'a> {
    /// The base URL of the collector.
    pub endpoint: Option<&'a str>,
}

/// A collector's endpoint for one signal.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpTarget {
    /// The whole URL without user information, such as `http://127.0.0.1:4318/v1/traces`. For gRPC it
    /// has no path, such as `http://127.0.0.1:4317`.
    pub endpoint: Url,
    /// The protocol that the collector speaks.
    pub protocol: OtlpProtocol,
    /// Headers of each request. Secret: never logged.
    pub headers: Vec<(String, String)>,
    /// How long one export may take, retries included.
    pub timeout: Duration,
    /// Files for TLS, if `endpoint` is `https`.
    pub tls: TlsFiles,
}

/// Files in PEM for TLS to a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The trusted root certificates. `None` trusts the root certificates of the system.
    pub certificate: Option<PathBuf>,
    /// Fanlight's own certificate with its chain, for a collector that asks for a client
    /// certificate.
    pub client_certificate: Option<PathBuf>,
    /// The private key of `client_certificate`.
    pub client_key: Option<PathBuf>,
}

impl OtlpTarget {
    /// The endpoint without its query, which could be secret.
    pub fn display(&self) -> String {
        let origin = self.endpoint.origin().ascii_serialization();
        match self.protocol {
            OtlpProtocol::HttpProtobuf => format!("{origin}{}", self.endpoint.path()),
            OtlpProtocol::Grpc => origin,
        }
    }
}

impl std::fmt::Debug for OtlpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let mut shown = f.debug_struct("OtlpTarget");
        shown
            .field("protocol", &self.protocol.as_str())
            .field("endpoint", &self.display());
        shown.field("headers", &headers).finish()
    }
}

/// An invalid setting. The message names the variable and repeats no value that could be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The value is not a URL.
    #[error("{variable} is not an http or https URL: set it for example to http://127.0.0.1:4318")]
    Endpoint {
        /// The name of the variable or setting.
        variable: String,
    },
    /// Fanlight does not support this protocol.
    #[error(
        "{variable} is {value:?}, which Fanlight does not support: use http/protobuf (usually port 4318) or grpc (4317)"
    )]
    Protocol {
        /// The name of the variable.
        variable: String,
        /// The value of the variable.
        value: String,
    },
    /// The value is out of range.
    #[error("{variable} is {value:?}: {wanted}")]
    Value {
        /// The name of the variable.
        variable: String,
        /// The value of the variable.
        value: String,
        /// A description of the valid values.
        wanted: &'static str,
    },
}
