//! Sessions that the replicas have in common, so that any of them takes an operator's browser back.
//!
//! A record says that a session has not ended. It has the proof, which each replica verifies itself
//! when it first meets the session: so each knows when a key is revoked or an issuer is gone.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_credentials::{CommonSessions, KeptSession};
use fanlight_protocol::seal::{Keys, Seal};
use serde::{Deserialize, Serialize};

use super::proof::SignInIssuer;
use super::sessions::SessionLimits;
use super::token::Digest;

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

    /// Tells the other replicas of a session. If that fails, it is a session of this replica until
    /// the records can be read again.
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
