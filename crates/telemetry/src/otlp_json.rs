//! Writes spans as OTLP-JSON (OpenTelemetry Protocol, JSON Protobuf Encoding).

use opentelemetry_proto::tonic::trace::v1::TracesData;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

/// Writes `{"resourceSpans":[…]}` with all of `spans`.
pub fn traces(resource: &Resource, spans: Vec<SpanData>) -> String {
    let resource_spans = group_spans_by_resource_and_scope(spans, &resource.into());
    // Every value of these types has a JSON form.
    serde_json::to_string(&TracesData { resource_spans }).unwrap_or_default()
}
