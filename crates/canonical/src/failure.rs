//! Details of a failed attempt to connect: evidence and a remedy for operators, and the kind of the
//! remedy for clients.

use std::fmt;
use std::sync::Arc;

/// The evidence of a failed attempt to connect to a server, and the remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureDetails {
    /// The last lines that the server's process wrote to standard error.
    pub stderr: Vec<Arc<str>>,
    /// The last lines that it wrote to standard output and that were not messages.
    pub stdout: Vec<Arc<str>>,
    /// The remedy, if one is known.
    pub remedy: Option<Remedy>,
    /// The server's challenge, if it rejected or missed credentials.
    pub challenge: Option<Arc<str>>,
}

/// A way to correct a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The kind of remedy, which is all that clients learn.
    pub kind: RemedyKind,
    /// The instructions for operators.
    pub text: Arc<str>,
}

/// The thing that has to be corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemedyKind {
    /// The program, or a file that it needs, is missing or may not be executed.
    Program,
    /// The server's entry in the configuration.
    Configuration,
    /// The server's program itself.
    Server,
    /// The credentials that are sent to the server.
    Credentials,
    /// The encryption of the connection.
    Tls,
    /// The address of the server, or the network.
    Address,
    /// The time that the server has for starting.
    Time,
}

impl FailureDetails {
    /// Details with only a remedy.
    pub fn from_remedy(kind: RemedyKind, text: impl Into<Arc<str>>) -> Self {
        Self {
            remedy: Some(Remedy {
                kind,
                text: text.into(),
            }),
            ..Self::default()
        }
    }

    /// Whether there are no details.
    pub fn is_empty(&self) -> bool {
        self.stderr.is_empty()
            && self.stdout.is_empty()
            && self.remedy.is_none()
            && self.challenge.is_none()
    }

    /// Adds the earlier details `before`. Their remedy replaces this one, because it is closer to
    /// the cause.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        if self.stderr.is_empty() {
            self.stderr.clone_from(&before.stderr);
        }
        if self.stdout.is_empty() {
            self.stdout.clone_from(&before.stdout);
        }
        self.remedy = before.remedy.clone().or(self.remedy);
        self.challenge = before.challenge.clone().or(self.challenge);
        self
    }
}

/// The details as the end of a sentence.
impl fmt::Display for FailureDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.stderr.is_empty() {
            write!(f, "; it wrote last: {}", self.stderr.join(" | "))?;
        }
        if !self.stdout.is_empty() {
            write!(
                f,
                "; it wrote to standard output, which is for messages alone: {}",
                self.stdout.join(" | ")
            )?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "; {}", remedy.text),
            None => Ok(()),
        }
    }
}

impl RemedyKind {
    /// The end of a sentence for clients, who can only ask the operator.
    pub fn for_clients(self) -> &'static str {
        match self {
            Self::Program => {
                "what it needs is not installed on the gateway's machine; ask the gateway's operator"
            }
            Self::Configuration => "its configuration is not usable; ask the gateway's operator",
            Self::Server => "its program does not start; ask the gateway's operator",
            Self::Credentials => {
                "the gateway needs other credentials for it; ask the gateway's operator"
            }
            Self::Tls => "no encrypted connection to it can be made; ask the gateway's operator",
            Self::Address => "nothing answers where it should be; ask the gateway's operator",
            Self::Time => "it takes too long to start; ask the gateway's operator",
        }
    }
}
