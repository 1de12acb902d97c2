//! Spans parsed from the OTLP-JSON of the admin API and the ring (OpenTelemetry Protocol, JSON
//! Protobuf Encoding), as far as these commands need them. Missing or malformed parts are skipped.

use serde_json::Value;

use super::admin::elements;

pub use fanlight_telemetry::names::Kind;

/// A span. Times are nanoseconds since 1970, ids lower-case hexadecimal.
#[derive(Clone, Debug)]
pub struct Span {
    /// The trace id, in hexadecimal.
    pub trace: String,
    /// The span id, in hexadecimal.
    pub id: String,
    /// The id of the parent span.
    pub parent: Option<String>,
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: Kind,
    /// When it started, in nanoseconds since 1970.
    pub start: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end: u64,
    /// Links to spans in other traces, or elsewhere in this one: trace and span.
    pub links: Vec<(String, String)>,
    /// The events during the span.
    pub events: Vec<Event>,
    /// The message of an error status.
    pub error: Option<String>,
    attributes: Vec<(String, String)>,
}

/// An event during a span.
#[derive(Clone, Debug)]
pub struct Event {
    /// The name.
    pub name: String,
    /// When it happened, in nanoseconds since 1970.
    pub time: u64,
}

impl Span {
    /// The value of this attribute.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Duration in nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// All spans of `{"resourceSpans":[…]}`, ordered by start. The error describes the first problem.
pub fn read(text: &[u8]) -> Result<Vec<Span>, String> {
    let whole: Value =
        serde_json::from_slice(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let resources = whole["resourceSpans"]
        .as_array()
        .ok_or("it has no resourceSpans")?;
    let scopes = resources
        .iter()
        .flat_map(|resource| elements(resource, "scopeSpans"));
    let mut spans: Vec<Span> = scopes
        .flat_map(|scope| elements(scope, "spans"))
        .filter_map(span)
        .collect();
    spans.sort_by_key(|span| span.start);
    Ok(spans)
}

fn span(value: &Value) -> Option<Span> {
    let status = &value["status"];
    Some(Span {
        trace: text(value, "traceId")?,
        id: text(value, "spanId")?,
        parent: text(value, "parentSpanId").filter(|id| !id.is_empty()),
        name: text(value, "name").unwrap_or_default(),
        kind: match value["kind"].as_u64() {
            Some(2) => Kind::Server,
            Some(3) => Kind::Client,
            _ => Kind::Internal,
        },
        start: nanos(value, "startTimeUnixNano"),
        end: nanos(value, "endTimeUnixNano"),
        links: elements(value, "links")
            .filter_map(|link| Some((text(link, "traceId")?, text(link, "spanId")?)))
            .collect(),
        events: elements(value, "events").filter_map(event).collect(),
        error: (status["code"] == 2).then(|| text(status, "message").unwrap_or_default()),
        attributes: elements(value, "attributes")
            .filter_map(attribute)
            .collect(),
    })
}

fn event(value: &Value) -> Option<Event> {
    Some(Event {
        name: text(value, "name")?,
        time: nanos(value, "timeUnixNano"),
    })
}

fn attribute(value: &Value) -> Option<(String, String)> {
    let content = value.get("value")?.as_object()?.values().next()?;
    let shown = content
        .as_str()
        .map_or_else(|| content.to_string(), str::to_owned);
    Some((text(value, "key")?, shown))
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

/// A time in nanoseconds. 64-bit integers are strings in OTLP-JSON, but numbers are accepted, too.
fn nanos(value: &Value, key: &str) -> u64 {
    let value = &value[key];
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .or_else(|| value.as_u64())
        .unwrap_or_default()
}
