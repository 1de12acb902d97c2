//! Whom a proof shows under the settings in force.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::{Identity, Validity};

use crate::Admin;
use crate::operator::{Digest, Operator, Proof, Role, Worthless};
use crate::settings::InForce;

impl Admin {
    /// Whether an operator is still accepted. Its session counts as used.
    pub(crate) fn is_in_force(&self, operator: &Operator) -> bool {
        let limits = self.now().session_limits();
        let has_session = operator
            .session
            .as_ref()
            .is_none_or(|session| self.sessions.touch(session.key, &limits).is_some());
        has_session && operator.validity.holds_at(SystemTime::now())
    }
}

impl InForce {
    /// Who shows `proof` at `now`.
    pub(crate) fn judge(&self, proof: &Proof, now: SystemTime) -> Result<Operator, Worthless> {
        let (source, identity) = match proof {
            Proof::Token(token) => return self.judge_token(*token),
            Proof::Identity(identity) => (source_of(identity), identity),
            Proof::SignedIn {
                issuer,
                client,
                identity,
            } => {
                let is_configured = |known: &fanlight_canonical::credentials::SignInSettings| {
                    *known.issuer == **issuer && *known.client_id == **client
                };
                if !self
                    .settings
                    .sign_in
                    .as_ref()
                    .is_some_and(|known| is_configured(&known.settings))
                {
                    return Err(Worthless::Unaccepted);
                }
                ("sign-in", identity)
            }
        };
        if !identity.validity.holds_at(now) {
            return Err(Worthless::Unaccepted);
        }
        let role = self
            .settings
            .roles
            .of(identity)
            .ok_or_else(|| Worthless::NoRole(Arc::clone(&identity.name)))?;
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
        let known = [
            (&self.token, Role::Operator, "admin.token"),
            (&self.viewer_token, Role::Viewer, "admin.viewerToken"),
        ];
        // Both are compared, whichever it is.
        let mut found = None;
        for (expected, role, option) in known {
            if expected.is_some_and(|expected| expected == token) && found.is_none() {
                found = Some((role, option));
            }
        }
        let (role, option) = found.ok_or(Worthless::Unaccepted)?;
        let (name, validity) = (Arc::from(option), Validity::default());
        Ok(Operator {
            role,
            name,
            principal: None,
            source: "token",
            validity,
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
