//! How operators and users sign in at an OpenID Connect issuer.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use fanlight_identity::Identity;

/// The client that is registered at an issuer for the sign-in of operators.
#[derive(Clone, PartialEq, Eq)]
pub struct SignInSettings {
    /// The issuer's identifier.
    pub issuer: String,
    /// The client's identifier.
    pub client_id: String,
    /// Its secret, if it has one.
    pub client_secret: Option<String>,
    /// Where the issuer sends browsers back to.
    pub redirect_uri: String,
    /// The scopes that are requested besides `openid`.
    pub scopes: Vec<String>,
    /// The claim with the name for people; `None` for the usual ones.
    pub name_claim: Option<String>,
    /// The claim with groups.
    pub groups_claim: String,
    /// The claim with scopes, if they are read.
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

/// The answer of an issuer, once it is there.
pub type Signing<'a, T> = Pin<Box<dyn Future<Output = Result<T, SignInError>> + Send + 'a>>;

/// Signs operators in by the authorization code flow with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636).
pub trait SignIn: Send + Sync + fmt::Debug {
    /// Begins a sign-in: where the browser goes, and what it must show when it comes back.
    fn begin(&self) -> Signing<'_, Begun>;

    /// Ends the sign-in `attempt`, whose browser has been sent back with `answer`: who has signed in.
    fn finish<'a>(
        &'a self,
        attempt: &'a Attempt,
        answer: IssuerAnswer<'a>,
    ) -> Signing<'a, Arc<Identity>>;
}

/// A sign-in that has begun.
#[derive(Debug)]
pub struct Begun {
    /// The URL at the issuer to which the browser goes.
    pub location: String,
    /// What the browser that began it keeps.
    pub attempt: Attempt,
}

/// The secrets of one sign-in, each of 256 random bits. They are for the browser that began it alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Returned by the issuer with its answer: shows that the answer belongs to this attempt.
    pub state: String,
    /// Within the ID token: shows that the token was made for this attempt.
    pub nonce: String,
    /// Shown with the code, which the issuer gives tokens for only then (RFC 7636).
    pub verifier: String,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attempt(***)")
    }
}

/// What a browser brings back from the issuer (RFC 6749, 4.1.2; RFC 9207).
#[derive(Clone, Copy, Default)]
pub struct IssuerAnswer<'a> {
    /// The authorization code.
    pub code: Option<&'a str>,
    /// The `state` of the attempt.
    pub state: Option<&'a str>,
    /// The issuer, if it names itself.
    pub iss: Option<&'a str>,
    /// Why there is no code.
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

/// An ID token, and what it has to be for.
#[derive(Clone, Copy)]
pub struct IdToken<'a> {
    /// The token.
    pub token: &'a str,
    /// The issuer that has given it.
    pub issuer: &'a str,
    /// The client that it was given to.
    pub client_id: &'a str,
    /// The nonce of the sign-in that it was given for.
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

/// Why nobody was signed in. The texts are for the person who tries: they name no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The answer does not belong to the attempt, or what it brings is not accepted.
    #[error("{0}")]
    Refused(Cow<'static, str>),
    /// The issuer cannot be asked at the moment, or does not answer as an issuer does.
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}
