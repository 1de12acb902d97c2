//! The interface for recording events in the audit log.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use fanlight_canonical::{CallContext, Decidable, Endpoint, Identity, Item, Principal, Verdict};
use fanlight_credentials::{Credentials, Denial};
use fanlight_protocol::{Json, Method, Response};

pub use crate::ledger::{Acknowledged, NotRecorded};

/// Records decisions in the audit log.
pub trait Record: fmt::Debug + Send + Sync {
    /// Records `event`. Must not block.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded. Then the action that the event permits must not be carried out.
    fn record(&self, event: &AuditEvent<'_>) -> Result<(), NotRecorded>;

    /// The parts of permitted requests that are recorded; `None` if permitted requests are not
    /// recorded.
    fn keeps_requests(&self) -> Option<KeptRequests> {
        None
    }

    /// Records that a request is about to run, if such a line is required. The request runs once
    /// the returned future resolves. Must not block.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded. Then the request does not run.
    fn begins(&self, request: &RecordedRequest<'_>) -> Result<Option<Acknowledged>, NotRecorded> {
        let _ = request;
        Ok(None)
    }

    /// Records how a request ended, and how long it took. Must not block.
    fn record_end(&self, request: &RecordedRequest<'_>, end: &RequestEnd<'_>, duration: Duration) {
        let _ = (request, end, duration);
    }
}

/// The parts of requests that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRequests {
    /// Whether anything of their arguments is recorded.
    pub arguments: bool,
    /// Whether the tool's definition is needed, because it tells which arguments are secret.
    pub definitions: bool,
    /// Whether requests are recorded before they run.
    pub announced: bool,
}

/// A permitted request.
#[derive(Clone, Copy, Debug)]
pub struct RecordedRequest<'a> {
    /// The client, its endpoint, and the subject of the request.
    pub context: &'a CallContext,
    /// The method.
    pub method: &'a Method,
    /// The client's name for the subject of the request.
    pub shown: Option<&'a str>,
    /// The policy's verdict.
    pub verdict: Option<&'a Verdict>,
    /// The parameters, if [`KeptRequests::arguments`] is set.
    pub params: Option<&'a Json>,
    /// The called tool's definition, if Fanlight has it and [`KeptRequests::definitions`] is set.
    pub definition: Option<&'a Json>,
    /// The size of the parameters in bytes.
    pub bytes: usize,
}

/// The end of a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestEnd<'a> {
    /// The request got this answer.
    Answered(&'a Response),
    /// The client cancelled the request or went away.
    Cancelled,
    /// The request was not carried out: a guardrail stopped it, nobody approved it, or its client
    /// went away before it could get this answer.
    NotRun(Option<&'a Response>),
}

/// The events in the audit log.
#[derive(Clone, Debug)]
pub enum AuditEvent<'a> {
    /// A decision about a client's request. A permitted request runs once this is recorded.
    Decided {
        /// The client.
        client: &'a Identity,
        /// The endpoint.
        endpoint: &'a Endpoint,
        /// The subject of the decision.
        subject: &'a dyn Decidable,
        /// The refusal; `None` if the request is permitted.
        refused: Option<RefusedRequest>,
    },
    /// Somebody was asked to approve a call, or has answered. An approved call runs once this is
    /// recorded.
    Approval {
        /// The caller; `None` for a client without authentication.
        client: Option<&'a Identity>,
        /// The called tool.
        tool: Item<'a>,
        /// The id of the question to operators; `client` if the client asks its user.
        id: &'a str,
        /// `asked`, `approved` or `refused`.
        outcome: &'static str,
    },
    /// A definition of a server differs from the approved one, or has been approved.
    Definition(PinnedDefinition<'a>),
    /// A user has signed in at a server, failed to, or is no longer signed in.
    Connection(ConnectionChange<'a>),
    /// A request to the clients' listener was not authenticated.
    ClientDenied {
        /// The reason.
        denial: &'a Denial,
        /// The request's credentials.
        credentials: &'a Credentials<'a>,
    },
    /// An operator signs in, once this is recorded.
    SignedIn {
        /// The operator.
        operator: Actor<'a>,
        /// The method of signing in.
        method: &'static str,
    },
    /// An operator has signed out.
    SignedOut {
        /// The operator.
        operator: Actor<'a>,
    },
    /// A person failed to sign in as an operator.
    SignInDenied {
        /// The method of signing in.
        method: &'static str,
        /// The person and the reason.
        denied: DeniedOperator<'a>,
    },
    /// A request to the operators' listener is not from an operator.
    OperatorDenied(DeniedOperator<'a>),
    /// An operator's role does not allow a request.
    RoleDenied {
        /// The operator.
        operator: Actor<'a>,
        /// The path of the request.
        path: &'a str,
    },
    /// An operator requests a change, which is carried out once this is recorded.
    ChangeAsked {
        /// The operator.
        operator: Actor<'a>,
        /// The path of the request, which names the change.
        path: &'a str,
    },
    /// The result of a change that an operator requested.
    Changed {
        /// The operator.
        operator: Actor<'a>,
        /// The path of the request.
        path: &'a str,
        /// The subject of the change, if the path does not tell it.
        about: Option<&'a str>,
        /// The HTTP status of the response.
        status: u16,
    },
}

/// The refusal of a request.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest {
    /// The gate that refused: `scopes`, `rate`, `busy` or `record`.
    pub reason: &'static str,
    /// The code of the error that the client gets.
    pub code: i64,
}

/// A definition that is compared with the approved one.
#[derive(Clone, Copy, Debug)]
pub struct PinnedDefinition<'a> {
    /// The server.
    pub server: &'a str,
    /// `tool`, `prompt`, `resource`, `template`, `skill` or `instructions`.
    pub kind: &'static str,
    /// The server's own name for it.
    pub name: &'a str,
    /// `held` if it is withheld from clients, `passed` if it is not, `approved` or `unpinned`.
    pub outcome: &'static str,
    /// The kind of change: `new`, `text`, `compatible`, `breaking` or `unreadable`.
    pub change: Option<&'static str>,
    /// The changes in words.
    pub reasons: &'a [String],
    /// How many events of the server were left out before this one.
    pub omitted: u64,
}

/// A change of a user's grant at a server.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionChange<'a> {
    /// The user; `None` if users are not distinguished, or if the event concerns many unnamed
    /// users.
    pub principal: Option<&'a Principal>,
    /// The server, or the issuer where the user signed in. Empty if the event concerns many unnamed
    /// users.
    pub server: &'a str,
    /// `signIn`, `keyDeposit`, `signOut`, or `grantEnd` if the authorization server no longer
    /// renews the grant.
    pub action: &'static str,
    /// `ok`, `refused` or `error`.
    pub outcome: &'static str,
    /// The reason.
    pub reason: Option<&'a str>,
}

/// An operator.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The operator's name for people. Not unique.
    pub name: &'a str,
    /// The operator's principal, which is the same as for its calls as a client. `None` for
    /// `admin.token`.
    pub principal: Option<&'a Principal>,
    /// The kind of credentials that proved the name.
    pub source: &'static str,
    /// The role.
    pub role: &'static str,
    /// The remote address of the request.
    pub peer: Option<SocketAddr>,
}

/// A person who is not an operator.
#[derive(Clone, Copy, Debug)]
pub struct DeniedOperator<'a> {
    /// The reason, by its name in metrics and the log.
    pub reason: &'static str,
    /// The person's name, if the request tells it.
    pub name: Option<&'a str>,
    /// The principal of the person; `None` if nobody has identified them.
    pub principal: Option<&'a Principal>,
    /// Whether this was an attempt to sign in. Opening a page without a session is none.
    pub is_attempt: bool,
    /// The remote address of the request.
    pub peer: Option<SocketAddr>,
}
