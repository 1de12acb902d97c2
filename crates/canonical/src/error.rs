//! Failures between Fanlight and a backend.
//!
//! A JSON-RPC error that a backend answers with is not among these: it is an answer and passes
//! verbatim. These are the cases without an answer. Each says whether the request may have run (then
//! it is never sent again), and which [`Outcome`] a merged list reports for the backend. How an error
//! is worded for a client is the gateway's policy.

use std::time::Duration;

use fanlight_telemetry::ErrorType;

/// Why there is no answer from a backend. Cheap to clone; says nothing secret: no header values,
/// no environment, no command line, and URLs only as scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No connection could be made, or the process could not be started.
    #[error("cannot be reached: {reason}")]
    Unreachable {
        /// What was tried and what came of it.
        reason: String,
    },
    /// The server wants credentials that it was not given.
    #[error("refuses the credentials it was given (HTTP {status})")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
    },
    /// No answer in time.
    #[error("did not answer within {after:?}")]
    Timeout {
        /// The limit that applied.
        after: Duration,
        /// Whether the request had been handed over.
        sent: bool,
    },
    /// As many requests as allowed are running and waiting already.
    #[error("is busy: {limit} requests are running, and as many are waiting")]
    Busy {
        /// The limit that applied.
        limit: usize,
    },
    /// The process ended before it answered.
    #[error("exited before it answered{}", .status.as_deref().map(|status| format!(" ({status})")).unwrap_or_default())]
    Exited {
        /// How it ended, if that is known.
        status: Option<String>,
    },
    /// The connection was ended by Fanlight, since the server did not behave.
    #[error("was ended: {reason}")]
    GivenUp {
        /// What it did.
        reason: String,
    },
    /// The connection or stream ended before the answer.
    #[error("closed the connection before it answered")]
    ClosedEarly,
    /// As many sessions of clients as allowed are open, and none of them is idle.
    #[error("is busy: {limit} clients have a session with it, as many as the limit allows, and none is idle")]
    TooManySessions {
        /// The limit that applied.
        limit: usize,
    },
    /// A message over the limit.
    #[error("sent a message larger than {limit} bytes")]
    ResponseTooLarge {
        /// The limit that applied, in bytes.
        limit: usize,
    },
    /// Something that is no answer.
    #[error("sent no valid answer: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// An HTTP status that carries no JSON-RPC answer.
    #[error("answered with HTTP status {status}{}", hint(*.status))]
    Status {
        /// The status.
        status: u16,
    },
    /// The server speaks none of Fanlight's revisions.
    #[error("speaks no revision that Fanlight speaks: {offered}")]
    NoCommonRevision {
        /// What it offered.
        offered: String,
    },
    /// Fanlight is shutting down.
    #[error("is being shut down")]
    ShuttingDown,
}

/// What to do about a status that has one usual reason.
fn hint(status: u16) -> &'static str {
    match status {
        301 | 302 | 303 | 307 | 308 => {
            ", which redirects: configure the URL it leads to (often the same with or without `/` at the end)"
        }
        _ => "",
    }
}

/// What a merged answer reports of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It contributed.
    Ok,
    /// It took too long.
    Timeout,
    /// It wants other credentials.
    Unauthorized,
    /// It cannot be reached.
    Unreachable,
    /// It answered with an error or with nothing usable.
    Error,
}

impl Outcome {
    /// The outcome's name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
            Self::Unreachable => "unreachable",
            Self::Error => "error",
        }
    }
}

impl BackendError {
    /// Whether the backend may have carried the request out. If not, sending it again is safe.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Unauthorized { .. }
            | Self::Busy { .. }
            | Self::TooManySessions { .. }
            | Self::NoCommonRevision { .. }
            | Self::ShuttingDown => false,
            Self::Timeout { sent, .. } => *sent,
            Self::Exited { .. }
            | Self::GivenUp { .. }
            | Self::ClosedEarly
            | Self::ResponseTooLarge { .. }
            | Self::Malformed { .. }
            | Self::Status { .. } => true,
        }
    }

    /// What a merged answer reports of the backend.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Timeout { .. } => Outcome::Timeout,
            Self::Unauthorized { .. } => Outcome::Unauthorized,
            Self::Unreachable { .. }
            | Self::Exited { .. }
            | Self::GivenUp { .. }
            | Self::ClosedEarly
            | Self::ShuttingDown => Outcome::Unreachable,
            Self::Busy { .. }
            | Self::TooManySessions { .. }
            | Self::ResponseTooLarge { .. }
            | Self::Malformed { .. }
            | Self::Status { .. }
            | Self::NoCommonRevision { .. } => Outcome::Error,
        }
    }

    /// The class of error that spans and metrics name.
    #[must_use]
    pub fn error_type(&self) -> ErrorType {
        match self {
            Self::Unreachable { .. } => ErrorType::ConnectFailed,
            Self::Unauthorized { status } | Self::Status { status } => ErrorType::HttpStatus(*status),
            Self::Timeout { .. } => ErrorType::Timeout,
            Self::Busy { .. } | Self::TooManySessions { .. } => ErrorType::Overloaded,
            Self::Exited { .. } | Self::GivenUp { .. } => ErrorType::BackendExited,
            Self::ClosedEarly => ErrorType::ConnectionClosed,
            Self::ResponseTooLarge { .. } => ErrorType::ResponseTooLarge,
            Self::Malformed { .. } => ErrorType::InvalidResponse,
            Self::NoCommonRevision { .. } => ErrorType::NoCommonRevision,
            Self::ShuttingDown => ErrorType::ShuttingDown,
        }
    }
}
