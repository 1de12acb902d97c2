//! `/api/traces`: the traces of the ring.
//!
//! Must not know: how traces are recorded.

use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_telemetry::ring::{self, Trace};
use fanlight_telemetry::{TraceId, otlp_json};
use http::StatusCode;

use super::Query;
use crate::Subject;
use crate::reply::{Reply, refused};
use crate::shown::{array, count, flag, millis, moment, optional};

const DEFAULT: usize = 100;
const MOST: usize = 500;

/// The newest traces that the query asks for.
pub(crate) fn list(subject: &Subject, query: &Query<'_>) -> Result<Json, Box<Reply>> {
    let text = |name: &str| query.get(name).map(|text| text.into_owned());
    let error = match query.get("error").as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(refused(StatusCode::BAD_REQUEST, "`error` must be true or false")),
    };
    let before = match query.get("before").map(|text| text.parse::<u64>()) {
        None => None,
        Some(Ok(number)) => Some(number),
        Some(Err(_)) => return Err(refused(StatusCode::BAD_REQUEST, "`before` must be the `number` of a trace")),
    };
    let limit = query.number("limit", DEFAULT, MOST)?;
    let mut traces = Vec::new();
    let mut answer = ObjectBuilder::new();
    if let Some(ring) = subject.telemetry.ring() {
        let asked =
            ring::Query { backend: text("backend"), tool: text("tool"), error, text: text("text"), before, limit };
        traces.extend(ring.query(&asked).iter().filter_map(summary));
    }
    answer.member("recording", &flag(subject.telemetry.ring().is_some()));
    answer.member("traces", &array(traces));
    Ok(answer.finish())
}

/// One trace as OTLP-JSON.
pub(crate) fn one(subject: &Subject, id: &str) -> Result<Json, Box<Reply>> {
    let trace = || subject.telemetry.ring()?.get(TraceId::from_hex(id).ok()?);
    let (Some(trace), Some(resource)) = (trace(), subject.telemetry.resource()) else {
        let message = "there is no such trace here: the oldest ones go when there are too many (limits.traces)";
        return Err(refused(StatusCode::NOT_FOUND, message));
    };
    Json::parse(otlp_json::traces(resource, &trace.spans).into(), fanlight_protocol::json::DEFAULT_NESTING).map_err(
        |error| refused(StatusCode::INTERNAL_SERVER_ERROR, &format!("the trace could not be written: {error}")),
    )
}

/// What a list says of a trace.
pub(crate) fn summary(trace: &Trace) -> Option<Json> {
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
