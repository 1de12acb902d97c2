//! The sign-in of operators and users at an OpenID Connect issuer.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use fanlight_canonical::identity::Identity;

/// Signs people in at issuers of `auth`, by the authorization code flow with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636).
#[async_trait]
pub trait SignIn: Send + Sync + fmt::Debug {
    /// Begins a sign-in at `issuer`, which sends the browser back to `redirect_uri`, or to the
    /// issuer's own place below it.
    async fn begin(&self, issuer: &str, redirect_uri: &str) -> Result<Begun, SignInError>;

    /// Ends the sign-in `attempt`, whose browser came back to `path`, if that is known, with the
    /// parameters `query`. Returns the identity of the user, and the proof of it. The principal is
    /// the same as with the issuer's access tokens.
    async fn finish(
        &self,
        attempt: &str,
        path: Option<&str>,
        query: &str,
    ) -> Result<(Arc<Identity>, String), SignInError>;

    /// Verifies a proof of [`Self::finish`] again, also one of another replica.
    async fn identify(&self, proof: &str) -> Result<Arc<Identity>, SignInError>;
}

/// Records of operators' sessions, by name, which all replicas have in common. Errors are for operators.
#[async_trait]
pub trait CommonSessions: Send + Sync + fmt::Debug {
    /// The record of this name.
    async fn get(&self, name: &str) -> Result<Option<KeptSession>, String>;

    /// Stores a record.
    async fn put(&self, name: &str, session: KeptSession) -> Result<(), String>;

    /// Replaces a record, unless it was removed meanwhile.
    async fn replace(&self, name: &str, session: KeptSession) -> Result<(), String>;

    /// Removes a record.
    async fn remove(&self, name: &str) -> Result<(), String>;
}

/// The stored record of an operator's session.
#[derive(Clone)]
pub struct KeptSession {
    /// The session, with secrets.
    pub text: String,
    /// When the record ends.
    pub expires: SystemTime,
}

/// A sign-in that has begun.
pub struct Begun {
    /// The URL at the issuer that the browser goes to.
    pub location: String,
    /// The secrets of the sign-in, for [`SignIn::finish`]. Only the browser that began the sign-in
    /// may have them, and only encrypted.
    pub attempt: String,
}

fanlight_protocol::opaque!(Begun, KeptSession, IdToken<'_>);

/// An ID token, and the values that it must contain.
#[derive(Clone, Copy)]
pub struct IdToken<'a> {
    /// The token.
    pub token: &'a str,
    /// The issuer that gave it.
    pub issuer: &'a str,
    /// The client that it was given to.
    pub client_id: &'a str,
    /// The nonce of its sign-in.
    pub nonce: &'a str,
}

/// The reason why nobody was signed in. The texts are for the person who tries, and contain no
/// secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The answer does not belong to the attempt, or its contents are not accepted.
    #[error("{0}")]
    Refused(Cow<'static, str>),
    /// The issuer cannot be reached at the moment, or does not answer as an issuer should.
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}
