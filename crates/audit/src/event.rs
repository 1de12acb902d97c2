//! What is put on record, and where.

use std::fmt;
use std::net::SocketAddr;

use fanlight_canonical::{Decidable, Endpoint};
use fanlight_credentials::{Credentials, Denial};
use fanlight_identity::Identity;

/// Puts decisions on record.
pub trait Record: fmt::Debug + Send + Sync {
    /// Puts `event` on record. Must not block.
    ///
    /// # Errors
    ///
    /// If that cannot be done. What was allowed by the event is then not carried out.
    fn record(&self, event: &AuditEvent<'_>) -> Result<(), NotRecorded>;
}

/// An event could not be put on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this could not be put on record, and was not carried out; ask the gateway's operator to look at the audit log"
)]
pub struct NotRecorded;

/// What is put on record.
#[derive(Clone, Debug)]
pub enum AuditEvent<'a> {
    /// It was decided whether a client may do what it asks for. If it may, it is carried out once this is on record.
    Decided {
        /// Who asks.
        client: &'a Identity,
        /// Where.
        endpoint: &'a Endpoint,
        /// What for.
        subject: &'a dyn Decidable,
        /// Why not; `None` if it may.
        refused: Option<&'static str>,
    },
    /// Somebody was asked to agree to a call, or has answered. A call that was agreed to runs once this is on record.
    Approval {
        /// Who calls; `None` for a client that is not authenticated.
        client: Option<&'a Identity>,
        /// `server/tool`.
        call: &'a str,
        /// Under which id operators are asked; `client` if the client asks its user.
        id: &'a str,
        /// `asked`, `approved` or `refused`.
        outcome: &'static str,
    },
    /// A request to the listener for clients was not authenticated.
    ClientDenied {
        /// Why.
        denial: &'a Denial,
        /// What it has shown.
        credentials: &'a Credentials<'a>,
    },
    /// An operator signs in, once this is on record.
    SignedIn {
        /// Who.
        operator: Actor<'a>,
        /// How.
        method: &'static str,
    },
    /// An operator has signed out.
    SignedOut {
        /// Who.
        operator: Actor<'a>,
    },
    /// Somebody could not sign in as an operator.
    SignInDenied {
        /// How it was tried.
        method: &'static str,
        /// Why not, and who.
        denied: DeniedOperator<'a>,
    },
    /// A request to the operators' listener does not show an operator.
    OperatorDenied(DeniedOperator<'a>),
    /// An operator's role does not allow a request.
    RoleDenied {
        /// Who.
        operator: Actor<'a>,
        /// The path of the request.
        path: &'a str,
    },
    /// An operator asks for a change, which is carried out once this is on record.
    ChangeAsked {
        /// Who.
        operator: Actor<'a>,
        /// The path of the request, which names the change.
        path: &'a str,
    },
    /// What has come of a change that an operator has asked for.
    Changed {
        /// Who.
        operator: Actor<'a>,
        /// The path of the request.
        path: &'a str,
        /// What it was about, where the path does not say it.
        about: Option<&'a str>,
        /// The HTTP status of the response.
        status: u16,
    },
}

/// An operator.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The name for people. Not unique.
    pub name: &'a str,
    /// What has shown it.
    pub source: &'static str,
    /// The role.
    pub role: &'static str,
    /// Where the request comes from.
    pub peer: Option<SocketAddr>,
}

/// Somebody who is no operator.
#[derive(Clone, Copy, Debug)]
pub struct DeniedOperator<'a> {
    /// Why, by its name in metrics and the log.
    pub reason: &'static str,
    /// Who, if that is known.
    pub name: Option<&'a str>,
    /// Whether anything was tried: a page that is opened without a session tries nothing.
    pub is_attempt: bool,
    /// Where the request comes from.
    pub peer: Option<SocketAddr>,
}
