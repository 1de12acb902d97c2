//! What is put on record, and where.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_canonical::{CallContext, Decidable, Endpoint, Item, SentTo, Verdict};
use fanlight_credentials::{Credentials, Denial};
use fanlight_identity::{Identity, Principal};
use fanlight_ledger::{Acknowledgement, NotWritten};
use fanlight_protocol::{Json, Method, Response};

/// Puts decisions on record.
pub trait Record: fmt::Debug + Send + Sync {
    /// Puts `event` on record. Must not block.
    ///
    /// # Errors
    ///
    /// If that cannot be done. What was allowed by the event is then not carried out.
    fn record(&self, event: &AuditEvent<'_>) -> Result<(), NotRecorded>;

    /// Whether requests that are allowed are put on record, and what of them; `None` if not.
    fn keeps_requests(&self) -> Option<KeptRequests> {
        None
    }

    /// Puts on record that a request is going to run, if that has to be there before; it runs once that is acknowledged.
    /// Must not block.
    ///
    /// # Errors
    ///
    /// If that cannot be done. Then it does not run.
    fn begins(&self, request: &RecordedRequest<'_>) -> Result<Option<Acknowledged>, NotRecorded> {
        let _ = request;
        Ok(None)
    }

    /// Puts on record how a request has ended, and after which time. Must not block.
    fn ended(&self, request: &RecordedRequest<'_>, end: &RequestEnd<'_>, duration: Duration) {
        let _ = (request, end, duration);
    }
}

/// What is kept of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRequests {
    /// Whether anything of their arguments is.
    pub arguments: bool,
    /// Whether the definition of the tool is needed for that: it says which of them are secret.
    pub definitions: bool,
    /// Whether they are put on record before they run.
    pub announced: bool,
}

/// A request that was allowed.
#[derive(Clone, Copy, Debug)]
pub struct RecordedRequest<'a> {
    /// Who asks, where, and where it was sent.
    pub context: &'a CallContext,
    /// What for.
    pub method: &'a Method,
    /// What the client calls that which it is about.
    pub shown: Option<&'a str>,
    /// The server and its own name of the tool, if [`KeptRequests::announced`], as far as that is known before it runs.
    pub target: Option<&'a SentTo>,
    /// What the policy says of it.
    pub verdict: Option<&'a Verdict>,
    /// Its parameters, if [`KeptRequests::arguments`] wants them.
    pub params: Option<&'a Json>,
    /// The definition of the tool that it calls, if [`KeptRequests::definitions`] wants it, and it is known.
    pub definition: Option<&'a Json>,
    /// The task that it is about.
    pub task: Option<&'a str>,
    /// The bytes of its parameters.
    pub bytes: usize,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug)]
pub enum RequestEnd<'a> {
    /// With this answer.
    Answered(&'a Response),
    /// Its client has given it up, or is gone.
    Cancelled,
    /// It was not carried out: nobody has agreed to it, or its client was gone before.
    NotRun,
}

/// Resolves once something is on record.
#[derive(Debug)]
pub struct Acknowledged(pub(crate) Acknowledgement);

impl Future for Acknowledged {
    type Output = Result<(), NotRecorded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.map_err(|NotWritten| NotRecorded))
    }
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
        /// What is called.
        tool: Item<'a>,
        /// Under which id operators are asked; `client` if the client asks its user.
        id: &'a str,
        /// `asked`, `approved` or `refused`.
        outcome: &'static str,
    },
    /// A definition of a server is not as it was approved, or has been approved since.
    Definition(PinnedDefinition<'a>),
    /// A user has connected to a server that wants its users to sign in, could not, or is not connected to it any more.
    Connection(ConnectionChange<'a>),
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

/// A definition that is compared with what was approved.
#[derive(Clone, Copy, Debug)]
pub struct PinnedDefinition<'a> {
    /// The server.
    pub server: &'a str,
    /// `tool`, `prompt` or `template`.
    pub kind: &'static str,
    /// The server's own name of it.
    pub name: &'a str,
    /// `held` if clients do not get it, `passed` if they do all the same, `approved` or `unpinned`.
    pub outcome: &'static str,
    /// What has changed: `new`, `text`, `compatible` or `breaking`.
    pub change: Option<&'static str>,
    /// In words.
    pub reasons: &'a [String],
}

/// What becomes of what a user has granted at a server.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionChange<'a> {
    /// The user; `None` where users are not told apart, and where it is about many who cannot be named.
    pub principal: Option<&'a Principal>,
    /// The server, or the issuer at which the user has signed in; empty where it is about many who cannot be named.
    pub server: &'a str,
    /// `signIn`, `keyDeposit`, `signOut`, or `grantEnd` where the authorization server does not renew it any more.
    pub action: &'static str,
    /// `ok`, `refused` or `error`.
    pub outcome: &'static str,
    /// Why.
    pub reason: Option<&'a str>,
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
