//! Why telemetry did not start.

/// Why telemetry did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The exporter could not be created.
    #[error("cannot export telemetry: {reason}")]
    Exporter {
        /// The problem.
        reason: String,
    },
    /// A header for the collector is malformed.
    #[error("the header {name:?} for the collector has a name or value that HTTP does not allow")]
    Header {
        /// The name.
        name: String,
    },
    /// A certificate or key for the connection to the collector cannot be used.
    #[error("cannot use {path} for TLS to the collector: {reason}")]
    Certificate {
        /// The file.
        path: String,
        /// The problem.
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
        let reason = "this build has no OTLP over gRPC: set the protocol to http/protobuf (usually port 4318), or build with `--features otlp-grpc`";
        Self::Exporter {
            reason: reason.to_owned(),
        }
    }
}
