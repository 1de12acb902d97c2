//! Determines whether a server with a modern base connection serves the legacy era, too.
//!
//! 2026-07-28 basic/versioning lets a server offer both: `initialize` opens a session with legacy
//! semantics. The first client that needs the legacy era shows whether it does. The finding is kept
//! as long as the base connection.

use std::sync::{Arc, Weak};

use fanlight_canonical::BackendError;
use fanlight_protocol::result::ServerDescription;
use parking_lot::Mutex;

use crate::connection::Connection;

/// Facts about a server's legacy era.
#[derive(Default)]
pub(super) struct LegacyEra(Mutex<Option<Known>>);

struct Known {
    /// The base connection at the time of the finding.
    base: Weak<Connection>,
    finding: Finding,
}

/// The outcome of `initialize`.
#[derive(Clone)]
pub(super) enum Finding {
    /// The server opened a session and described itself.
    Served(ServerDescription),
    /// The server refused.
    NotServed,
}

impl LegacyEra {
    /// The finding during this base connection, if there is one.
    pub(super) fn finding(&self, base: &Arc<Connection>) -> Option<Finding> {
        let known = self.0.lock();
        known
            .as_ref()
            .filter(|known| known.is_of(base))
            .map(|known| known.finding.clone())
    }

    /// Whether the server is known not to serve the legacy era.
    pub(super) fn is_refused(&self, base: &Arc<Connection>) -> bool {
        self.0
            .lock()
            .as_ref()
            .is_some_and(|known| known.is_of(base) && matches!(known.finding, Finding::NotServed))
    }

    /// Records the first finding during a base connection.
    pub(super) fn record(&self, base: &Arc<Connection>, finding: impl FnOnce() -> Finding) {
        let mut known = self.0.lock();
        if !known.as_ref().is_some_and(|known| known.is_of(base)) {
            *known = Some(Known {
                base: Arc::downgrade(base),
                finding: finding(),
            });
        }
    }
}

impl Known {
    fn is_of(&self, base: &Arc<Connection>) -> bool {
        std::ptr::eq(self.base.as_ptr(), Arc::as_ptr(base))
    }
}

/// The meaning of a failed `initialize` at a modern server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server does not serve the legacy era.
    Era,
    /// The server cannot tell at the moment.
    Unclear,
    /// Nothing can be sent to the server now, in either era.
    Unusable,
}

impl Refusal {
    pub(super) fn of(error: &BackendError) -> Self {
        match error {
            BackendError::NotConnected { cause, .. } => Self::of(cause),
            BackendError::Overloaded { .. } | BackendError::Status { status: 408 | 429 } => {
                Self::Unclear
            }
            BackendError::Malformed { .. }
            | BackendError::InvalidHandshake { .. }
            | BackendError::NoCommonRevision { .. }
            | BackendError::ClosedEarly
            | BackendError::Exited { .. }
            | BackendError::Timeout { .. }
            | BackendError::Status { status: 400..500 } => Self::Era,
            BackendError::Status { .. } => Self::Unclear,
            _ => Self::Unusable,
        }
    }
}
