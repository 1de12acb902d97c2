//! Failures between Fanlight and a server.
//!
//! A JSON-RPC error from a server is not one of these: it is an answer and passes verbatim. These
//! are the cases without an answer. Each says whether the request may have run; if so, it is never
//! sent again. Each also says which [`Outcome`] a merged list reports for the server. The gateway
//! words the error for clients.
//!
//! An error has two texts. Operators get [`Display`](fmt::Display): what happened and where.
//! Clients get [`BackendError::for_clients`]: only what they can act on. Addresses, host names,
//! commands, paths, and a server's words before the handshake are for operators alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fanlight_telemetry::ErrorType;

use crate::failure::FailureDetails;

/// The reason why there is no answer from a server. It is cheap to clone and contains no secrets:
/// no header values, no environment, no command line, and URLs only as scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No connection could be made, or the process could not be started.
    #[error("cannot be reached: {reason}")]
    Unreachable {
        /// The attempt that was made, and its failure.
        reason: String,
    },
    /// The server was reached, but failed the handshake.
    #[error("{}{}", not_connected(.cause), describe(.details.as_deref()))]
    NotConnected {
        /// The failure of the handshake.
        cause: Arc<BackendError>,
        /// Further details of the failure.
        details: Option<Arc<FailureDetails>>,
    },
    /// The server is being started for the first time.
    #[error("is starting for {} s{}", .elapsed.as_secs(), .last_line.as_deref().map(|line| format!(": {line}")).unwrap_or_default())]
    Starting {
        /// The time since the start.
        elapsed: Duration,
        /// The last line that its process wrote to standard error.
        last_line: Option<Arc<str>>,
    },
    /// The server rejected the credentials, or requires some that it did not get.
    #[error("refuses the credentials it was given (HTTP {status})")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
    },
    /// The server requires its user to sign in first.
    #[error("requires its user to sign in")]
    SignInWanted(Arc<SignInWish>),
    /// There are no credentials for the server.
    #[error("got no request, because there are no credentials for it: {reason}")]
    NoCredentials {
        /// The reason.
        reason: String,
    },
    /// The server did not answer in time.
    #[error("did not answer within {after:?}")]
    Timeout {
        /// The limit that applied.
        after: Duration,
        /// Whether the request had been sent.
        sent: bool,
    },
    /// The allowed numbers of running and waiting requests are reached.
    #[error("is busy: {limit} requests are running, and as many are waiting")]
    Busy {
        /// The limit that applied.
        limit: usize,
    },
    /// The server answers checks, but not its last calls, so Fanlight sends it no calls for a
    /// while.
    #[error("gets no calls for a while, because its last {calls} calls got no answer")]
    NoAnswers {
        /// The number of unanswered calls in a row.
        calls: usize,
    },
    /// The process ended before it answered.
    #[error("exited before it answered{}", .status.as_deref().map(|status| format!(" ({status})")).unwrap_or_default())]
    Exited {
        /// The exit status, if known.
        status: Option<String>,
    },
    /// Fanlight ended the connection, because the server misbehaved.
    #[error("was ended: {reason}")]
    GivenUp {
        /// How the server misbehaved.
        reason: String,
    },
    /// The connection or stream ended before the answer.
    #[error("closed the connection before it answered")]
    ClosedEarly,
    /// The allowed number of client sessions is open, and none is idle.
    #[error(
        "is busy: {limit} clients have a session with it, as many as the limit allows, and none is idle"
    )]
    TooManySessions {
        /// The limit that applied.
        limit: usize,
    },
    /// The server sent a message over the size limit.
    #[error("sent a message larger than {limit} bytes")]
    ResponseTooLarge {
        /// The limit that applied, in bytes.
        limit: usize,
    },
    /// The server's messages use all memory that they may.
    #[error(
        "sent more than clients take from it: at most {limit} bytes of servers' messages are kept (`limits.memory`)"
    )]
    NoMemory {
        /// The limit for all servers, in bytes.
        limit: usize,
    },
    /// The server sent something that is not a valid answer.
    #[error("sent no valid answer: {reason}")]
    Malformed {
        /// The fault in the answer.
        reason: String,
    },
    /// The answer to `server/discover` or `initialize` is JSON-RPC, but no connection can begin
    /// with it.
    #[error("sent no valid answer: {reason}")]
    InvalidHandshake {
        /// The fault in the answer.
        reason: String,
    },
    /// An HTTP status without a JSON-RPC answer.
    #[error("answered with HTTP status {status}{}", hint(*.status))]
    Status {
        /// The status.
        status: u16,
    },
    /// An HTTP status without a JSON-RPC answer, but with the time of the next attempt.
    #[error("answered with HTTP status {status} and asks for a pause of {pause:?}")]
    Overloaded {
        /// The status, such as 429 or 503.
        status: u16,
        /// The pause that the server asks for.
        pause: Duration,
    },
    /// The server has begun the request as a task, and Fanlight cannot find out how it ended.
    #[error("has begun the request, but Fanlight cannot find out how it ended: it {cause}")]
    Unfinished {
        /// The reason.
        cause: Arc<BackendError>,
    },
    /// The server speaks none of Fanlight's revisions.
    #[error("shares no protocol revision with Fanlight: {offered}")]
    NoCommonRevision {
        /// The revisions that it offered.
        offered: String,
    },
    /// Fanlight was shut down before the server answered.
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
        cause => format!("cannot be connected to: it {}", cause.summary()),
    }
}

fn describe(details: Option<&FailureDetails>) -> String {
    details.map(ToString::to_string).unwrap_or_default()
}

/// A hint for a status that usually has one reason.
fn hint(status: u16) -> &'static str {
    match status {
        301 | 302 | 303 | 307 | 308 => {
            ", which redirects, perhaps in a circle: configure the URL it leads to (often the same with or without `/` at the end)"
        }
        _ => "",
    }
}

fanlight_protocol::named! {
    /// The outcome of a server in a merged answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Outcome {
        /// The server contributed.
        Ok = "ok",
        /// The server took too long.
        Timeout = "timeout",
        /// The server is starting for the first time.
        Starting = "starting",
        /// The server requires other credentials.
        Unauthorized = "unauthorized",
        /// The server requires the user to sign in.
        SignInNeeded = "sign_in_needed",
        /// The server cannot be reached.
        Unreachable = "unreachable",
        /// The server answered with an error or with nothing usable.
        Error = "error",
    }
}

impl BackendError {
    /// The failure for an HTTP status. `pause` is the pause that the server asks for.
    pub fn from_status(status: u16, pause: Option<Duration>) -> Self {
        pause.map_or(Self::Status { status }, |pause| Self::Overloaded {
            status,
            pause,
        })
    }

    /// The same failure during an attempt to connect, when no request was sent.
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

    /// The underlying error, also of a failed attempt to connect.
    pub fn cause(&self) -> &Self {
        match self {
            Self::NotConnected { cause, .. } => cause,
            other => other,
        }
    }

    /// The same failure of a request about a running task. The original request may have run.
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

    /// Adds details to a failure to connect.
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

    /// The details of a failure to connect.
    pub fn details(&self) -> Option<&FailureDetails> {
        match self {
            Self::NotConnected { details, .. } => details.as_deref(),
            _ => None,
        }
    }

    /// The failure for operators, without the details.
    pub fn summary(&self) -> String {
        match self {
            Self::NotConnected { cause, .. } => not_connected(cause),
            other => other.to_string(),
        }
    }

    /// Whether nothing could be sent because there was no connection or process.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::NotConnected { cause, .. } => cause.is_unreachable(),
            _ => false,
        }
    }

    /// The text for clients.
    pub fn for_clients(&self) -> impl fmt::Display + '_ {
        ForClients(self)
    }

    /// The sign-in that the user has to do first, if that is the failure.
    pub fn sign_in(&self) -> Option<&SignInWish> {
        match self {
            Self::SignInWanted(wish) => Some(wish),
            Self::NotConnected { cause, .. } | Self::Unfinished { cause } => cause.sign_in(),
            _ => None,
        }
    }

    /// The pause that the server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { pause, .. } => Some(*pause),
            Self::NotConnected { cause, .. } | Self::Unfinished { cause } => cause.retry_after(),
            _ => None,
        }
    }

    /// Whether the server may have carried out the request. If not, sending it again is safe.
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

    /// The outcome that a merged answer reports for the server.
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

    /// The class of error for spans and metrics.
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

/// An error in the words for clients. The code lists every kind, so that a new one is not shown by
/// default.
struct ForClients<'a>(&'a BackendError);

impl fmt::Display for ForClients<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use BackendError as E;
        match self.0 {
            E::Unreachable { .. } => f.write_str("cannot be reached"),
            E::NotConnected { cause, details } => {
                match &**cause {
                    // Before the handshake is over, the server's words are for operators alone.
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
                    "has begun the request, but Fanlight cannot find out how it ended: it {}",
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
            E::NoCommonRevision { .. } => f.write_str("shares no protocol revision with Fanlight"),
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

/// The sign-in that a user has to do before a server carries out a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInWish {
    /// The `http` or `https` page where it begins; `None` if the message says everything.
    pub url: Option<String>,
    /// The text for the user.
    pub message: String,
    /// Identifies the sign-in to the client (2025-11-25 client/elicitation, URL Mode Elicitation
    /// Requests).
    pub id: String,
}

/// A duration in plain units, only as exact as a person needs: `0.4 s`, `12 s`, `5 min`, `2 h 10
/// min`.
#[derive(Clone, Copy, Debug)]
pub struct Plain(pub Duration);

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 9.95 {
            return write!(f, "{seconds:.1} s");
        }
        let whole = seconds.round() as u64;
        if whole < 120 {
            return write!(f, "{whole} s");
        }
        let minutes = whole / 60;
        match (minutes / 60, minutes % 60) {
            (0, minutes) => write!(f, "{minutes} min"),
            (hours, 0) => write!(f, "{hours} h"),
            (hours, minutes) => write!(f, "{hours} h {minutes} min"),
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
            BackendError::from_status(503, Some(Duration::from_secs(7))),
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
            .with_details(FailureDetails::from_remedy(
                RemedyKind::Program,
                "install it",
            ))
            .with_details(FailureDetails {
                stderr: vec!["a".into(), "b".into()],
                stdout: vec!["c".into()],
                ..FailureDetails::from_remedy(RemedyKind::Time, "wait")
            });
        assert_eq!(error.summary(), "cannot be reached: r");
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
                .with_details(FailureDetails::from_remedy(RemedyKind::Credentials, said)),
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

    #[test]
    fn time_is_as_exact_as_matters() {
        for (millis, text) in [
            (0, "0.0 s"),
            (412, "0.4 s"),
            (9_949, "9.9 s"),
            (9_951, "10 s"),
            (119_400, "119 s"),
            (119_600, "2 min"),
            (3_599_000, "59 min"),
            (3_600_000, "1 h"),
            (7_800_000, "2 h 10 min"),
        ] {
            assert_eq!(Plain(Duration::from_millis(millis)).to_string(), text);
        }
    }
}
