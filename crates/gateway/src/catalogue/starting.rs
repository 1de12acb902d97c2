//! How long answers wait for servers that are still starting.
//!
//! A client gets the available entries at once and is notified of the rest, so that one slow server
//! does not delay all others. A short wait remains, because some clients read lists once and ignore
//! changes.

use std::time::Duration;

use fanlight_canonical::{BackendClient, BackendError, BackendState, BackendStatus, Starting};

/// How long a client's list or description waits for a starting server, counted from the attempt to
/// connect. No option: most servers start faster, and later ones are announced.
const WAITED_FOR: Duration = Duration::from_secs(3);

/// How long a reading waits for a starting server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Until [`WAITED_FOR`] after the server began to start.
    Brief,
    /// For the whole time that reading a list may take.
    Whole,
}

impl Wait {
    /// The time to wait, at most `limit`.
    pub(super) fn time(self, backend: &dyn BackendClient, limit: Duration) -> Duration {
        match (self, start_of(&backend.status())) {
            (Self::Brief, Some(start)) => WAITED_FOR.saturating_sub(start.elapsed).min(limit),
            _ => limit,
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
pub(super) fn late(backend: &dyn BackendClient, limit: Duration) -> BackendError {
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
