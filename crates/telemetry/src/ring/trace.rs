//! A trace of the ring in a form for readers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_protocol::Method;
use opentelemetry::Value;
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceId};
use opentelemetry_sdk::trace::SpanData;

use super::{Attempts, Side, TraceOutcome};
use crate::client_name;
use crate::content::{ContentKind, Message};
use crate::names::{
    BACKEND_NAME, CLIENT_NAME, CLIENT_VERSION, ERROR_MESSAGE, ERROR_TYPE, MCP_METHOD_NAME,
    PRINCIPAL, RPC_RESPONSE_STATUS_CODE,
};
use crate::redact::redacted;

/// The ended spans of a trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The number of the trace. Numbers begin at 1.
    pub number: u64,
    /// The id of the trace.
    pub id: TraceId,
    /// The spans, in the order in which they ended.
    pub spans: Vec<SpanData>,
    /// How many earlier spans the ring has dropped.
    pub dropped: u64,
    /// Set if the trace represents attempts to connect.
    pub attempts: Option<Attempts>,
    /// The time from the first start to the last end; of a call in rounds, without the time between
    /// them.
    pub duration: Duration,
    /// How the trace ended.
    pub outcome: TraceOutcome,
    /// The side of the failure, if it failed.
    pub side: Option<Side>,
    /// The trace is Fanlight's own, such as a health check, a list or a connection.
    pub is_own: bool,
    /// Whether its request has been answered, and not with a question.
    pub has_ended: bool,
    /// The content of its calls, oldest first.
    pub content: Vec<TraceContent>,
}

/// A message of a call, as far as it was kept.
#[derive(Clone, Debug)]
pub struct TraceContent {
    /// The span that sent or received it, in hexadecimal.
    pub span_id: String,
    /// When it was sent or received.
    pub at: SystemTime,
    /// The part that it plays.
    pub kind: ContentKind,
    /// The length in bytes.
    pub bytes: usize,
    /// How many of these bytes were not kept.
    pub left_out: usize,
    /// The kept bytes, with secrets.
    pub(super) raw: Arc<str>,
}

impl TraceContent {
    pub(super) fn from_message(message: Message) -> Self {
        Self {
            span_id: message.span.to_string(),
            at: message.at,
            kind: message.kind,
            bytes: message.bytes,
            left_out: message.bytes - message.text.len(),
            raw: message.text,
        }
    }

    /// The kept part as JSON, without secrets that a name reveals. A peer may have sent anything.
    pub fn text(&self) -> String {
        redacted(&self.raw)
    }
}

/// A trace in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The name of the trace's first span in this process.
    pub name: String,
    /// When the trace began.
    pub start: SystemTime,
    /// [`Trace::duration`]
    pub duration: Duration,
    /// How many of the trace's spans are in the ring.
    pub spans: usize,
    /// The servers of the spans.
    pub backends: Vec<String>,
    /// The `error.type` of the first span, or else of any span that failed.
    pub error: Option<String>,
    /// The message of that error.
    pub message: Option<String>,
    /// Name and version that the client gives.
    pub client: Option<String>,
    /// The name of the client's principal.
    pub principal: Option<String>,
}

impl Trace {
    /// The trace as an entry of a list. `None` if it has no spans.
    pub fn summary(&self) -> Option<Summary> {
        let top = self
            .spans
            .iter()
            .filter(|span| is_top(span))
            .min_by_key(|span| span.start_time);
        let top = top.or_else(|| self.spans.iter().min_by_key(|span| span.start_time))?;
        let backends: BTreeSet<String> = self
            .spans
            .iter()
            .filter_map(|span| attribute(span, BACKEND_NAME))
            .map(|name| name.to_string())
            .collect();
        let failed = self.spans.iter().find(|span| failure(span).is_some());
        let blamed = if failure(top).is_some() {
            Some(top)
        } else {
            failed
        };
        Some(Summary {
            name: top.name.to_string(),
            start: top.start_time,
            duration: self.duration,
            spans: self.spans.len(),
            backends: backends.into_iter().collect(),
            error: blamed.and_then(|span| failure(span)).map(Value::to_string),
            message: blamed.and_then(message),
            client: attribute(top, CLIENT_NAME).map(|name| {
                let version = attribute(top, CLIENT_VERSION).map(Value::as_str);
                client_name::label(&name.as_str(), version.as_deref())
            }),
            principal: attribute(top, PRINCIPAL).map(Value::to_string),
        })
    }
}

fn message(span: &SpanData) -> Option<String> {
    match &span.status {
        Status::Error { description } if !description.is_empty() => Some(description.to_string()),
        _ => attribute(span, ERROR_MESSAGE).map(Value::to_string),
    }
}

fn is_top(span: &SpanData) -> bool {
    span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote
}

impl Trace {
    /// Whether the id, or the name or an attribute of a span, contains this text. The text is in
    /// lower case.
    pub(super) fn has_text(&self, text: &str) -> bool {
        let has = |given: &str| given.to_lowercase().contains(text);
        let has_span = |span: &SpanData| {
            has(&span.name) || span.attributes.iter().any(|one| has(&one.value.as_str()))
        };
        has(&self.id.to_string()) || self.spans.iter().any(has_span)
    }
}

/// The `error.type` of a failed span, or the code of an error that the sender caused. A refused
/// `server/discover` is no failure, because it tells the era of a server. If the connection fails,
/// the span of connecting has the error.
pub fn failure(span: &SpanData) -> Option<&Value> {
    let error =
        attribute(span, ERROR_TYPE).or_else(|| attribute(span, RPC_RESPONSE_STATUS_CODE))?;
    let asks = |method: &Value| method.as_str() == Method::Discover.as_str();
    let probes =
        span.span_kind == SpanKind::Client && attribute(span, MCP_METHOD_NAME).is_some_and(asks);
    (!probes).then_some(error)
}

/// The value of an attribute of a span.
pub fn attribute<'a>(span: &'a SpanData, name: &str) -> Option<&'a Value> {
    span.attributes
        .iter()
        .find(|attribute| attribute.key.as_str() == name)
        .map(|attribute| &attribute.value)
}
