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

use crate::failure::FailureDetails;
use crate::sign_in::SignInWish;

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
    #[error("{}{}", not_connected(.cause), shown(.details.as_deref()))]
    NotConnected {
        /// What it did instead.
        cause: Arc<BackendError>,
        /// What else is known of it.
        details: Option<Arc<FailureDetails>>,
    },
    /// The server is being started for the first time.
    #[error("is starting for {} s{}", .elapsed.as_secs(), .last_line.as_deref().map(|line| format!(": {line}")).unwrap_or_default())]
    Starting {
        /// How long it has taken so far.
        elapsed: Duration,
        /// What its process wrote last to standard error.
        last_line: Option<Arc<str>>,
    },
    /// The server wants credentials that it was not given.
    #[error("refuses the credentials it was given (HTTP {status})")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
    },
    /// The server wants its user to sign in first.
    #[error("wants its user to sign in")]
    SignInWanted(Arc<SignInWish>),
    /// No credentials for the server can be had.
    #[error("is not asked, because there are no credentials for it: {reason}")]
    NoCredentials {
        /// Why not.
        reason: String,
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
    /// The server answers checks, but its last calls got no answer: it is left alone for a while.
    #[error("is left alone for a while, because its last {calls} calls got no answer")]
    NoAnswers {
        /// How many calls in a row.
        calls: usize,
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
    #[error(
        "is busy: {limit} clients have a session with it, as many as the limit allows, and none is idle"
    )]
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
    /// Its messages take all memory that they may.
    #[error(
        "sent more than clients take from it: at most {limit} bytes of servers' messages are kept (`limits.memory`)"
    )]
    NoMemory {
        /// The limit for all servers, in bytes.
        limit: usize,
    },
    /// Something that is no answer.
    #[error("sent no valid answer: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// A JSON-RPC answer to `server/discover` or `initialize` that no connection can begin with.
    #[error("sent no valid answer: {reason}")]
    InvalidHandshake {
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
    /// The server has begun what was requested, as a task, and its end cannot be found out.
    #[error("has begun it, and cannot be asked how it ended: it {cause}")]
    Unfinished {
        /// Why not.
        cause: Arc<BackendError>,
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

/// The text of a failure to connect, without details.
fn not_connected(cause: &BackendError) -> String {
    match cause {
        BackendError::Unreachable { .. } => cause.to_string(),
        cause => format!("cannot be connected to: it {}", cause.what()),
    }
}

fn shown(details: Option<&FailureDetails>) -> String {
    details.map(ToString::to_string).unwrap_or_default()
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
    /// It is being started for the first time.
    Starting,
    /// It wants other credentials.
    Unauthorized,
    /// It wants the user to sign in.
    SignInNeeded,
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
            Self::Starting => "starting",
            Self::Unauthorized => "unauthorized",
            Self::SignInNeeded => "sign_in_needed",
            Self::Unreachable => "unreachable",
            Self::Error => "error",
        }
    }
}

impl BackendError {
    /// The failure of the status `status`; `pause` is the time for which the server asks to be left alone.
    #[must_use]
    pub fn of_status(status: u16, pause: Option<Duration>) -> Self {
        pause.map_or(Self::Status { status }, |pause| Self::Overloaded {
            status,
            pause,
        })
    }

    /// The same failure, of an attempt to connect: no request was sent.
    #[must_use]
    pub fn while_connecting(self) -> Self {
        if self.may_have_run() {
            Self::NotConnected {
                cause: Arc::new(self),
                details: None,
            }
        } else {
            self
        }
    }

    /// The same failure, of a request about a task that had begun before: what had been requested may have run.
    #[must_use]
    pub fn after_it_began(self) -> Self {
        if self.may_have_run() {
            self
        } else {
            Self::Unfinished {
                cause: Arc::new(self),
            }
        }
    }

    /// The same failure to connect with what else is known of it.
    #[must_use]
    pub fn with_details(self, details: FailureDetails) -> Self {
        match self {
            error if details.is_empty() => error,
            Self::NotConnected {
                cause,
                details: before,
            } => {
                let details = before
                    .as_deref()
                    .map_or(details.clone(), |before| details.after(before));
                Self::NotConnected {
                    cause,
                    details: Some(Arc::new(details)),
                }
            }
            error => Self::NotConnected {
                cause: Arc::new(error),
                details: Some(Arc::new(details)),
            },
        }
    }

    /// What else is known of a failure to connect.
    #[must_use]
    pub fn details(&self) -> Option<&FailureDetails> {
        match self {
            Self::NotConnected { details, .. } => details.as_deref(),
            _ => None,
        }
    }

    /// What happened, for operators, without the details.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::NotConnected { cause, .. } => not_connected(cause),
            other => other.to_string(),
        }
    }

    /// Whether nothing could be sent, since there was no connection or no process.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::NotConnected { cause, .. } => cause.is_unreachable(),
            _ => false,
        }
    }

    /// The text for clients.
    #[must_use]
    pub fn for_clients(&self) -> impl fmt::Display + '_ {
        ForClients(self)
    }

    /// What its user is to be shown, if that is to sign in first.
    #[must_use]
    pub fn sign_in(&self) -> Option<&SignInWish> {
        match self {
            Self::SignInWanted(wish) => Some(wish),
            Self::NotConnected { cause, .. } | Self::Unfinished { cause } => cause.sign_in(),
            _ => None,
        }
    }

    /// How long the server asks to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { pause, .. } => Some(*pause),
            Self::NotConnected { cause, .. } | Self::Unfinished { cause } => cause.retry_after(),
            _ => None,
        }
    }

    /// Whether the backend may have carried the request out. If not, sending it again is safe.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::NotConnected { .. }
            | Self::Starting { .. }
            | Self::Unauthorized { .. }
            | Self::SignInWanted(_)
            | Self::NoCredentials { .. }
            | Self::Busy { .. }
            | Self::NoAnswers { .. }
            | Self::TooManySessions { .. }
            | Self::NoCommonRevision { .. }
            | Self::ShuttingDown => false,
            Self::Timeout { sent, .. } => *sent,
            Self::Exited { .. }
            | Self::Unfinished { .. }
            | Self::GivenUp { .. }
            | Self::ClosedEarly
            | Self::Interrupted
            | Self::ResponseTooLarge { .. }
            | Self::NoMemory { .. }
            | Self::Malformed { .. }
            | Self::InvalidHandshake { .. }
            | Self::Status { .. }
            | Self::Overloaded { .. } => true,
        }
    }

    /// What a merged answer reports of the backend.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NotConnected { cause, .. } | Self::Unfinished { cause } => cause.outcome(),
            Self::Timeout { .. } | Self::NoAnswers { .. } => Outcome::Timeout,
            Self::Starting { .. } => Outcome::Starting,
            Self::Unauthorized { .. } | Self::NoCredentials { .. } => Outcome::Unauthorized,
            Self::SignInWanted(_) => Outcome::SignInNeeded,
            Self::Unreachable { .. }
            | Self::Exited { .. }
            | Self::GivenUp { .. }
            | Self::ClosedEarly
            | Self::Interrupted
            | Self::ShuttingDown => Outcome::Unreachable,
            Self::Busy { .. }
            | Self::TooManySessions { .. }
            | Self::ResponseTooLarge { .. }
            | Self::NoMemory { .. }
            | Self::Malformed { .. }
            | Self::InvalidHandshake { .. }
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
            Self::NotConnected { cause, .. } | Self::Unfinished { cause } => cause.error_type(),
            Self::Unauthorized { status }
            | Self::Status { status }
            | Self::Overloaded { status, .. } => ErrorType::HttpStatus(*status),
            Self::SignInWanted(_) | Self::NoCredentials { .. } => ErrorType::NoCredentials,
            Self::Timeout { .. } | Self::Starting { .. } => ErrorType::Timeout,
            Self::Busy { .. } | Self::TooManySessions { .. } | Self::NoMemory { .. } => {
                ErrorType::Overloaded
            }
            Self::NoAnswers { .. } => ErrorType::Ejected,
            Self::Exited { .. } | Self::GivenUp { .. } => ErrorType::BackendExited,
            Self::ClosedEarly => ErrorType::ConnectionClosed,
            Self::ResponseTooLarge { .. } => ErrorType::ResponseTooLarge,
            Self::Malformed { .. } | Self::InvalidHandshake { .. } => ErrorType::InvalidResponse,
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
            E::NotConnected { cause, details } => {
                match &**cause {
                    // Until the handshake is over, its words are for the operator.
                    E::Malformed { .. } | E::InvalidHandshake { .. } => {
                        f.write_str("cannot be connected to: it sent no valid answer")
                    }
                    E::Unreachable { .. } => write!(f, "{}", cause.for_clients()),
                    cause => write!(f, "cannot be connected to: it {}", cause.for_clients()),
                }?;
                match details.as_ref().and_then(|details| details.remedy.as_ref()) {
                    Some(remedy) => write!(f, ": {}", remedy.kind.for_clients()),
                    None => Ok(()),
                }
            }
            E::Unfinished { cause } => {
                write!(
                    f,
                    "has begun it, and cannot be asked how it ended: it {}",
                    cause.for_clients()
                )
            }
            E::Starting { elapsed, .. } => {
                write!(
                    f,
                    "is still starting, for {} s now (a first start may have to install it)",
                    elapsed.as_secs()
                )
            }
            E::NoCommonRevision { .. } => f.write_str("speaks no revision that Fanlight speaks"),
            E::InvalidHandshake { .. } => f.write_str("sent no valid answer"),
            E::NoCredentials { .. } => {
                f.write_str("cannot be signed in to at the moment; ask the gateway's operator")
            }
            error @ (E::Unauthorized { .. }
            | E::SignInWanted(_)
            | E::Timeout { .. }
            | E::Busy { .. }
            | E::NoAnswers { .. }
            | E::Exited { .. }
            | E::GivenUp { .. }
            | E::ClosedEarly
            | E::TooManySessions { .. }
            | E::ResponseTooLarge { .. }
            | E::NoMemory { .. }
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
    use crate::failure::RemedyKind;

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
            assert_eq!(
                (connecting.outcome(), connecting.retry_after()),
                (error.outcome(), error.retry_after())
            );
        }
        let unreachable = BackendError::Unreachable { reason: "r".into() };
        assert_eq!(unreachable.clone().while_connecting(), unreachable);
    }

    #[test]
    fn failure_after_a_task_began_may_have_run() {
        let unreachable = BackendError::Unreachable {
            reason: "10.1.2.3".into(),
        };
        let error = unreachable.after_it_began();
        assert!(
            error.may_have_run() && !error.for_clients().to_string().contains("10.1.2.3"),
            "{error}"
        );
        assert_eq!(error.outcome(), Outcome::Unreachable);
        assert_eq!(
            BackendError::ClosedEarly.after_it_began(),
            BackendError::ClosedEarly
        );
    }

    #[test]
    fn details_keep_the_remedy_that_was_found_first() {
        let error = BackendError::Unreachable { reason: "r".into() }
            .with_details(FailureDetails::of_remedy(RemedyKind::Program, "install it"))
            .with_details(FailureDetails {
                stderr: vec!["a".into(), "b".into()],
                stdout: vec!["c".into()],
                ..FailureDetails::of_remedy(RemedyKind::Time, "wait")
            });
        assert_eq!(error.what(), "cannot be reached: r");
        let text = "cannot be reached: r; it wrote last: a | b; it wrote to standard output, which is for messages \
                    alone: c; install it";
        assert_eq!(error.to_string(), text);
        assert!(error.is_unreachable() && !error.may_have_run());
        assert_eq!(
            (error.outcome(), error.error_type()),
            (Outcome::Unreachable, ErrorType::ConnectFailed)
        );
        let shown = "cannot be reached: what it needs is not installed on the gateway's machine; ask the gateway's operator";
        assert_eq!(error.for_clients().to_string(), shown);
    }

    #[test]
    fn clients_are_not_shown_what_is_for_operators() {
        let said = "10.1.2.3:4567 db.internal /srv/secret --token=x certificate";
        let details = || FailureDetails {
            stderr: vec![said.into()],
            ..FailureDetails::default()
        };
        for error in [
            BackendError::Unreachable {
                reason: said.into(),
            },
            BackendError::Malformed {
                reason: said.into(),
            }
            .while_connecting(),
            BackendError::NoCommonRevision {
                offered: said.into(),
            },
            BackendError::Unreachable { reason: "r".into() }.with_details(details()),
            BackendError::Timeout {
                after: Duration::ZERO,
                sent: false,
            }
            .with_details(details()),
            BackendError::Exited { status: None }
                .while_connecting()
                .with_details(details()),
            BackendError::Unreachable { reason: "r".into() }.with_details(FailureDetails {
                stdout: vec![said.into()],
                ..FailureDetails::default()
            }),
            BackendError::Unauthorized { status: 401 }
                .with_details(FailureDetails::of_remedy(RemedyKind::Credentials, said)),
            BackendError::Starting {
                elapsed: Duration::ZERO,
                last_line: Some(said.into()),
            },
        ] {
            assert!(!error.may_have_run(), "{error}");
            assert!(
                error.to_string().contains(said),
                "the operator is not shown it: {error}"
            );
            let shown = error.for_clients().to_string();
            assert!(!said.split(' ').any(|word| shown.contains(word)), "{shown}");
        }
    }
}
