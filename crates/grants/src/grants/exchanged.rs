//! Users' access to servers with tokens exchanged for the tokens of their sign-in at an identity
//! provider.

use std::sync::{Arc, Weak};

use fanlight_config::settings::Secret;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::{Grants, Shared};
use crate::access::{Looked, UserAccess};
use crate::oauth::{MachineAccess, OAuthError, SubjectToken, SubjectTokens};

/// The access of one user to one server. Clones share it.
#[derive(Clone)]
pub struct ExchangedAccess {
    pub(super) machine: Arc<MachineAccess>,
    pub(super) user: Arc<UserSubject>,
}

/// A user with a sign-in at an identity provider, now or later.
pub(super) struct UserSubject {
    pub(super) grants: Weak<Shared>,
    pub(super) principal: Vec<u8>,
    pub(super) issuer: String,
    /// The last check whether the user is still signed in.
    pub(super) looked: Mutex<Looked>,
}

fanlight_protocol::opaque!(ExchangedAccess);

impl ExchangedAccess {
    /// The source of the server's tokens.
    pub fn machine(&self) -> &Arc<MachineAccess> {
        &self.machine
    }

    /// Forgets the user's tokens if another process has signed the user out. `None` if no check is
    /// due: there is at most one a second, and only if something has changed.
    pub fn look(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let grants = self.user.grants.upgrade()?;
        if !self.user.looked.lock().is_outdated(&grants.store) {
            return None;
        }
        let Self { machine, user } = self.clone();
        Some(async move {
            let has_grant = match user.access() {
                Some(access) => access.has_grant().await,
                None => Ok(false),
            };
            match has_grant {
                Ok(true) => {}
                Ok(false) => machine.forget(),
                // Check again at the next message.
                Err(_) => *user.looked.lock() = Looked::default(),
            }
        })
    }

    /// Whether the user is known to need a sign-in.
    pub fn is_missing(&self) -> bool {
        self.user
            .access()
            .is_some_and(|access| access.missing().is_some())
    }

    /// Waits until the user has finished or given up signing in; `None` if no sign-in is running.
    #[must_use]
    pub fn signing_in(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.user.access()?.signing_in()
    }
}

impl UserSubject {
    /// The user's access to the identity provider, with the current configuration.
    fn access(&self) -> Option<UserAccess> {
        Grants(self.grants.upgrade()?).of(&self.principal, &self.issuer)
    }
}

impl SubjectTokens for UserSubject {
    fn token<'a>(
        &'a self,
        kind: &'static str,
        refused: Option<&'a Secret>,
    ) -> BoxFuture<'a, Result<SubjectToken, OAuthError>> {
        Box::pin(async move {
            let access = self.access().ok_or(OAuthError::NoSubject)?;
            access.subject(kind, refused).await
        })
    }
}
