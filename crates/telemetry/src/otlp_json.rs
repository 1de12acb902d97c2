//! Writes spans as OTLP-JSON (OpenTelemetry Protocol, JSON Protobuf Encoding): ids in hexadecimal,
//! 64-bit integers as strings, enums as numbers.
//!
//! This module does not use opentelemetry-proto. That crate links prost and serde, and its JSON
//! contains every empty field.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fanlight_protocol::json::quote;
use opentelemetry::trace::{Event, Link, SpanContext, SpanId, SpanKind, Status};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

/// Writes `{"resourceSpans":[…]}` with all of `spans`.
#[must_use]
pub fn traces(resource: &Resource, spans: &[Arc<SpanData>]) -> String {
    let mut out = String::with_capacity(512 + spans.len() * 1024);
    out.push_str(r#"{"resourceSpans":["#);
    resource_spans(&mut out, resource, spans);
    out.push_str("]}");
    out
}

/// Writes one `ResourceSpans` with one scope.
fn resource_spans(out: &mut String, resource: &Resource, spans: &[Arc<SpanData>]) {
    out.push_str(r#"{"resource":{"attributes":["#);
    let attributes = resource.iter().map(|(key, value)| (key.as_str(), value));
    list(out, attributes, |out, (key, value)| {
        key_value(out, key, value);
    });
    out.push_str(r#"]},"scopeSpans":[{"scope":{"name":"#);
    let scope = spans.first().map(|span| &span.instrumentation_scope);
    string(out, scope.map_or("fanlight", |scope| scope.name()));
    if let Some(version) = scope.and_then(|scope| scope.version()) {
        out.push_str(r#","version":"#);
        string(out, version);
    }
    out.push_str(r#"},"spans":["#);
    list(out, spans, |out, one| span(out, one));
    out.push_str("]}]}");
}

fn span(out: &mut String, span: &SpanData) {
    out.push('{');
    ids(out, &span.span_context);
    if span.parent_span_id != SpanId::INVALID {
        append(
            out,
            format_args!(r#","parentSpanId":"{}""#, span.parent_span_id),
        );
    }
    append(
        out,
        format_args!(
            r#","flags":{},"name":"#,
            flags(&span.span_context, span.parent_span_is_remote)
        ),
    );
    string(out, &span.name);
    append(
        out,
        format_args!(
            r#","kind":{},"startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":["#,
            kind(&span.span_kind),
            nanos(span.start_time),
            nanos(span.end_time)
        ),
    );
    attributes(out, &span.attributes);
    append(
        out,
        format_args!(
            r#"],"droppedAttributesCount":{},"events":["#,
            span.dropped_attributes_count
        ),
    );
    list(out, span.events.iter(), event);
    append(
        out,
        format_args!(
            r#"],"droppedEventsCount":{},"links":["#,
            span.events.dropped_count
        ),
    );
    list(out, span.links.iter(), link);
    append(
        out,
        format_args!(
            r#"],"droppedLinksCount":{},"status":{{"#,
            span.links.dropped_count
        ),
    );
    match &span.status {
        Status::Unset => {}
        Status::Ok => out.push_str(r#""code":1"#),
        Status::Error { description } => {
            out.push_str(r#""code":2,"message":"#);
            string(out, description);
        }
    }
    out.push_str("}}");
}

fn event(out: &mut String, event: &Event) {
    append(
        out,
        format_args!(r#"{{"timeUnixNano":"{}","name":"#, nanos(event.timestamp)),
    );
    string(out, &event.name);
    out.push_str(r#","attributes":["#);
    attributes(out, &event.attributes);
    append(
        out,
        format_args!(
            r#"],"droppedAttributesCount":{}}}"#,
            event.dropped_attributes_count
        ),
    );
}

fn link(out: &mut String, link: &Link) {
    out.push('{');
    ids(out, &link.span_context);
    append(
        out,
        format_args!(
            r#","flags":{},"attributes":["#,
            flags(&link.span_context, link.span_context.is_remote())
        ),
    );
    attributes(out, &link.attributes);
    append(
        out,
        format_args!(
            r#"],"droppedAttributesCount":{}}}"#,
            link.dropped_attributes_count
        ),
    );
}

fn ids(out: &mut String, context: &SpanContext) {
    append(
        out,
        format_args!(
            r#""traceId":"{}","spanId":"{}""#,
            context.trace_id(),
            context.span_id()
        ),
    );
    let state = context.trace_state().header();
    if !state.is_empty() {
        out.push_str(r#","traceState":"#);
        string(out, &state);
    }
}

/// The trace flags, and whether the context is remote. Bit 8 says that this is known, and bit 9 is
/// the answer (opentelemetry-proto, `SpanFlags`).
fn flags(context: &SpanContext, remote: bool) -> u32 {
    u32::from(context.trace_flags().to_u8()) | 0x100 | if remote { 0x200 } else { 0 }
}

fn kind(kind: &SpanKind) -> u8 {
    match kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
        SpanKind::Producer => 4,
        SpanKind::Consumer => 5,
    }
}

fn attributes(out: &mut String, attributes: &[KeyValue]) {
    list(out, attributes, |out, attribute| {
        key_value(out, attribute.key.as_str(), &attribute.value);
    });
}

fn key_value(out: &mut String, key: &str, value: &Value) {
    out.push_str(r#"{"key":"#);
    string(out, key);
    out.push_str(r#","value":"#);
    any_value(out, value);
    out.push('}');
}

fn any_value(out: &mut String, value: &Value) {
    match value {
        Value::Bool(value) => append(out, format_args!(r#"{{"boolValue":{value}}}"#)),
        Value::I64(value) => append(out, format_args!(r#"{{"intValue":"{value}"}}"#)),
        Value::F64(value) => double(out, *value),
        other => {
            out.push_str(r#"{"stringValue":"#);
            string(out, &other.as_str());
            out.push('}');
        }
    }
}

/// Writes a number. JSON has only finite numbers, so the Protobuf mapping writes others as strings.
fn double(out: &mut String, value: f64) {
    match value {
        f64::INFINITY => out.push_str(r#"{"doubleValue":"Infinity"}"#),
        f64::NEG_INFINITY => out.push_str(r#"{"doubleValue":"-Infinity"}"#),
        value if value.is_nan() => out.push_str(r#"{"doubleValue":"NaN"}"#),
        value => append(out, format_args!(r#"{{"doubleValue":{value}}}"#)),
    }
}

fn list<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(out, item);
    }
}

fn string(out: &mut String, text: &str) {
    // The quoted text is UTF-8.
    out.push_str(&String::from_utf8_lossy(&quote(text)));
}

fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
}

fn nanos(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos()
}
