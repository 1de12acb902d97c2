//! `/api/calls`: the requests of clients that run, and cancelling one.

use std::sync::Arc;

use axum::extract::{Path, State};
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_telemetry::RunningRequest;
use http::StatusCode;

use super::{Answer, Query};
use crate::Admin;
use crate::access::About;
use crate::reply::{Refusal, json};
use crate::values::{array, count, flag, millis, moment, optional};

const DEFAULT: usize = 100;
const MOST: usize = 1000;

/// The running requests, those that began first in front.
pub(super) async fn list(State(admin): State<Arc<Admin>>, query: Query) -> Answer {
    let limit = query.number("limit", DEFAULT, MOST)?;
    let running = admin.subject.telemetry.running();
    let mut answer = ObjectBuilder::new();
    answer.integer("callCount", count(running.len()));
    answer.member("calls", &array(running.iter().take(limit).map(call)));
    Ok(json(answer.finish()))
}

/// Cancels the running request that has this span.
pub(super) async fn cancel(State(admin): State<Arc<Admin>>, Path(id): Path<String>) -> Answer {
    let Some(name) = admin.subject.telemetry.cancel(&id) else {
        let message =
            "no running request has this span; it may have ended just now, and `/api/calls` lists those there are";
        return Err(Refusal::new(StatusCode::NOT_FOUND, message));
    };
    let mut done = ObjectBuilder::new();
    done.string("call", &id).string("name", &name).string("done", "cancel");
    let mut response = json(done.finish());
    response.extensions_mut().insert(About(name));
    Ok(response)
}

fn call(call: &RunningRequest) -> Json {
    let mut object = ObjectBuilder::new();
    object.string("spanId", &call.span_id).string("traceId", &call.trace_id).string("name", &call.name);
    let client = call.client.as_ref();
    optional(&mut object, "client", client.and_then(|client| client.label()).as_deref());
    optional(&mut object, "principal", client.and_then(|client| client.principal()));
    object.member("startMs", &moment(call.began)).member("elapsedMs", &millis(call.elapsed));
    object.member("cancelled", &flag(call.is_cancelled));
    object.finish()
}
