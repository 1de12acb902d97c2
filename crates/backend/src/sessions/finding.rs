//! A finding about a server that holds for one base connection: whether a server with a modern base
//! connection serves the legacy era, too.
//!
//! 2026-07-28 basic/versioning lets a server offer both: `initialize` opens a session with legacy
//! semantics. The first client that needs the legacy era shows whether it does.

use std::sync::{Arc, Weak};

use fanlight_canonical::BackendError;
use fanlight_protocol::result::ServerDescription;
use parking_lot::Mutex;

use crate::connection::Connection;

/// A fact about a server that holds for one base connection.
pub(super) struct Finding<T>(Mutex<Option<(Weak<Connection>, T)>>);

impl<T> Default for Finding<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Finding<T> {
    /// The fact on this connection, or on the last one if there is none now.
    pub(super) fn find(&self, base: Option<&Arc<Connection>>) -> Option<T> {
        let known = self.0.lock();
        let known = known.as_ref();
        let current = known.filter(|(on, _)| base.is_none_or(|base| is_of(on, base)));
        current.map(|(_, fact)| fact.clone())
    }

    /// Records the fact, unless one is known on this connection.
    pub(super) fn record(&self, base: &Arc<Connection>, fact: T) {
        let mut known = self.0.lock();
        if !known.as_ref().is_some_and(|(on, _)| is_of(on, base)) {
            *known = Some((Arc::downgrade(base), fact));
        }
    }
}

fn is_of(on: &Weak<Connection>, base: &Arc<Connection>) -> bool {
    std::ptr::eq(on.as_ptr(), Arc::as_ptr(base))
}

/// Whether a server serves the legacy era, by the outcome of `initialize`.
#[derive(Clone)]
pub(super) enum LegacyEra {
    /// The server opened a session and described itself.
    Served(ServerDescription),
    /// The server refused.
    NotServed,
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
    pub(super) fn classify(error: &BackendError) -> Self {
        match error.cause() {
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
