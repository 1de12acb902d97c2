//! Operators: their roles, their proofs of identity, and their sessions. [`access`](crate::access)
//! decides which requests they may make.

mod cookie;
mod denied;
mod role;
mod sessions;
mod throttle;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_canonical::identity::{Identity, Principal, Validity};
use fanlight_credentials::{CommonSessions, KeptSession};
use fanlight_protocol::seal::{Keys, Seal};
use fanlight_record::Actor;
use serde::{Deserialize, Serialize};

pub(crate) use cookie::{Cookies, Purpose, Shown};
pub(crate) use denied::Denied;
pub use role::Role;
pub(crate) use role::role_of;
pub(crate) use sessions::Proof;
pub use sessions::SignInIssuer;
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
    pub(crate) fn from_identity(identity: &Identity) -> Self {
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
    pub(crate) fn audit_actor(&self, peer: Option<SocketAddr>) -> Actor<'_> {
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

/// How much of the idle time may pass before the record says that the session was used.
const RENEWED_AFTER: Duration = Duration::from_secs(60);

/// The proof in a record.
#[derive(Serialize, Deserialize)]
pub(crate) enum CommonProof {
    /// The token with which the operator signed in.
    Token(String),
    /// A proof of a sign-in at an issuer.
    SignedIn { at: SignInIssuer, proof: String },
}

/// The session in a record.
#[derive(Serialize, Deserialize)]
pub(crate) struct CommonSession {
    pub(crate) began: SystemTime,
    pub(crate) proof: CommonProof,
}

/// The state of a session by the records.
pub(crate) enum Recorded {
    /// Nothing: there is no other replica, or the records cannot be read now.
    Unknown,
    /// The session has ended, or never was.
    Ended,
    /// The session is in force.
    InForce(CommonSession),
}

/// The records of all replicas' sessions; none if this process is alone.
pub(crate) struct Common(Option<(Arc<dyn CommonSessions>, Seal)>);

impl Common {
    pub(crate) fn new(records: Option<Arc<dyn CommonSessions>>, keys: &Keys) -> Self {
        let seal = || Seal::new(keys, b"session of an operator\0").ok();
        Self(records.and_then(|records| Some((records, seal()?))))
    }

    /// The session id for the cookie. A replica looks only for ids that a replica has sealed, so
    /// that made-up ones cost no request to Valkey.
    pub(crate) fn seal(&self, id: String) -> Option<String> {
        match &self.0 {
            Some((_, seal)) => seal.seal(id.as_bytes()),
            None => Some(id),
        }
    }

    /// Whether another replica may know a session with this id.
    pub(crate) fn may_know(&self, id: &str) -> bool {
        self.0
            .as_ref()
            .is_some_and(|(_, seal)| seal.open(id).is_some())
    }

    /// Looks a session up, and notes from time to time that it was used.
    pub(crate) async fn find(&self, key: Digest, limits: &SessionLimits) -> Recorded {
        let Some((records, _)) = &self.0 else {
            return Recorded::Unknown;
        };
        let (name, now) = (key.name(), SystemTime::now());
        let Ok(kept) = records.get(&name).await else {
            return Recorded::Unknown;
        };
        let read = |kept: &KeptSession| serde_json::from_str::<CommonSession>(&kept.text).ok();
        let session = kept
            .as_ref()
            .filter(|kept| now < kept.expires)
            .and_then(read);
        let Some(session) = session.filter(|one| now < one.began + limits.lifetime) else {
            return Recorded::Ended;
        };
        let expires = now + limits.idle;
        if let Some(kept) = kept.filter(|kept| kept.expires + RENEWED_AFTER < expires) {
            let _ = records
                .replace(&name, KeptSession { expires, ..kept })
                .await;
        }
        Recorded::InForce(session)
    }

    /// Tells the other replicas about a session. If that fails, only this replica knows the session
    /// until the records can be read again.
    pub(crate) async fn tell(&self, key: Digest, proof: CommonProof, limits: &SessionLimits) {
        let began = SystemTime::now();
        let text = serde_json::to_string(&CommonSession { began, proof });
        if let (Some((records, _)), Ok(text)) = (&self.0, text) {
            let expires = began + limits.idle;
            let _ = records
                .put(&key.name(), KeptSession { text, expires })
                .await;
        }
    }

    /// Ends a session at all replicas.
    pub(crate) async fn end(&self, key: Digest) -> Result<(), String> {
        match &self.0 {
            Some((records, _)) => records.remove(&key.name()).await,
            None => Ok(()),
        }
    }
}
