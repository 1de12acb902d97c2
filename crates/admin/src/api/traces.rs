//! `/api/traces`: the traces of the ring.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_telemetry::ring::{self, Trace};
use fanlight_telemetry::{TraceId, otlp_json};
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::{Answer, Query};
use crate::reply::{Refusal, json};
use crate::router::Admin;
use crate::values::{array, count, flag, millis, moment, optional};

const DEFAULT: usize = 100;
const MOST: usize = 500;

/// The newest traces that match the query.
pub(super) async fn list(State(admin): State<Arc<Admin>>, query: Query) -> Answer {
    let ring = admin.subject.telemetry.ring();
    let error = match query.get("error").as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(Refusal::bad_request("`error` must be true or false")),
    };
    let before = match query.get("before").map(|text| text.parse::<u64>()) {
        None => None,
        Some(Ok(number)) => Some(number),
        Some(Err(_)) => return Err(Refusal::bad_request("`before` must be the `number` of a trace")),
    };
    let limit = query.number("limit", DEFAULT, MOST)?;
    let mut traces = Vec::new();
    let mut answer = ObjectBuilder::new();
    if let Some(ring) = ring {
        let (backend, tool, text) = (query.get("backend"), query.get("tool"), query.get("text"));
        let filter = ring::Query { backend, tool, error, text, before, limit };
        traces.extend(ring.query(&filter).iter().filter_map(summary));
    }
    answer.member("recording", &flag(ring.is_some()));
    answer.member("traces", &array(traces));
    Ok(json(answer.finish()))
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
    Ok((kind, otlp_json::traces(resource, &trace.spans)).into_response())
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
    Some(object.finish())
}
