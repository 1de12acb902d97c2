//! Whether clients' requests can be served.

use fanlight_canonical::{BackendError, BackendState};
use fanlight_gateway::Gateway;
use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use tokio_util::sync::CancellationToken;

use crate::Subject;
use crate::values::to_json;

/// Ready once every server's first attempt to connect has ended, while at least one server is
/// usable.
pub(crate) fn is_ready(gateway: &Gateway, draining: &CancellationToken) -> bool {
    let status = gateway.status_of_shown();
    let usable = status.iter().any(|status| is_usable(&status.state));
    // Later attempts do not count: an unstable server must not make the others unavailable.
    let attempted = status.iter().all(|status| status.attempted);
    usable && attempted && !draining.is_cancelled()
}

/// Whether requests can be sent. An ejected server counts, since only calls show that it answers
/// again, and a gateway that is not ready gets none.
fn is_usable(state: &BackendState) -> bool {
    matches!(
        state,
        BackendState::Ready | BackendState::Idle | BackendState::Ejected { .. }
    )
}

/// The reason why a server is not used.
pub(crate) fn reason(state: &BackendState) -> Option<&BackendError> {
    match state {
        BackendState::Down { error, .. }
        | BackendState::Failed { error }
        | BackendState::Ejected { error, .. } => Some(error),
        BackendState::Idle | BackendState::Connecting | BackendState::Ready => None,
    }
}

/// The readiness as JSON; `details` adds the servers and replicas.
pub(crate) fn report(subject: &Subject, is_ready: bool, details: bool) -> Json {
    let mut report = ObjectBuilder::new();
    report.member("ready", &to_json(&is_ready));
    if details {
        let mut backends = ArrayBuilder::default();
        for (name, status) in subject.gateway.status() {
            let mut backend = ObjectBuilder::new();
            backend
                .string("name", &name)
                .string("transport", status.transport);
            backend.string("state", state(&status.state));
            if let (Some(era), Some(revision)) = (status.era, status.revision) {
                backend
                    .string("era", &era.to_string())
                    .string("revision", revision);
            }
            if let Some(error) = reason(&status.state) {
                backend.string("error", &error.to_string());
            }
            backends.push(&backend.finish());
        }
        report.member("backends", &backends.finish());
        if let Some(replicas) = &subject.replicas {
            report.member("replicas", &to_json(&replicas.view()));
        }
    }
    report.finish()
}

/// The name of a state in the API.
pub(crate) fn state(state: &BackendState) -> &'static str {
    match state {
        BackendState::Idle => "idle",
        BackendState::Connecting => "connecting",
        BackendState::Ready => "ready",
        BackendState::Ejected { .. } => "ejected",
        BackendState::Down { .. } => "down",
        BackendState::Failed { .. } => "failed",
    }
}
