//! `/api/backends/{name}`: what is known of one backend besides its state: its description, history and processes.

use std::sync::Arc;

use axum::extract::{Path, State};
use http::StatusCode;
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

use super::Answer;
use super::versions::Difference;
use crate::Admin;
use crate::history::StateChange;
use crate::reply::{self, Refusal};
use crate::values::{Verbatim, moment};

/// What is known of a server besides its state.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct BackendDetails {
    name: String,
    /// Its `initialize` or `server/discover` result, unchanged; null while it is not connected.
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    description: Option<Verbatim>,
    /// Its last 50 states, oldest first.
    history: Vec<StateChange>,
    /// Its processes that run, oldest first; none of servers that have a URL.
    processes: Vec<RunningProcess>,
    /// The last 20 answers of its mirror that differed, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
}

/// A process of a server.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
struct RunningProcess {
    /// Its number in the log.
    process: u64,
    /// Its id in the system; on Linux that of the guard that has started it, and ends with it.
    id: Option<u32>,
    since_ms: f64,
}

/// How the server called `name` describes itself, if it is connected, the changes of its state, and its processes.
pub(super) async fn answer(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Answer {
    let gateway = &admin.subject.gateway;
    let Some(description) = gateway.description_of(&name).await else {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "no server has this name; /api/overview lists them",
        ));
    };
    let running = gateway.process_output(&name).unwrap_or_default().running;
    let versions = gateway.versions_of_backends().remove(&name);
    let differences = versions
        .and_then(|(_, mirror)| mirror)
        .map(|mirror| mirror.differences)
        .unwrap_or_default();
    Ok(reply::answer(&BackendDetails {
        differences: differences.iter().map(Difference::from).collect(),
        description: description.map(Verbatim),
        history: admin.history.of(&name),
        processes: running
            .into_iter()
            .map(|one| RunningProcess {
                process: one.process,
                id: one.id,
                since_ms: moment(one.since),
            })
            .collect(),
        name,
    }))
}
