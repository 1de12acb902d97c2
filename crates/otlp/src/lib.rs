//! Exports spans, metrics and log records to a collector over OTLP: over HTTP with Protobuf, and
//! with the feature `grpc` also over gRPC.
//!
//! [`start`] starts [`Telemetry`](fanlight_telemetry::Telemetry) together with the exporters that
//! [`ExportSettings`] describes. Spans pass through the batch processor of the SDK. Metrics are
//! read from the registry at an interval. [`LogExport`] exports texts, such as lines of the audit
//! log.
//!
//! This is a crate of its own, so that code that only records telemetry links no HTTP client.

mod client;
mod collector;
mod env;
mod error;
mod export;
#[cfg(feature = "grpc")]
mod grpc;
mod log_export;
mod logs;
mod metrics;
mod settings;
mod start;
mod tls;

pub use env::{propagators_from_env, resource_from_env, sampling_from_env};
pub use error::StartError;
pub use log_export::LogExport;
pub use settings::{Collector, ExportSettings, OtlpProtocol, OtlpTarget, SettingsError, TlsFiles};
pub use start::{Guard, start};

/// The name of this program for collectors.
const USER_AGENT: &str = concat!("fanlight/", env!("CARGO_PKG_VERSION"));
