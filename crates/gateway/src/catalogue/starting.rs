//! Backends that are being started, and how long an answer that can do without one waits for it.
//!
//! A client is to be served at once with what there is, and notified of the rest: one slow server must not delay all others.
//! A short wait remains, since some clients read lists once and take no notice of changes.

use std::time::Duration;

use fanlight_canonical::{BackendClient, BackendError, BackendState, BackendStatus, Starting};

/// How long after the beginning of an attempt to connect a client's list or description waits for the backend. No option:
/// most servers start faster, and what it does not wait for is announced.
const WAITED_FOR: Duration = Duration::from_secs(3);

/// Whether a reading waits for a backend that is being started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// No longer than a client's list may be delayed by it.
    Brief,
    /// As long as reading a list may take.
    Whole,
}

impl Wait {
    /// The time to wait, of at most `limit`.
    pub(super) fn time(self, backend: &dyn BackendClient, limit: Duration) -> Duration {
        match (self, start_of(&backend.status())) {
            (Self::Brief, Some(start)) => WAITED_FOR.saturating_sub(start.elapsed).min(limit),
            _ => limit,
        }
    }
}

/// Whether a backend is being started, and has not failed to.
pub(crate) fn is_starting(backend: &dyn BackendClient) -> bool {
    start_of(&backend.status()).is_some()
}

fn start_of(status: &BackendStatus) -> Option<&Starting> {
    let is_first = matches!(status.state, BackendState::Connecting) && status.failure.is_none();
    status.starting.as_ref().filter(|_| is_first)
}

/// The error of a backend that has not answered in time.
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
