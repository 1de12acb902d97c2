//! Why a command ends without having done its work, and the exit status that says so.

use std::process::ExitCode;

/// Why a command failed, as the user reads it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    message: String,
    status: u8,
    /// What was asked for is not there.
    not_found: bool,
}

impl Failure {
    /// The command line or the configuration is wrong: exit status 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 2, not_found: false }
    }

    /// Something outside went wrong, or a check found something: exit status 1.
    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 1, not_found: false }
    }

    /// What was asked for is not there: exit status 1.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 1, not_found: true }
    }

    /// Whether it is that.
    pub(crate) fn is_not_found(&self) -> bool {
        self.not_found
    }

    /// A second signal left no time to end properly: exit status 130, as shells have it.
    pub(crate) fn cut_short() -> Self {
        Self { message: "ended at once; child servers were killed".into(), status: 130, not_found: false }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}
