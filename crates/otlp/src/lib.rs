//! Exports spans and metrics to a collector over OTLP: HTTP/protobuf, and gRPC with the feature `grpc`.
//!
//! [`start`] starts [`Telemetry`](fanlight_telemetry::Telemetry) together with the exporters that [`ExportSettings`] name. Spans pass through the SDK's
//! batch processor; metrics are read from the registry at an interval.
//!
//! A crate of its own, so that what records telemetry links no HTTP client.

mod client;
mod env;
mod error;
#[cfg(feature = "grpc")]
mod grpc;
mod metrics;
mod push;
mod settings;
mod spans;
mod start;
mod tls;

pub use env::{propagators_from_env, resource_from_env, sampling_from_env};
pub use error::StartError;
pub use settings::{Collector, ExportSettings, OtlpProtocol, OtlpTarget, SettingsError, TlsFiles};
pub use start::{Guard, start};

/// How this program names itself to collectors.
const USER_AGENT: &str = concat!("fanlight/", env!("CARGO_PKG_VERSION"));
