//! Queries of the ring: filtered, newest first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_protocol::Method;
use opentelemetry::Value;
use opentelemetry::trace::{SpanId, SpanKind, TraceId};
use opentelemetry_sdk::trace::SpanData;

use super::{Entry, Ring};
use crate::names::{BACKEND_NAME, ERROR_TYPE, Kind, MCP_METHOD_NAME};
use crate::record::Record;
use crate::subject::Subject;

/// A filter of traces; all given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// One of its spans is of a message to or from this backend.
    pub backend: Option<String>,
    /// One of its spans calls this tool, by the name of the client or of the backend.
    pub tool: Option<String>,
    /// Whether one of its spans failed.
    pub error: Option<bool>,
    /// Text in its id, or in the name or an attribute of one of its spans, ignoring case.
    pub text: Option<String>,
    /// It began before the trace of this number: for the next page.
    pub before: Option<u64>,
    /// Most traces to return; 0 for all.
    pub limit: usize,
}

/// The ended spans of a trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Traces are numbered from 1.
    pub number: u64,
    /// Its id.
    pub id: TraceId,
    /// Its spans in the order they ended.
    pub spans: Vec<Arc<SpanData>>,
    /// How many earlier spans were evicted.
    pub dropped: u64,
}

/// A trace in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The name of its first span in this process.
    pub name: String,
    /// When it began.
    pub start: SystemTime,
    /// From the first start to the last end.
    pub duration: Duration,
    /// How many spans the ring has.
    pub spans: usize,
    /// The backends of its spans.
    pub backends: Vec<String>,
    /// `error.type` of its first span, else of any that failed.
    pub error: Option<String>,
}

impl Ring {
    /// The traces that match `query`, newest first.
    #[must_use]
    pub fn query(&self, query: &Query) -> Vec<Trace> {
        let limit = if query.limit == 0 { usize::MAX } else { query.limit };
        let text = query.text.as_deref().map(str::to_lowercase);
        let ids: Vec<TraceId> = self.lock().order.iter().rev().copied().collect();
        let mut found = Vec::new();
        // One trace at a time, so that the lock is never held for long.
        for id in ids {
            if found.len() == limit {
                break;
            }
            let Some(records) = self.lock().traces.get(&id).map(Entry::records) else { continue };
            if !records.matches(query) {
                continue;
            }
            let trace = records.to_trace(id);
            if text.as_deref().is_none_or(|text| has_text(&trace, text)) {
                found.push(trace);
            }
        }
        found
    }

    /// One trace.
    #[must_use]
    pub fn get(&self, id: TraceId) -> Option<Trace> {
        let records = self.lock().traces.get(&id).map(Entry::records)?;
        Some(records.to_trace(id))
    }
}

/// The records of a trace, copied while locked.
struct Records {
    number: u64,
    spans: Vec<Arc<Record>>,
    dropped: u64,
}

impl Entry {
    fn records(&self) -> Records {
        let spans = self.spans.iter().map(|(span, _)| Arc::clone(span)).collect();
        Records { number: self.number, spans, dropped: self.dropped }
    }
}

impl Records {
    /// Whether all conditions but the text hold, which needs no spans of the SDK.
    fn matches(&self, query: &Query) -> bool {
        let is_of = |wanted: &String| self.spans.iter().any(|span| span.is_of_backend(wanted));
        let calls = |wanted: &String| self.spans.iter().any(|span| span.calls(wanted));
        let failed = || self.spans.iter().any(|span| span.failed());
        query.before.is_none_or(|before| self.number < before)
            && query.backend.as_ref().is_none_or(is_of)
            && query.tool.as_ref().is_none_or(calls)
            && query.error.is_none_or(|wanted| failed() == wanted)
    }

    fn to_trace(&self, id: TraceId) -> Trace {
        let spans = self.spans.iter().map(|span| Arc::new(span.to_span_data())).collect();
        Trace { number: self.number, id, spans, dropped: self.dropped }
    }
}

impl Record {
    /// Whether [`failure`] has a value for the span.
    fn failed(&self) -> bool {
        let probes = self.start.kind == Kind::Client && self.start.method == Some(Method::Discover);
        !probes && self.fields().error.is_some()
    }

    fn is_of_backend(&self, name: &str) -> bool {
        self.start.backend.as_ref().is_some_and(|backend| *backend.shared().name == *name)
    }

    fn calls(&self, tool: &str) -> bool {
        matches!(&self.start.subject, Subject::Tool(name) if name == tool)
    }
}

impl Trace {
    /// The trace in a list; `None` without spans.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let start = self.spans.iter().map(|span| span.start_time).min()?;
        let end = self.spans.iter().map(|span| span.end_time).max()?;
        let top = self.spans.iter().filter(|span| is_top(span)).min_by_key(|span| span.start_time);
        let top = top.or_else(|| self.spans.iter().min_by_key(|span| span.start_time))?;
        let backends: BTreeSet<String> =
            self.spans.iter().filter_map(|span| attribute(span, BACKEND_NAME)).map(|name| name.to_string()).collect();
        let failed = self.spans.iter().find_map(|span| failure(span));
        Some(Summary {
            name: top.name.to_string(),
            start: top.start_time,
            duration: end.duration_since(start).unwrap_or_default(),
            spans: self.spans.len(),
            backends: backends.into_iter().collect(),
            error: failure(top).or(failed).map(Value::to_string),
        })
    }
}

fn is_top(span: &SpanData) -> bool {
    span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote
}

fn has_text(trace: &Trace, text: &str) -> bool {
    let has = |given: &str| given.to_lowercase().contains(text);
    has(&trace.id.to_string())
        || trace
            .spans
            .iter()
            .any(|span| has(&span.name) || span.attributes.iter().any(|attribute| has(&attribute.value.as_str())))
}

/// The `error.type` of a failed span. A refused `server/discover` is no failure, since it tells the era of a server; if
/// the connection fails, the span of connecting has the error.
#[must_use]
pub fn failure(span: &SpanData) -> Option<&Value> {
    let error = attribute(span, ERROR_TYPE)?;
    let asks = |method: &Value| method.as_str() == Method::Discover.as_str();
    let probes = span.span_kind == SpanKind::Client && attribute(span, MCP_METHOD_NAME).is_some_and(asks);
    (!probes).then_some(error)
}

/// The value of an attribute of a span.
#[must_use]
pub fn attribute<'a>(span: &'a SpanData, name: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == name).map(|attribute| &attribute.value)
}
