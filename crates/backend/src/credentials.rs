//! Where the credentials come from that an HTTP server is shown, apart from headers that the configuration sets.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use fanlight_canonical::{BackendError, Principal, SignInWish};
use fanlight_settings::Secret;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::Url;

/// Credentials, once they are there.
pub type PendingCredentials =
    Pin<Box<dyn Future<Output = Result<HeaderMap, NoCredentials>> + Send>>;

/// Environment variables of a process, once they are there.
pub type PendingEnvironment =
    Pin<Box<dyn Future<Output = Result<Vec<(String, Secret)>, NoCredentials>> + Send>>;

/// The credentials that a server is shown. Asked for each message, so that what was renewed is used at once.
pub trait CredentialSource: Send + Sync + 'static {
    /// The headers of the next message; ready at once in the usual case. What is waited for must have a limit of its own.
    fn credentials(&self, message: &MessageTarget<'_>) -> Credentials;

    /// The server has refused a message with these credentials, which it certainly did not carry out. Gives others, to send
    /// it with once more, or says why there are none; `None` leaves it with the refusal.
    fn replace(&self, refusal: Refusal) -> Option<PendingCredentials>;

    /// The server has refused what [`Self::replace`] gave as well. Says what is missing, if that is known.
    fn give_up(&self, refusal: &Refusal) -> Option<NoCredentials> {
        let _ = refusal;
        None
    }

    /// The variables by which the user's own process gets them; `None` for a server over HTTP. What is waited for must have a
    /// limit of its own.
    fn environment(&self) -> Option<PendingEnvironment> {
        None
    }

    /// What a user has to do before there are any credentials at all; `None` if there are some, or none of a user's.
    fn sign_in(&self) -> Option<Arc<SignInWish>> {
        None
    }

    /// Whether a user has signed in, or deposited a key.
    fn are_there(&self) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(std::future::ready(false))
    }

    /// Waits until the user, who is signing in at this moment, has done so or given up; `None` if the user is not.
    fn signing_in(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        None
    }
}

/// The credentials of each principal for one server.
pub trait PrincipalCredentials: Send + Sync + 'static {
    /// Those of one principal. A principal that may not have any gets a source that says so.
    fn of(&self, principal: &Principal) -> Arc<dyn CredentialSource>;

    /// Whether a tool stands for the server in the lists of those that have none.
    fn has_connect_tool(&self) -> bool {
        false
    }

    /// Waits until some principal has signed in or out since this was called.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Credentials that are there, or are being obtained.
pub enum Credentials {
    /// These headers.
    Ready(HeaderMap),
    /// They are being obtained.
    Wait(PendingCredentials),
}

impl Credentials {
    /// The headers, as soon as they are there.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub async fn headers(self) -> Result<HeaderMap, NoCredentials> {
        match self {
            Self::Ready(headers) => Ok(headers),
            Self::Wait(pending) => pending.await,
        }
    }
}

/// The message that credentials are for: some prove that they belong to it (RFC 9449, 4.2).
#[derive(Clone, Copy, Debug)]
pub struct MessageTarget<'a> {
    /// The method of HTTP.
    pub method: &'a Method,
    /// Where it is sent.
    pub url: &'a Url,
}

/// A server's refusal of credentials.
#[derive(Debug)]
pub struct Refusal {
    /// 401, or 403 with a challenge.
    pub status: StatusCode,
    /// The values of `WWW-Authenticate`.
    pub challenges: Vec<HeaderValue>,
    /// A nonce for the next proof (RFC 9449, 9).
    pub nonce: Option<HeaderValue>,
    /// What it was shown.
    pub shown: HeaderMap,
    /// The method of the message.
    pub method: Method,
    /// Where it was sent.
    pub url: Url,
}

/// Why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCredentials {
    /// The user has to sign in first.
    SignIn(Arc<SignInWish>),
    /// None can be had now, for a reason that is for operators.
    Unavailable {
        /// What was tried and what came of it.
        reason: String,
    },
}

impl From<NoCredentials> for BackendError {
    fn from(missing: NoCredentials) -> Self {
        match missing {
            NoCredentials::SignIn(wish) => Self::SignInWanted(wish),
            NoCredentials::Unavailable { reason } => Self::NoCredentials { reason },
        }
    }
}

impl fmt::Debug for dyn CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialSource")
    }
}
