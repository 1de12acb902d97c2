//! `/api/traces`: the traces of the ring.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_telemetry::ring::{self, Order, ServerSpans, Trace, TraceOutcome};
use fanlight_telemetry::{TraceId, otlp_json};
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::{Answer, Query};
use crate::Admin;
use crate::reply::{Refusal, json};
use crate::values::{array, count, flag, millis, moment, optional};

const DEFAULT: usize = 100;
const MOST: usize = 500;
/// Longest text of a filter, in characters: no value of a span is longer.
const LONGEST: usize = 512;
/// Deepest nesting of a trace: that of an answer, of which spans of servers are a part.
const NESTING: usize = 512;
/// The latest time of a filter, in milliseconds.
const LATEST: f64 = 1e15;

/// The newest traces that match the query.
pub(super) async fn list(State(admin): State<Arc<Admin>>, query: Query) -> Answer {
    let ring = admin.subject.telemetry.ring();
    let filter = filter(&query)?;
    let mut traces = Vec::new();
    let mut answer = ObjectBuilder::new();
    if let Some(ring) = ring {
        traces.extend(ring.query(&filter).iter().filter_map(summary));
    }
    answer.member("recording", &flag(ring.is_some()));
    answer.member("traces", &array(traces));
    Ok(json(answer.finish()))
}

fn filter(query: &Query) -> Result<ring::Query, Refusal> {
    let bad = Refusal::bad_request;
    let text = |name: &str| match query.get(name) {
        Some(text) if text.chars().count() > LONGEST => Err(bad(format!("`{name}` has at most {LONGEST} characters"))),
        text => Ok(text),
    };
    let millis = |name: &str| match query.get(name).map(|text| text.parse::<f64>()) {
        None => Ok(None),
        Some(Ok(millis)) if (0.0..=LATEST).contains(&millis) => Ok(Some(Duration::from_secs_f64(millis / 1000.0))),
        Some(_) => Err(bad(format!("`{name}` must be a number of milliseconds from 0 to {LATEST}"))),
    };
    let error = match query.get("error").as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(bad("`error` must be true or false".to_owned())),
    };
    let before = match query.get("before").map(|text| text.parse::<u64>()) {
        None => None,
        Some(Ok(number)) => Some(number),
        Some(Err(_)) => return Err(bad("`before` must be the `number` of a trace".to_owned())),
    };
    let outcome = query.get("outcome").map(|name| {
        let names = TraceOutcome::ALL.map(TraceOutcome::as_str).join(", ");
        TraceOutcome::from_name(&name).ok_or_else(|| bad(format!("`outcome` must be one of {names}")))
    });
    let order = match query.get("sort").as_deref() {
        None | Some("newest") => Order::Newest,
        Some("slowest") if before.is_some() => {
            return Err(bad("`before` selects the next page of the newest, and goes with no other `sort`".to_owned()));
        }
        Some("slowest") => Order::Slowest,
        Some(_) => return Err(bad("`sort` must be newest or slowest".to_owned())),
    };
    let at = |time: Option<Duration>| time.map(|time| UNIX_EPOCH + time);
    Ok(ring::Query {
        backend: text("backend")?,
        tool: text("tool")?,
        method: text("method")?,
        client: text("client")?,
        principal: text("principal")?,
        outcome: outcome.transpose()?,
        error,
        text: text("text")?,
        since: at(millis("since")?),
        until: at(millis("until")?),
        at_least: millis("minMs")?,
        before,
        limit: query.number("limit", DEFAULT, MOST)?,
        order,
    })
}

/// One trace as OTLP-JSON.
pub(super) async fn one(State(admin): State<Arc<Admin>>, Path(id): Path<String>) -> Answer {
    let telemetry = &admin.subject.telemetry;
    let trace = || telemetry.ring()?.get(TraceId::from_hex(&id).ok()?);
    let (Some(trace), Some(resource)) = (trace(), telemetry.resource()) else {
        let message = "no such trace: the oldest are evicted when there are too many (limits.traces)";
        return Err(Refusal::new(StatusCode::NOT_FOUND, message));
    };
    let kind = [(CONTENT_TYPE, "application/json")];
    let own = otlp_json::traces(resource, &trace.spans);
    if trace.server_spans.is_empty() {
        return Ok((kind, own).into_response());
    }
    let own =
        Json::parse(own.into(), NESTING).map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no JSON"))?;
    let mut answer = ObjectBuilder::new();
    for member in own.members() {
        answer.raw_member(&own.slice(member.key), &own.slice(member.value));
    }
    answer.member("serverSpans", &array(trace.server_spans.iter().filter_map(returned)));
    Ok(json(answer.finish()))
}

/// The spans that a server returned. Truncated content is no longer JSON, and is left out.
fn returned(spans: &ServerSpans) -> Option<Json> {
    let resource_spans = Json::parse(Bytes::copy_from_slice(spans.resource_spans.as_bytes()), NESTING).ok()?;
    let mut object = ObjectBuilder::new();
    object.string("backend", &spans.backend).string("spanId", &spans.span_id).member("resourceSpans", &resource_spans);
    Some(object.finish())
}

/// A trace in a list.
pub(super) fn summary(trace: &Trace) -> Option<Json> {
    let summary = trace.summary()?;
    let mut object = ObjectBuilder::new();
    object.integer("number", count(trace.number));
    object.string("traceId", &trace.id.to_string()).string("name", &summary.name);
    object.member("startMs", &moment(summary.start)).member("durationMs", &millis(summary.duration));
    object.integer("spans", count(summary.spans)).integer("droppedSpans", count(trace.dropped));
    object.member("backends", &array(summary.backends.iter().map(|name| Json::string(name))));
    optional(&mut object, "error", summary.error.as_deref());
    optional(&mut object, "message", summary.message.as_deref());
    object.string("outcome", trace.outcome.as_str());
    optional(&mut object, "client", summary.client.as_deref());
    optional(&mut object, "principal", summary.principal.as_deref());
    if let Some(attempts) = trace.attempts {
        object.integer("attempts", count(attempts.count)).member("firstMs", &moment(attempts.first));
    }
    Some(object.finish())
}
