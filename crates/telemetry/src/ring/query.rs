//! Asking the ring: newest first, filtered.
//!
//! Must not know: who asks.

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

/// Which traces. What is not said does not matter; what is said must all hold of one trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// A span of it went to this backend or came from it.
    pub backend: Option<String>,
    /// A span of it called this tool, by either name.
    pub tool: Option<String>,
    /// Whether a span of it failed.
    pub error: Option<bool>,
    /// Stands in its id, or in a name or attribute of a span, whatever the case.
    pub text: Option<String>,
    /// Began before the trace of this number: for the next page.
    pub before: Option<u64>,
    /// Most traces in the answer; 0 for all.
    pub limit: usize,
}

/// A trace, as far as it has ended.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its place among all there have been, from 1.
    pub number: u64,
    /// Its id.
    pub id: TraceId,
    /// Its spans in the order they ended.
    pub spans: Vec<Arc<SpanData>>,
    /// How many earlier spans had to go.
    pub dropped: u64,
}

/// What a list says of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The name of the span it began with here.
    pub name: String,
    /// When that began.
    pub start: SystemTime,
    /// From the first beginning to the last end.
    pub duration: Duration,
    /// How many spans are held.
    pub spans: usize,
    /// The backends it went to.
    pub backends: Vec<String>,
    /// `error.type` of the span it began with, else of any that failed.
    pub error: Option<String>,
}

impl Ring {
    /// The traces that `query` asks for, newest first.
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
            let Some(kept) = self.lock().traces.get(&id).map(Entry::kept) else { continue };
            if !kept.matches(query) {
                continue;
            }
            let trace = kept.to_trace(id);
            if text.as_deref().is_none_or(|text| has_text(&trace, text)) {
                found.push(trace);
            }
        }
        found
    }

    /// One trace.
    #[must_use]
    pub fn get(&self, id: TraceId) -> Option<Trace> {
        let kept = self.lock().traces.get(&id).map(Entry::kept)?;
        Some(kept.to_trace(id))
    }
}

/// A trace as it is kept, taken out from under the lock.
struct Kept {
    number: u64,
    spans: Vec<Arc<Record>>,
    dropped: u64,
}

impl Entry {
    fn kept(&self) -> Kept {
        let spans = self.spans.iter().map(|(span, _)| Arc::clone(span)).collect();
        Kept { number: self.number, spans, dropped: self.dropped }
    }
}

impl Kept {
    /// All that can be told before anything is made of it.
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
    /// As [`failure`] has it.
    fn failed(&self) -> bool {
        let probes = self.beginning.kind == Kind::Client && self.beginning.method == Some(Method::Discover);
        !probes && self.found().error.is_some()
    }

    fn is_of_backend(&self, name: &str) -> bool {
        self.beginning.backend.as_ref().is_some_and(|backend| backend.name() == name)
    }

    fn calls(&self, tool: &str) -> bool {
        matches!(&self.beginning.subject, Subject::Tool(name) if name == tool)
    }
}

impl Trace {
    /// What a list says of it.
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

/// The `error.type` of a span that failed. That a server refuses `server/discover` is how its era is
/// found; where no connection comes of it, the span of connecting says so.
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
