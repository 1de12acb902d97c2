//! Operators: the roles they have, what shows who they are, and their sessions. Which requests they may make is in
//! [`access`](crate::access).

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

pub(crate) use cookie::{Cookies, Purpose, Shown};
pub(crate) use denied::Denied;
pub(crate) use proof::Proof;
pub use role::{Member, Role, Roles};
pub(crate) use sessions::{SessionInForce, SessionLimits, Sessions};
pub(crate) use throttle::Throttle;
pub(crate) use token::{Authorization, Digest};

/// Who makes a request, and in which role.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) role: Role,
    /// The name for people. Not unique.
    pub(crate) name: Arc<str>,
    /// The principal that it is as a client; `None` if nothing shows whose request it is.
    pub(crate) principal: Option<Principal>,
    /// What has shown it.
    pub(crate) source: &'static str,
    /// Until when that holds.
    pub(crate) validity: Validity,
    /// The session of the page, if it was shown by that.
    pub(crate) session: Option<SessionInForce>,
}

/// Why a proof is worth nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Worthless {
    /// It has expired, was revoked, or was never valid.
    Unaccepted,
    /// Whom it shows has no role.
    NoRole(Known),
}

/// Somebody who is known, and no operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The name for people. Not unique.
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
    /// Whoever reaches a listener that asks for nothing.
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

    /// What is put on record of who makes a request from `peer`.
    pub(crate) fn on_record(&self, peer: Option<SocketAddr>) -> Actor<'_> {
        Actor {
            name: &self.name,
            principal: self.principal.as_ref(),
            source: self.source,
            role: self.role.as_str(),
            peer,
        }
    }

    /// Waits until its identity is revoked or its session has ended.
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
