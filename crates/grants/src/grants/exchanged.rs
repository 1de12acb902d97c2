//! Access of users to servers by tokens that are had for those of their sign-in at an identity provider.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fanlight_oauth::{MachineAccess, OAuthError, SubjectToken, SubjectTokens};
use fanlight_settings::Secret;
use futures_util::future::BoxFuture;

use super::{Grants, Shared};
use crate::access::{Looked, UserAccess};

/// The access of one user to one server. Clones are of the same user.
#[derive(Clone)]
pub struct ExchangedAccess {
    pub(super) machine: Arc<MachineAccess>,
    pub(super) user: Arc<UserSubject>,
}

/// A user at the identity provider that knows them.
pub(super) struct UserSubject {
    pub(super) grants: Weak<Shared>,
    pub(super) principal: Vec<u8>,
    pub(super) issuer: String,
    /// When was looked whether the user is still signed in.
    pub(super) looked: Mutex<Looked>,
}

impl fmt::Debug for ExchangedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangedAccess")
            .field("issuer", &self.user.issuer)
            .finish_non_exhaustive()
    }
}

impl ExchangedAccess {
    /// What has the tokens for the server.
    #[must_use]
    pub fn machine(&self) -> &Arc<MachineAccess> {
        &self.machine
    }

    /// Has what is held for the user forgotten if another process has signed the user out. `None` where that need not be looked
    /// up: it is once a second at most, and only if something has changed.
    pub fn look(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let grants = self.user.grants.upgrade()?;
        if !self.user.looked().is_outdated(&grants.store) {
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
                // With the next message, again.
                Err(_) => *user.looked() = Looked::default(),
            }
        })
    }

    /// Whether it is known that the user has to sign in.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.user
            .access()
            .is_some_and(|access| access.missing().is_some())
    }

    /// Waits until the user, who is signing in, has done so or given up; `None` if the user is not.
    #[must_use]
    pub fn signing_in(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.user.access()?.signing_in()
    }
}

impl UserSubject {
    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the user has at the identity provider, by the configuration of now.
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
