//! The sign-in of operators and users at an OpenID Connect issuer.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::Identity;
use futures_util::future::BoxFuture;

/// The future of an issuer's answer.
pub type Signing<'a, T> = BoxFuture<'a, Result<T, SignInError>>;

/// Signs people in at issuers of `auth`, by the authorization code flow with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636).
pub trait SignIn: Send + Sync + fmt::Debug {
    /// Begins a sign-in at `issuer`, which sends the browser back to `redirect_uri`, or to the
    /// issuer's own place below it.
    fn begin<'a>(&'a self, issuer: &'a str, redirect_uri: &'a str) -> Signing<'a, Begun>;

    /// Ends the sign-in `attempt`, whose browser came back to `path`, if that is known, with the
    /// parameters `query`. Returns the identity of the user, and the proof of it. The principal is
    /// the same as with the issuer's access tokens.
    fn finish<'a>(
        &'a self,
        attempt: &'a str,
        path: Option<&'a str>,
        query: &'a str,
    ) -> Signing<'a, (Arc<Identity>, String)>;

    /// Verifies a proof of [`Self::finish`] again, also one of another replica.
    fn identify<'a>(&'a self, proof: &'a str) -> Signing<'a, Arc<Identity>>;
}

/// The future of an operation on common records. The error is for operators.
pub type Keeping<'a, T> = BoxFuture<'a, Result<T, String>>;

/// Records of operators' sessions, by name, which all replicas have in common.
pub trait CommonSessions: Send + Sync + fmt::Debug {
    /// The record of this name.
    fn get<'a>(&'a self, name: &'a str) -> Keeping<'a, Option<KeptSession>>;

    /// Stores a record.
    fn put<'a>(&'a self, name: &'a str, session: KeptSession) -> Keeping<'a, ()>;

    /// Replaces a record, unless it was removed meanwhile.
    fn replace<'a>(&'a self, name: &'a str, session: KeptSession) -> Keeping<'a, ()>;

    /// Removes a record.
    fn remove<'a>(&'a self, name: &'a str) -> Keeping<'a, ()>;
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
