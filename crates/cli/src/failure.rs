//! The error of a command with its exit status, and the error of an unusable configuration.

use std::fmt::Display;
use std::process::ExitCode;

use fanlight_config::ConfigErrors;
use fanlight_replicas::ReplicaError;

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
    /// The command line or the configuration is wrong: exit status 2.
    pub fn usage(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            status: 2,
            not_found: false,
        }
    }

    /// Something outside failed, or a check found a problem: exit status 1.
    pub fn other(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            status: 1,
            not_found: false,
        }
    }

    /// A server needs its user to sign in, and nothing else is wrong: exit status 3.
    pub fn needs_user(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            status: 3,
            not_found: false,
        }
    }

    /// The requested thing does not exist: exit status 1.
    pub fn not_found(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            status: 1,
            not_found: true,
        }
    }

    /// Whether the requested thing does not exist.
    pub fn is_not_found(&self) -> bool {
        self.not_found
    }

    /// A signal ended the command.
    pub fn ended_by_signal() -> Self {
        Self {
            message: "interrupted".into(),
            status: 130,
            not_found: false,
        }
    }

    /// A second signal stopped the process immediately: exit status 130, the convention of shells
    /// for SIGINT.
    pub fn interrupted() -> Self {
        Self {
            message: "stopped immediately; child servers were killed".into(),
            status: 130,
            not_found: false,
        }
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

impl From<ReplicaError> for Failure {
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::Configuration(message) => Self::usage(message),
            ReplicaError::Other(message) => Self::other(message),
        }
    }
}
