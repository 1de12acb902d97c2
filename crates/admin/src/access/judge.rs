//! Judges a proof of an operator's identity by the settings in force.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::{Identity, Validity};

use crate::Admin;
use crate::operator::{
    Digest, Known, Operator, Proof, Recorded, Role, SessionInForce, Worthless, role_of,
};
use crate::settings::InForce;

impl Admin {
    /// Whether an operator is still accepted. This counts the operator's session as used.
    pub(crate) async fn is_in_force(&self, operator: &Operator) -> bool {
        if let Some(SessionInForce { key, .. }) = operator.session {
            let limits = self.now().session_limits();
            if matches!(self.common.find(key, &limits).await, Recorded::Ended) {
                self.sessions.end(key);
            }
            if self.sessions.touch(key, &limits).is_none() {
                return false;
            }
        }
        operator.validity.holds_at(SystemTime::now())
    }
}

impl InForce {
    /// The operator whom `proof` identifies at `now`.
    pub(crate) fn judge(&self, proof: &Proof, now: SystemTime) -> Result<Operator, Worthless> {
        let (source, identity) = match proof {
            Proof::Token(token) => return self.judge_token(*token),
            Proof::Identity(identity) => (source_of(identity), identity),
            Proof::SignedIn { at, identity } => {
                if !self.settings.sign_in.contains(at) {
                    return Err(Worthless::Unaccepted);
                }
                ("sign-in", identity)
            }
        };
        if !identity.validity.holds_at(now) {
            return Err(Worthless::Unaccepted);
        }
        let role = role_of(identity, &self.settings.roles)
            .ok_or_else(|| Worthless::NoRole(Known::from_identity(identity)))?;
        let (name, validity) = (Arc::clone(&identity.name), identity.validity.clone());
        let principal = Some(identity.principal.clone());
        Ok(Operator {
            role,
            name,
            principal,
            source,
            validity,
            session: None,
        })
    }

    fn judge_token(&self, token: Digest) -> Result<Operator, Worthless> {
        if self.token.is_none_or(|expected| expected != token) {
            return Err(Worthless::Unaccepted);
        }
        Ok(Operator {
            role: Role::Operator,
            name: Arc::from("admin.token"),
            principal: None,
            source: "token",
            validity: Validity::default(),
            session: None,
        })
    }
}

fn source_of(identity: &Identity) -> &'static str {
    use fanlight_canonical::identity::Source;
    match identity.source {
        Source::Anonymous => "none",
        Source::Token => "access token",
        Source::Key => "key",
        Source::Certificate => "certificate",
        Source::Proxy => "proxy",
        Source::Socket => "socket",
    }
}
