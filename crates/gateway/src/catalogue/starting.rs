//! How long answers wait for servers that are still starting.
//!
//! Many clients read lists once and ignore changes, so a list waits until most servers have
//! started. The client is notified of the rest.

use std::time::Duration;

use fanlight_canonical::{BackendClient, BackendError, BackendState, BackendStatus, Starting};

/// How long a client's list waits for a starting server, counted from the attempt to connect. No
/// option: most servers start faster, and later ones are announced.
fn list_wait() -> Duration {
    fanlight_fair::limit("listWait", Duration::from_secs(10))
}

/// How long a description of several servers waits. Without a server it promises every list.
const DESCRIPTION_WAIT: Duration = Duration::from_secs(3);

/// How long a reading waits for a starting server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The wait lasts until [`DESCRIPTION_WAIT`] after the server began to start.
    Description,
    /// The wait lasts until [`list_wait`] after the server began to start.
    Brief,
    /// The wait lasts for the whole time that reading a list may take.
    Whole,
}

impl Wait {
    /// The time to wait, at most `limit`.
    pub(super) fn time(self, backend: &dyn BackendClient, limit: Duration) -> Duration {
        let wait = match self {
            Self::Description => DESCRIPTION_WAIT,
            Self::Brief => list_wait(),
            Self::Whole => return limit,
        };
        match start_of(&backend.status()) {
            Some(start) => wait.saturating_sub(start.elapsed).min(limit),
            None => limit,
        }
    }
}

/// Whether the server is starting and has not failed.
pub(crate) fn is_starting(backend: &dyn BackendClient) -> bool {
    start_of(&backend.status()).is_some()
}

fn start_of(status: &BackendStatus) -> Option<&Starting> {
    let is_first = matches!(status.state, BackendState::Connecting) && status.failure.is_none();
    status.starting.as_ref().filter(|_| is_first)
}

/// The error for a server that has not answered in time.
pub(super) fn late_error(backend: &dyn BackendClient, limit: Duration) -> BackendError {
    let status = backend.status();
    match start_of(&status) {
        Some(Starting {
            elapsed, last_line, ..
        }) if status.transport == "stdio" => BackendError::Starting {
            elapsed: *elapsed,
            last_line: last_line.clone(),
        },
        _ => BackendError::Timeout {
            after: limit,
            sent: true,
        },
    }
}
