//! `/api/traces`: the traces in the ring.

use std::collections::HashMap;

use axum::extract::{Extension, Path, State};
use bytes::Bytes;
use fanlight_protocol::{Json, ObjectBuilder};
use fanlight_telemetry::names::BACKEND_NAME;
use fanlight_telemetry::ring::{self, Order, TraceOutcome};
use fanlight_telemetry::{ContentKind, Side, SpanData, TraceContent, TraceId, otlp_json};
use http::StatusCode;
use serde::{Serialize, Serializer};
#[cfg(test)]
use utoipa::ToSchema;

use super::{Answer, Query};
use crate::{
    Admin, AdminState, Operator, Refusal, Role, Verbatim, answer, json, millis, moment, to_json,
};

const DEFAULT: usize = 100;
const MOST: usize = 500;
/// The nesting limit of a trace's spans from servers: the limit of an answer, which contains them.
const NESTING: usize = 512;

answers! {
    /// Traces in the ring.
    pub(crate) struct Traces {
        /// Whether there is a ring.
        recording: bool,
        /// The replica that keeps them; null without others.
        replica: Option<String>,
        traces: Vec<Trace>,
    }

    /// A trace in a list.
    pub(crate) struct Trace {
        /// The number of the trace, counted by starts.
        number: u64,
        trace_id: String,
        name: String,
        start_ms: f64,
        duration_ms: f64,
        spans: usize,
        dropped_spans: u64,
        backends: Vec<String>,
        /// The `error.type` of the first span, else of a failed one.
        error: Option<String>,
        /// The message of that failure.
        message: Option<String>,
        outcome: Outcome,
        /// The side that can do something about the failure: `client`, `gateway` or `server`.
        side: Option<&'static str>,
        /// True for Fanlight's own request, such as a list, a health check or a connection.
        own: bool,
        /// Whether the request is answered, and not with a question to the client.
        ended: bool,
        /// The client's name and version, as it states them.
        client: Option<String>,
        /// The name of the client's identity; null if it is not authenticated.
        principal: Option<String>,
    } + optional {
        /// The number of attempts to connect that this trace represents; absent for other traces.
        attempts: u64,
        /// The start of the first of these attempts.
        first_ms: f64,
    }
}

answers! {
    /// A message of a call, as far as it was kept.
    pub(crate) struct Content {
        /// The span that sent or received it.
        span_id: String,
        at_ms: f64,
        /// `arguments`, `result`, `error`, `progress`, `log`, `question` or `answer`.
        kind: &'static str,
        /// The length of the whole message.
        bytes: usize,
        whole: bool,
        /// How many of the bytes were not kept.
        left_out: usize,
    } + optional {
        /// The kept part as JSON, without values named like secrets; absent for viewers.
        text: String,
    }
}

/// The outcome of a trace.
pub(crate) struct Outcome(TraceOutcome);

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

#[cfg(test)]
impl utoipa::PartialSchema for Outcome {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        let names = TraceOutcome::ALL.map(TraceOutcome::as_str);
        let text = utoipa::openapi::Object::with_type(utoipa::openapi::Type::String);
        let text = utoipa::openapi::ObjectBuilder::from(text).enum_values(Some(names));
        text.description(Some("How a trace has ended.")).into()
    }
}

#[cfg(test)]
impl ToSchema for Outcome {}

/// The ended traces in an event.
#[derive(Serialize)]
pub(super) struct TracesEnded {
    pub(super) traces: Vec<Trace>,
}

/// Spans that a server has returned.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReturnedSpans {
    backend: String,
    span_id: String,
    resource_spans: Verbatim,
}

/// Lists the newest traces that match the query.
pub(super) async fn list(State(admin): AdminState, query: Query) -> Answer {
    let ring = admin.subject.telemetry.ring();
    let filter = filter(&query)?;
    let traces = ring.map(|ring| ring.query(&filter)).unwrap_or_default();
    Ok(answer(&Traces {
        recording: ring.is_some(),
        replica: replica(&admin),
        traces: traces.iter().filter_map(summary).collect(),
    }))
}

/// The id of this replica, if there are others.
fn replica(admin: &Admin) -> Option<String> {
    let replicas = admin.subject.replicas.as_ref();
    replicas.map(|replicas| replicas.view().own)
}

/// The filter in a query.
pub(super) fn filter(query: &Query) -> Result<ring::Query, Refusal> {
    let bad = Refusal::bad_request;
    let before = match query.get("before").map(|text| text.parse::<u64>()) {
        None => None,
        Some(Ok(number)) => Some(number),
        Some(Err(_)) => return Err(bad("`before` must be the `number` of a trace".to_owned())),
    };
    let outcome = query.get("outcome").map(|name| {
        let names = TraceOutcome::ALL.map(TraceOutcome::as_str).join(", ");
        name.parse()
            .map_err(|_| bad(format!("`outcome` must be one of {names}")))
    });
    let order = match query.get("sort").as_deref() {
        None | Some("newest") => Order::Newest,
        Some("slowest") if before.is_some() => {
            return Err(bad(
                "`before` can be used only if `sort` is newest".to_owned()
            ));
        }
        Some("slowest") => Order::Slowest,
        Some(_) => return Err(bad("`sort` must be newest or slowest".to_owned())),
    };
    Ok(ring::Query {
        backend: query.text("backend")?,
        tool: query.text("tool")?,
        method: query.text("method")?,
        client: query.text("client")?,
        principal: query.text("principal")?,
        outcome: outcome.transpose()?,
        own: query.flag("own")?,
        error: query.flag("error")?,
        text: query.text("text")?,
        since: query.time("since")?,
        until: query.time("until")?,
        at_least: query.duration("minMs")?,
        before,
        limit: query.number("limit", DEFAULT, MOST)?,
        order,
    })
}

/// The trace with this id.
pub(super) fn find(admin: &Admin, id: &str) -> Result<ring::Trace, Refusal> {
    let ring = admin.subject.telemetry.ring();
    let id = TraceId::from_hex(id).ok();
    ring.zip(id)
        .and_then(|(ring, id)| ring.get(id))
        .ok_or_else(gone)
}

fn gone() -> Refusal {
    Refusal::not_found(
        "no such trace: the oldest traces are dropped when there are too many (limits.traces)",
    )
}

/// One trace as OTLP-JSON.
pub(super) async fn trace(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
) -> Answer {
    let mut trace = find(&admin, &id)?;
    let resource = admin.subject.telemetry.resource().ok_or_else(gone)?;
    let backends: HashMap<String, String> = trace.spans.iter().filter_map(backend_of).collect();
    let own = otlp_json::traces(resource, std::mem::take(&mut trace.spans));
    let own = Json::parse(own.into(), NESTING)
        .map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no JSON"))?;
    let mut answer = ObjectBuilder::new();
    for member in own.members() {
        answer.raw_member(&own.slice(member.key), &own.slice(member.value));
    }
    let replica = replica(&admin);
    let is_readable = operator.role >= Role::Operator;
    let (spans, messages): (Vec<_>, Vec<_>) = trace
        .content
        .into_iter()
        .partition(|one| one.kind == ContentKind::ServerSpans);
    let messages = messages.iter().map(|one| content(one, is_readable));
    answer.member("replica", &to_json(&replica));
    answer.member("content", &to_json(&messages.collect::<Vec<_>>()));
    let spans = spans.into_iter().filter(|_| is_readable);
    let spans = spans.filter_map(|one| returned(&one, &backends));
    let spans: Vec<_> = spans.collect();
    if !spans.is_empty() {
        answer.member("serverSpans", &to_json(&spans));
    }
    Ok(json(answer.finish()))
}

/// The id of a span, and the name of its server.
fn backend_of(span: &SpanData) -> Option<(String, String)> {
    let backend = ring::attribute(span, BACKEND_NAME)?.to_string();
    Some((span.span_context.span_id().to_string(), backend))
}

fn content(message: &TraceContent, is_readable: bool) -> Content {
    Content {
        span_id: message.span_id.clone(),
        at_ms: moment(message.at),
        kind: message.kind.as_str(),
        bytes: message.bytes,
        whole: message.left_out == 0,
        left_out: message.left_out,
        text: is_readable.then(|| message.text()),
    }
}

/// The spans that a server returned.
fn returned(spans: &TraceContent, backends: &HashMap<String, String>) -> Option<ReturnedSpans> {
    Some(ReturnedSpans {
        backend: backends.get(&spans.span_id)?.clone(),
        span_id: spans.span_id.clone(),
        resource_spans: Verbatim(Json::parse(Bytes::from(spans.text()), NESTING).ok()?),
    })
}

/// A trace in a list.
pub(super) fn summary(trace: &ring::Trace) -> Option<Trace> {
    let summary = trace.summary()?;
    Some(Trace {
        number: trace.number,
        trace_id: trace.id.to_string(),
        name: summary.name,
        start_ms: moment(summary.start),
        duration_ms: millis(summary.duration),
        spans: summary.spans,
        dropped_spans: trace.dropped,
        backends: summary.backends,
        error: summary.error,
        message: summary.message,
        outcome: Outcome(trace.outcome),
        side: trace.side.map(Side::as_str),
        own: trace.is_own,
        ended: trace.has_ended,
        client: summary.client,
        principal: summary.principal,
        attempts: trace.attempts.map(|attempts| attempts.count),
        first_ms: trace.attempts.map(|attempts| moment(attempts.first)),
    })
}
