//! Whether a server whose base connection is modern serves the legacy era, too.
//!
//! 2026-07-28 basic/versioning lets a server offer both: `initialize` opens a session with legacy semantics. Whether it
//! does shows with the first client that would be served in that era, and is remembered for as long as the base
//! connection lasts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fanlight_canonical::BackendError;
use fanlight_protocol::result::ServerDescription;

use crate::connection::Connection;

/// Facts about a server's legacy era.
#[derive(Default)]
pub(super) struct LegacyEra(Mutex<Option<Known>>);

struct Known {
    /// The base connection during which it was found out.
    base: Weak<Connection>,
    finding: Finding,
}

/// What came of `initialize`.
#[derive(Clone)]
pub(super) enum Finding {
    /// The server opened a session and described itself.
    Served(ServerDescription),
    /// The server refused.
    NotServed,
}

impl LegacyEra {
    /// What was found out during this base connection; `None` if nothing was.
    pub(super) fn finding(&self, base: &Arc<Connection>) -> Option<Finding> {
        let known = self.lock();
        known
            .as_ref()
            .filter(|known| known.is_of(base))
            .map(|known| known.finding.clone())
    }

    /// Whether the server is known not to serve it.
    pub(super) fn is_refused(&self, base: &Arc<Connection>) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|known| known.is_of(base) && matches!(known.finding, Finding::NotServed))
    }

    /// Records the first finding during a base connection.
    pub(super) fn record(&self, base: &Arc<Connection>, finding: impl FnOnce() -> Finding) {
        let mut known = self.lock();
        if !known.as_ref().is_some_and(|known| known.is_of(base)) {
            *known = Some(Known {
                base: Arc::downgrade(base),
                finding: finding(),
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_of(&self, base: &Arc<Connection>) -> bool {
        std::ptr::eq(self.base.as_ptr(), Arc::as_ptr(base))
    }
}

/// What a failed `initialize` reveals about a modern server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It does not serve the legacy era.
    Era,
    /// It cannot say at the moment.
    Unclear,
    /// Nothing can be sent to it now, in whichever era.
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
