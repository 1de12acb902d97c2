//! `/api/backends/{name}`: details of one server besides its state: description, history and
//! processes.

use axum::extract::{Path, State};

use super::Answer;
use super::server_state::Difference;
use crate::history::StateChange;
use crate::{AdminState, Refusal, Verbatim, moment, reply};

answers! {
    /// Details of a server besides its state.
    pub(crate) struct BackendDetails {
        name: String,
        /// Its `initialize` or `server/discover` result, unchanged; null while it is not connected.
        #[cfg_attr(test, schema(value_type = Option<Object>))]
        description: Option<Verbatim>,
        /// Its last 50 states, oldest first.
        history: Vec<StateChange>,
        /// Its running processes, oldest first; empty for a server with a URL.
        processes: Vec<RunningProcess>,
        /// The last 20 differing answers of its mirror, newest first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        differences: Vec<Difference>,
    }

    /// A process of a server.
    struct RunningProcess {
        /// The number in the log.
        process: u64,
        /// The process id; on Linux the id of its guard, which has started it and ends with it.
        id: Option<u32>,
        /// The owner: `Fanlight` for lists, a principal, or unauthenticated clients.
        owner: String,
        since_ms: f64,
    }
}

/// The description of the server called `name`, the changes of its state, and its processes.
pub(super) async fn answer(State(admin): AdminState, Path(name): Path<String>) -> Answer {
    let gateway = &admin.subject.gateway;
    let Some(description) = gateway.description_of(&name).await else {
        return Err(Refusal::not_found(
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
        history: admin.history.changes(&name),
        processes: running
            .into_iter()
            .map(|one| RunningProcess {
                process: one.process,
                id: one.id,
                owner: one.owner,
                since_ms: moment(one.since),
            })
            .collect(),
        name,
    }))
}
