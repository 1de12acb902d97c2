//! Requests to a collector with metrics or log records, which this crate encodes itself.

use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1;
use opentelemetry_sdk::Resource;

/// One request to a collector.
#[derive(Clone, Debug)]
pub(crate) enum Export {
    /// A request with metrics.
    Metrics(ExportMetricsServiceRequest),
    /// A request with log records.
    Logs(ExportLogsServiceRequest),
}

/// A collector did not take a request.
#[derive(Debug)]
pub(crate) struct NotExported {
    /// The problem, without anything that could be secret.
    pub(crate) problem: String,
    /// Whether the collector may accept the same request later (OTLP 1.x, "Failures").
    pub(crate) is_temporary: bool,
}

/// How many log records the collector refused, by its answer.
pub(crate) fn refused_count(answer: &ExportLogsServiceResponse) -> u64 {
    answer
        .partial_success
        .as_ref()
        .and_then(|some| some.rejected_log_records.try_into().ok())
        .unwrap_or_default()
}

/// The resource that exports, for Protobuf.
pub(crate) fn resource(resource: &Resource) -> v1::Resource {
    let attributes = resource
        .iter()
        .map(|(key, value)| key_value(key.as_str(), string(value.to_string())))
        .collect();
    v1::Resource {
        attributes,
        ..v1::Resource::default()
    }
}

/// The scope of all exports: the name and version of this program.
pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "fanlight".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

pub(crate) fn key_value(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

pub(crate) fn string(text: impl Into<String>) -> any_value::Value {
    any_value::Value::StringValue(text.into())
}
