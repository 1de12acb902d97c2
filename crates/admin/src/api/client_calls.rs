//! `/api/calls`: lists running requests of clients, and cancels them.

use axum::extract::{Path, State};
use fanlight_telemetry::RunningRequest;

use super::{Answer, Query};
use crate::{About, AdminState, Refusal, answer, millis, moment};

const DEFAULT: usize = 100;
const MOST: usize = 1000;

answers! {
    /// Running requests of clients.
    pub(crate) struct ClientCalls {
        /// The number of all requests, including those beyond `limit`.
        call_count: usize,
        calls: Vec<ClientCall>,
    }

    /// A running request of a client.
    struct ClientCall {
        /// The span id, by which the request is cancelled.
        span_id: String,
        trace_id: String,
        /// The method, with the tool or prompt.
        name: String,
        /// The client's name and version, as it states them.
        client: Option<String>,
        /// The name of the client's identity; null if it is not authenticated.
        principal: Option<String>,
        start_ms: f64,
        elapsed_ms: f64,
        cancelled: bool,
    }

    /// A cancelled request.
    pub(crate) struct ClientCallCancelled {
        /// The span id.
        call: String,
        name: String,
        /// `cancel`.
        done: &'static str,
    }
}

/// Lists the running requests, oldest first.
pub(super) async fn list(State(admin): AdminState, query: Query) -> Answer {
    let limit = query.number("limit", DEFAULT, MOST)?;
    let running = admin.subject.telemetry.running();
    let call_count = running.len();
    Ok(answer(&ClientCalls {
        call_count,
        calls: running.into_iter().take(limit).map(call).collect(),
    }))
}

/// Cancels the running request with this span.
pub(super) async fn cancel(State(admin): AdminState, Path(id): Path<String>) -> Answer {
    let Some(name) = admin.subject.telemetry.cancel(&id) else {
        let message = "no running request has this span; it may have just ended. `/api/calls` lists the running requests";
        return Err(Refusal::not_found(message));
    };
    let answer = answer(&ClientCallCancelled {
        call: id,
        name: name.clone(),
        done: "cancel",
    });
    Ok(About(name).attach_to(answer))
}

fn call(call: RunningRequest) -> ClientCall {
    let client = call.client.as_ref();
    ClientCall {
        client: client.and_then(|client| client.label()),
        principal: client
            .and_then(|client| client.principal())
            .map(str::to_owned),
        span_id: call.span_id,
        trace_id: call.trace_id,
        name: call.name,
        start_ms: moment(call.began),
        elapsed_ms: millis(call.elapsed),
        cancelled: call.is_cancelled,
    }
}
