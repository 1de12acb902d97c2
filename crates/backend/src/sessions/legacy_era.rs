//! Determines whether a server with a modern base connection serves the legacy era, too.
//!
//! 2026-07-28 basic/versioning lets a server offer both: `initialize` opens a session with legacy
//! semantics. The first client that needs the legacy era shows whether it does. The finding is kept
//! as long as the base connection.

use fanlight_canonical::BackendError;
use fanlight_protocol::result::ServerDescription;

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
