//! Failures between Fanlight and a backend.
//!
//! A JSON-RPC error that a backend answers with is not among these: it is an answer and passes
//! verbatim. These are the cases without an answer. Each says whether the request may have run (then
//! it is never sent again), and which [`Outcome`] a merged list reports for the backend. How an error
//! is worded for a client is the gateway's policy.
//!
//! An error says two things: to the operator, with [`Display`](fmt::Display), what happened and where; to a client,
//! with [`BackendError::for_clients`], only what it can act on. Addresses, names of hosts, commands, paths, and what a
//! server said before it served anything are for the operator.

use std::fmt;
use std::sync::Arc;
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
    /// The server was reached, but no connection to it could be made: it failed the handshake.
    #[error("cannot be connected to: it {cause}{}", shown(.output.as_deref()))]
    NotConnected {
        /// What it did instead.
        cause: Arc<BackendError>,
        /// What its process wrote last.
        output: Option<Arc<str>>,
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
    /// An HTTP status that carries no JSON-RPC answer, but says when to come again.
    #[error("answered with HTTP status {status} and asks to be left alone for {pause:?}")]
    Overloaded {
        /// The status, such as 429 or 503.
        status: u16,
        /// The time that it asks for.
        pause: Duration,
    },
    /// The server speaks none of Fanlight's revisions.
    #[error("speaks no revision that Fanlight speaks: {offered}")]
    NoCommonRevision {
        /// What it offered.
        offered: String,
    },
    /// Fanlight was shut down while the backend was at it.
    #[error("had not answered when Fanlight was shut down")]
    Interrupted,
    /// Fanlight is shutting down.
    #[error("is being shut down")]
    ShuttingDown,
}

/// The end of an error's text.
fn shown(output: Option<&str>) -> String {
    output.map(|output| format!("; it wrote last: {output}")).unwrap_or_default()
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
    /// The failure of the status `status`; `pause` is the time for which the server asks to be left alone.
    #[must_use]
    pub fn of_status(status: u16, pause: Option<Duration>) -> Self {
        pause.map_or(Self::Status { status }, |pause| Self::Overloaded { status, pause })
    }

    /// The same failure, of an attempt to connect: no request was sent.
    #[must_use]
    pub fn while_connecting(self) -> Self {
        if self.may_have_run() { Self::NotConnected { cause: Arc::new(self), output: None } } else { self }
    }

    /// The same failure to connect, for operators with what the process wrote last.
    #[must_use]
    pub fn with_output(self, output: Option<Arc<str>>) -> Self {
        match self {
            error if output.is_none() => error,
            Self::Unreachable { reason } => Self::Unreachable { reason: reason + &shown(output.as_deref()) },
            Self::NotConnected { cause, .. } => Self::NotConnected { cause, output },
            error => Self::NotConnected { cause: Arc::new(error), output },
        }
    }

    /// The text for clients.
    #[must_use]
    pub fn for_clients(&self) -> impl fmt::Display + '_ {
        ForClients(self)
    }

    /// How long the server asks to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { pause, .. } => Some(*pause),
            Self::NotConnected { cause, .. } => cause.retry_after(),
            _ => None,
        }
    }

    /// Whether the backend may have carried the request out. If not, sending it again is safe.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::NotConnected { .. }
            | Self::Unauthorized { .. }
            | Self::Busy { .. }
            | Self::TooManySessions { .. }
            | Self::NoCommonRevision { .. }
            | Self::ShuttingDown => false,
            Self::Timeout { sent, .. } => *sent,
            Self::Exited { .. }
            | Self::GivenUp { .. }
            | Self::ClosedEarly
            | Self::Interrupted
            | Self::ResponseTooLarge { .. }
            | Self::Malformed { .. }
            | Self::Status { .. }
            | Self::Overloaded { .. } => true,
        }
    }

    /// What a merged answer reports of the backend.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NotConnected { cause, .. } => cause.outcome(),
            Self::Timeout { .. } => Outcome::Timeout,
            Self::Unauthorized { .. } => Outcome::Unauthorized,
            Self::Unreachable { .. }
            | Self::Exited { .. }
            | Self::GivenUp { .. }
            | Self::ClosedEarly
            | Self::Interrupted
            | Self::ShuttingDown => Outcome::Unreachable,
            Self::Busy { .. }
            | Self::TooManySessions { .. }
            | Self::ResponseTooLarge { .. }
            | Self::Malformed { .. }
            | Self::Status { .. }
            | Self::Overloaded { .. }
            | Self::NoCommonRevision { .. } => Outcome::Error,
        }
    }

    /// The class of error that spans and metrics name.
    #[must_use]
    pub fn error_type(&self) -> ErrorType {
        match self {
            Self::Unreachable { .. } => ErrorType::ConnectFailed,
            Self::NotConnected { cause, .. } => cause.error_type(),
            Self::Unauthorized { status } | Self::Status { status } | Self::Overloaded { status, .. } => {
                ErrorType::HttpStatus(*status)
            }
            Self::Timeout { .. } => ErrorType::Timeout,
            Self::Busy { .. } | Self::TooManySessions { .. } => ErrorType::Overloaded,
            Self::Exited { .. } | Self::GivenUp { .. } => ErrorType::BackendExited,
            Self::ClosedEarly => ErrorType::ConnectionClosed,
            Self::ResponseTooLarge { .. } => ErrorType::ResponseTooLarge,
            Self::Malformed { .. } => ErrorType::InvalidResponse,
            Self::NoCommonRevision { .. } => ErrorType::NoCommonRevision,
            Self::ShuttingDown | Self::Interrupted => ErrorType::ShuttingDown,
        }
    }
}

/// An error as clients are shown it. Every kind is listed, so that a new one is not shown by default.
struct ForClients<'a>(&'a BackendError);

impl fmt::Display for ForClients<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use BackendError as E;
        match self.0 {
            E::Unreachable { .. } => f.write_str("cannot be reached"),
            E::NotConnected { cause, .. } => match &**cause {
                // Until the handshake is over, its words are for the operator.
                E::Malformed { .. } => f.write_str("cannot be connected to: it sent no valid answer"),
                cause => write!(f, "cannot be connected to: it {}", cause.for_clients()),
            },
            E::NoCommonRevision { .. } => f.write_str("speaks no revision that Fanlight speaks"),
            error @ (E::Unauthorized { .. }
            | E::Timeout { .. }
            | E::Busy { .. }
            | E::Exited { .. }
            | E::GivenUp { .. }
            | E::ClosedEarly
            | E::TooManySessions { .. }
            | E::ResponseTooLarge { .. }
            | E::Malformed { .. }
            | E::Status { .. }
            | E::Overloaded { .. }
            | E::Interrupted
            | E::ShuttingDown) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_to_connect_is_no_failure_of_a_request() {
        for error in [
            BackendError::Exited { status: None },
            BackendError::ClosedEarly,
            BackendError::Malformed { reason: "r".into() },
            BackendError::of_status(503, Some(Duration::from_secs(7))),
        ] {
            assert!(error.may_have_run());
            let connecting = error.clone().while_connecting();
            assert!(!connecting.may_have_run(), "{connecting}");
            assert_eq!((connecting.outcome(), connecting.retry_after()), (error.outcome(), error.retry_after()));
        }
        let unreachable = BackendError::Unreachable { reason: "r".into() };
        assert_eq!(unreachable.clone().while_connecting(), unreachable);
    }

    #[test]
    fn clients_are_not_shown_what_is_for_operators() {
        let said = "10.1.2.3:4567 db.internal /srv/secret --token=x certificate";
        for error in [
            BackendError::Unreachable { reason: said.into() },
            BackendError::Malformed { reason: said.into() }.while_connecting(),
            BackendError::NoCommonRevision { offered: said.into() },
            BackendError::Unreachable { reason: "r".into() }.with_output(Some(said.into())),
            BackendError::Timeout { after: Duration::ZERO, sent: false }.with_output(Some(said.into())),
            BackendError::Exited { status: None }.while_connecting().with_output(Some(said.into())),
        ] {
            assert!(!error.may_have_run(), "{error}");
            assert!(error.to_string().contains(said), "the operator is not shown it: {error}");
            let shown = error.for_clients().to_string();
            assert!(!said.split(' ').any(|word| shown.contains(word)), "{shown}");
        }
    }
}
