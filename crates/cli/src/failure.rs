//! The error of a command with its exit status, and the error of an unusable configuration.

use std::fmt::Display;
use std::process::ExitCode;

use fanlight_config::ConfigErrors;
use fanlight_grants::StoreError;
use fanlight_grants::fetch::FetchError;
use fanlight_otlp::StartError;
use fanlight_protocol::json::SyntaxError;
use fanlight_protocol::param_header::AnnotationError;
use fanlight_protocol::seal::KeyError;
use fanlight_record::ledger::Unreadable;
use fanlight_replicas::ReplicaError;

use crate::judge::peer::Broken;
use crate::out;

/// The result of a command or of a part of it.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// A [`Failure::other`] with a formatted message.
macro_rules! failure {
    ($($message:tt)*) => { $crate::failure::Failure::other(format_args!($($message)*)) };
}

/// A [`Failure::usage`] with a formatted message.
macro_rules! usage {
    ($($message:tt)*) => { $crate::failure::Failure::usage(format_args!($($message)*)) };
}

/// The meaning of exit statuses, as shown by `--help`.
pub const STATUSES: &str = "\
Exit status:
  0    done, and nothing is wrong
  1    something outside failed, or what was checked has a problem: a server
       cannot be used, a gateway is not ready, a call was answered with an
       error, results differ
  2    the command line or the configuration is wrong, or names what does not
       exist; `replay`, `witness`: nothing could be judged
  3    `check`: nothing is wrong but that a user has to sign in at a server
  130  interrupted";

/// A failed command: the message for the user and the exit status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    status: u8,
    /// Whether the requested thing does not exist.
    not_found: bool,
}

impl Failure {
    fn new(status: u8, message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            status,
            not_found: false,
        }
    }

    /// The command line or the configuration is wrong: exit status 2.
    pub fn usage(message: impl Display) -> Self {
        Self::new(2, message)
    }

    /// Something outside failed, or a check found a problem: exit status 1.
    pub fn other(message: impl Display) -> Self {
        Self::new(1, message)
    }

    /// A server needs its user to sign in, and nothing else is wrong: exit status 3.
    pub fn needs_user(message: impl Display) -> Self {
        Self::new(3, message)
    }

    /// The requested thing does not exist: exit status 1.
    pub fn not_found(message: impl Display) -> Self {
        Self {
            not_found: true,
            ..Self::new(1, message)
        }
    }

    /// Whether the requested thing does not exist.
    pub fn is_not_found(&self) -> bool {
        self.not_found
    }

    /// A signal ended the command.
    pub fn ended_by_signal() -> Self {
        Self::new(130, "interrupted")
    }

    /// A second signal stopped the process immediately: exit status 130, the convention of shells
    /// for SIGINT.
    pub fn interrupted() -> Self {
        Self::new(130, "stopped immediately; child servers were killed")
    }

    /// The exit status for the shell.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

/// Why a configuration cannot be used.
pub enum Unusable {
    /// The files have errors.
    Errors(ConfigErrors),
    /// Any other reason.
    Other(String),
}

/// Errors of which each is a [`Failure::other`].
macro_rules! other {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::other(error)
            }
        })*
    };
}

other!(
    &str,
    String,
    std::io::Error,
    serde_json::Error,
    url::ParseError,
    Broken,
    AnnotationError,
    FetchError,
    KeyError,
    StartError,
    StoreError,
    SyntaxError,
    Unreadable
);

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::usage(errors.render(out::has_colours(&std::io::stderr())))
    }
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Errors(errors) => errors.into(),
            Unusable::Other(message) => Self::usage(message),
        }
    }
}

impl From<ReplicaError> for Failure {
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::Configuration(message) => Self::usage(message),
            ReplicaError::Other(message) => Self::other(message),
        }
    }
}

/// Runs `command` until it ends or SIGINT arrives. If the command itself waits for SIGINT, it ends
/// in its own way.
pub async fn interruptible<T>(
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let interrupted = async {
        // Without a signal handler, SIGINT ends the process by default.
        match tokio::signal::ctrl_c().await {
            Ok(()) => (),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        result = command => result,
        () = interrupted => Err(Failure::ended_by_signal()),
    }
}
