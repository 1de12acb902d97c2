//! The sign-in of operators and users at an OpenID Connect issuer.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::identity::Identity;

/// The registration of Fanlight at an issuer, for the sign-in of operators.
#[derive(Clone, PartialEq, Eq)]
pub struct SignInSettings {
    /// The issuer's identifier.
    pub issuer: String,
    /// The client's identifier.
    pub client_id: String,
    /// The client's secret, if it has one.
    pub client_secret: Option<String>,
    /// The URL to which the issuer sends browsers back.
    pub redirect_uri: String,
    /// The scopes that are requested besides `openid`.
    pub scopes: Vec<String>,
    /// The claim with the name for people; `None` uses the common ones.
    pub name_claim: Option<String>,
    /// The claim with groups.
    pub groups_claim: String,
    /// The claim with scopes, if scopes are read.
    pub scopes_claim: Option<String>,
}

impl fmt::Debug for SignInSettings {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignInSettings")
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .field("redirect_uri", &self.redirect_uri)
            .finish_non_exhaustive()
    }
}

/// The future of an issuer's answer.
pub type Signing<'a, T> = Pin<Box<dyn Future<Output = Result<T, SignInError>> + Send + 'a>>;

/// Signs operators in by the authorization code flow with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636).
pub trait SignIn: Send + Sync + fmt::Debug {
    /// Begins a sign-in. Returns the URL for the browser, and the secrets that the browser must
    /// present when it comes back.
    fn begin(&self) -> Signing<'_, Begun>;

    /// Completes the sign-in `attempt`, whose browser came back with `answer`. Returns the
    /// identity.
    fn finish<'a>(
        &'a self,
        attempt: &'a Attempt,
        answer: IssuerAnswer<'a>,
    ) -> Signing<'a, Arc<Identity>>;
}

/// A sign-in that has begun.
#[derive(Debug)]
pub struct Begun {
    /// The URL at the issuer that the browser goes to.
    pub location: String,
    /// The secrets that the browser keeps.
    pub attempt: Attempt,
}

/// The secrets of one sign-in, each of 256 random bits. Only the browser that began the sign-in
/// gets them.
#[derive(Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Returned by the issuer with its answer; proves that the answer belongs to this attempt.
    pub state: String,
    /// Contained in the ID token; proves that the token was made for this attempt.
    pub nonce: String,
    /// Sent with the code, because the issuer gives out tokens for the code only then (RFC 7636).
    pub verifier: String,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attempt(***)")
    }
}

/// The parameters with which a browser comes back from the issuer (RFC 6749, 4.1.2; RFC 9207).
#[derive(Clone, Copy, Default)]
pub struct IssuerAnswer<'a> {
    /// The authorization code.
    pub code: Option<&'a str>,
    /// The `state` of the attempt.
    pub state: Option<&'a str>,
    /// The issuer, if it names itself.
    pub iss: Option<&'a str>,
    /// The error, if there is no code.
    pub error: Option<&'a str>,
}

impl fmt::Debug for IssuerAnswer<'_> {
    /// Without the code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuerAnswer")
            .field("iss", &self.iss)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

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

impl fmt::Debug for IdToken<'_> {
    /// Without the token and the nonce.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdToken")
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
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
