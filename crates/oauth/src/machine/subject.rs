//! The token of a user that another one is had for.

use fanlight_settings::Secret;
use futures_util::future::BoxFuture;

use crate::error::OAuthError;
use crate::provider::Provider;
use crate::registration::ClientRegistration;

/// The token of a user, and where it is from.
pub struct SubjectToken {
    /// The token.
    pub token: Secret,
    /// The identity provider that has given it.
    pub provider: Provider,
    /// The client that it was given to.
    pub registration: ClientRegistration,
}

/// A user who has signed in at an identity provider, or may.
pub trait SubjectTokens: Send + Sync {
    /// The user's token of this type, good for now: another one than the one that was `refused`, if there is.
    ///
    /// # Errors
    ///
    /// [`OAuthError::NoSubject`] if the user has to sign in.
    fn token<'a>(
        &'a self,
        kind: &'static str,
        refused: Option<&'a Secret>,
    ) -> BoxFuture<'a, Result<SubjectToken, OAuthError>>;
}
