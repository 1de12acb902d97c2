//! Whether clients' requests can be served.

use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::{BackendError, BackendState};
use fanlight_gateway::Gateway;
use fanlight_protocol::{ArrayBuilder, Json, ObjectBuilder};
use tokio_util::sync::CancellationToken;

use crate::{Subject, to_json};

/// Ready while at least one server is usable. After the start, every server's first attempt to
/// connect has to end before. `settled` remembers that: later attempts do not count, nor do servers
/// that a reload adds, since neither may make the others unavailable.
pub(crate) fn is_ready(
    gateway: &Gateway,
    draining: &CancellationToken,
    settled: &AtomicBool,
) -> bool {
    let status = gateway.status_of_shown();
    let usable = status.iter().any(|status| status.state.is_usable());
    if status.iter().all(|status| status.attempted) {
        settled.store(true, Ordering::Relaxed);
    }
    usable && settled.load(Ordering::Relaxed) && !draining.is_cancelled()
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
