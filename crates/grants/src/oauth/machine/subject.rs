//! A user's token that is exchanged for a server's token.

use fanlight_config::settings::Secret;
use futures_util::future::BoxFuture;

use crate::oauth::error::OAuthError;
use crate::oauth::provider::Provider;
use crate::oauth::registration::ClientRegistration;

/// A user's token and its origin.
pub(crate) struct SubjectToken {
    /// The token.
    pub(crate) token: Secret,
    /// The identity provider that issued it.
    pub(crate) provider: Provider,
    /// The client that it was issued to.
    pub(crate) registration: ClientRegistration,
}

/// A user with a sign-in at an identity provider, now or later.
pub(crate) trait SubjectTokens: Send + Sync {
    /// The user's valid token of this type. It differs from the `refused` one, if possible.
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
