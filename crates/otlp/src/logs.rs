//! Encodes texts as an OTLP request with log records.

use std::time::SystemTime;

use fanlight_protocol::Json;
use fanlight_protocol::json::{Kind, MAX_NESTING};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_sdk::Resource;

use crate::export::{key_value, resource, scope, string};
use crate::metrics::nanos;

/// A text that becomes the body of a log record.
#[derive(Debug)]
pub(crate) struct LogText {
    /// The name of the event. `None` for a JSON object, whose member `event` is the name.
    pub(crate) event: Option<&'static str>,
    /// The text that is exported.
    pub(crate) text: String,
}

/// A request with `texts` as log records.
pub(crate) fn request<'a>(
    from: &Resource,
    namespace: &str,
    texts: impl Iterator<Item = &'a LogText>,
) -> ExportLogsServiceRequest {
    let log_records = texts.map(|text| record(namespace, text)).collect();
    let scope_logs = vec![ScopeLogs {
        scope: Some(scope()),
        log_records,
        ..ScopeLogs::default()
    }];
    let logs = ResourceLogs {
        resource: Some(resource(from)),
        scope_logs,
        ..ResourceLogs::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![logs],
    }
}

fn record(namespace: &str, LogText { event, text }: &LogText) -> LogRecord {
    let now = nanos(SystemTime::now());
    let line = Json::parse(text.clone().into(), MAX_NESTING)
        .ok()
        .filter(|_| event.is_none());
    let member = |name: &str| {
        line.as_ref()?
            .peek(name)?
            .as_str()
            .map(|text| text.into_owned())
    };
    let time = member("time")
        .and_then(|time| humantime::parse_rfc3339(&time).ok())
        .map_or(now, nanos);
    let trace = member("trace")
        .filter(|id| id.len() == 32)
        .and_then(|id| u128::from_str_radix(&id, 16).ok());
    let event = event
        .map(str::to_owned)
        .or_else(|| member("event"))
        .unwrap_or_default();
    LogRecord {
        time_unix_nano: time,
        observed_time_unix_nano: now,
        severity_number: SeverityNumber::Info.into(),
        severity_text: "INFO".to_owned(),
        event_name: format!("{namespace}.{event}"),
        body: Some(AnyValue {
            value: Some(string(text.clone())),
        }),
        attributes: line
            .as_ref()
            .map(|line| attributes(namespace, line))
            .unwrap_or_default(),
        trace_id: trace
            .map(|id| id.to_be_bytes().to_vec())
            .unwrap_or_default(),
        ..LogRecord::default()
    }
}

/// Attributes for the members of a line that are strings, whole numbers or lists of strings. All
/// other members are only in the body.
fn attributes(namespace: &str, line: &Json) -> Vec<KeyValue> {
    let attribute = |member: fanlight_protocol::json::Member| {
        let (name, value) = (member.name(line)?, line.slice(member.value));
        // These members have fields of their own.
        if matches!(name.as_str(), "time" | "event" | "trace") {
            return None;
        }
        Some(key_value(
            &format!("{namespace}.{name}"),
            attribute_value(&value)?,
        ))
    };
    line.members().filter_map(attribute).collect()
}

fn attribute_value(value: &Json) -> Option<Value> {
    let text = |value: &Json| value.as_str().map(string);
    if value.kind() == Kind::Array {
        let values = value
            .elements()
            .map(|place| text(&value.slice(place)).map(|text| AnyValue { value: Some(text) }));
        return Some(Value::ArrayValue(ArrayValue {
            values: values.collect::<Option<_>>()?,
        }));
    }
    text(value).or_else(|| value.as_i64().map(Value::IntValue))
}
