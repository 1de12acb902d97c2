//! Operators: their roles, their proofs of identity, and their sessions. [`access`](crate::access)
//! decides which requests they may make.

mod common;
mod cookie;
mod denied;
mod proof;
mod role;
mod sessions;
mod throttle;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use fanlight_canonical::identity::{Identity, Principal, Validity};
use fanlight_record::Actor;

pub(crate) use common::{Common, CommonProof, CommonSession, Recorded};
pub(crate) use cookie::{Cookies, Purpose, Shown};
pub(crate) use denied::Denied;
pub(crate) use proof::Proof;
pub use proof::SignInIssuer;
pub use role::{Member, Role, Roles};
pub(crate) use sessions::{SessionInForce, SessionLimits, Sessions};
pub(crate) use throttle::Throttle;
pub(crate) use token::{Authorization, Digest};

/// The operator who makes a request, with a role.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) role: Role,
    /// The name for people, which is not unique.
    pub(crate) name: Arc<str>,
    /// The operator's principal as a client. `None` if the operator is not identified.
    pub(crate) principal: Option<Principal>,
    /// The kind of the proof that identifies the operator.
    pub(crate) source: &'static str,
    /// How long the proof is valid.
    pub(crate) validity: Validity,
    /// The session of the page, if it identifies the operator.
    pub(crate) session: Option<SessionInForce>,
}

/// The reason why a proof is useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Worthless {
    /// The proof has expired, was revoked, or was never valid.
    Unaccepted,
    /// The proof identifies somebody who has no role.
    NoRole(Known),
}

/// Somebody who is identified but is no operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The name for people, which is not unique.
    pub(crate) name: Arc<str>,
    pub(crate) principal: Principal,
}

impl Known {
    pub(crate) fn of(identity: &Identity) -> Self {
        Self {
            name: Arc::clone(&identity.name),
            principal: identity.principal.clone(),
        }
    }
}

impl Operator {
    /// The operator of a listener that requires no proof.
    pub(crate) fn unknown() -> Self {
        Self {
            role: Role::Operator,
            name: Arc::from("not signed in"),
            principal: None,
            source: "none",
            validity: Validity::default(),
            session: None,
        }
    }

    /// The operator of a request from `peer`, for the audit log.
    pub(crate) fn on_record(&self, peer: Option<SocketAddr>) -> Actor<'_> {
        Actor {
            name: &self.name,
            principal: self.principal.as_ref(),
            source: self.source,
            role: self.role.as_str(),
            peer,
        }
    }

    /// Waits until the operator's identity is revoked or the session has ended.
    pub(crate) async fn ended(&self) {
        let signed_out = async {
            match &self.session {
                Some(session) => session.ended.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.validity.revoked.cancelled() => {}
            () = signed_out => {}
        }
    }
}
