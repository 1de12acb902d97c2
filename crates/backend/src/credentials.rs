//! Sources of credentials for servers, apart from configured headers.

use std::sync::Arc;

use fanlight_canonical::{BackendError, Principal, SignInWish};
use fanlight_config::settings::Secret;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::Url;

/// Credentials that are being obtained.
pub type PendingCredentials = BoxFuture<'static, Result<HeaderMap, NoCredentials>>;

/// Environment variables of a process that are being obtained.
pub type PendingEnvironment = BoxFuture<'static, Result<Vec<(String, Secret)>, NoCredentials>>;

/// A source of credentials for a server. It is asked for each message, so renewed credentials apply
/// at once.
pub trait CredentialSource: Send + Sync + 'static {
    /// The headers for the next message; usually available at once. A pending result must have its
    /// own time limit.
    fn credentials(&self, message: &MessageTarget<'_>) -> Credentials;

    /// Handles a server's refusal of credentials. The refused message certainly did not run.
    /// Returns other credentials for one retry, or the reason why there are none; `None` leaves the
    /// refusal as the answer.
    fn replace(&self, refusal: Refusal) -> Option<PendingCredentials>;

    /// Handles the refusal of the credentials from [`Self::replace`]. Says what is missing, if that
    /// is known.
    fn give_up(&self, refusal: &Refusal) -> Option<NoCredentials> {
        let _ = refusal;
        None
    }

    /// The variables with credentials for the user's own process; `None` for a server over HTTP. A
    /// pending result must have its own time limit.
    fn environment(&self) -> Option<PendingEnvironment> {
        None
    }

    /// The sign-in that a user must do first; `None` if there are credentials, or they do not
    /// depend on a user.
    fn sign_in(&self) -> Option<Arc<SignInWish>> {
        None
    }

    /// Whether a user has signed in or deposited a key.
    fn are_there(&self) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Waits until the user's current sign-in has succeeded or failed; `None` if none is in
    /// progress.
    fn signing_in(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// The credentials of each principal for one server.
pub trait PrincipalCredentials: Send + Sync + 'static {
    /// The source for one principal. If the principal lacks permission, the source says so.
    fn source(&self, principal: &Principal) -> Arc<dyn CredentialSource>;

    /// Whether the lists of users without credentials contain a tool for signing in.
    fn has_connect_tool(&self) -> bool {
        false
    }

    /// Waits until any principal has signed in or out since this call.
    fn changed(&self) -> BoxFuture<'static, ()>;
}

/// Credentials that are available or being obtained.
pub enum Credentials {
    /// Available headers.
    Ready(HeaderMap),
    /// Headers that are being obtained.
    Wait(PendingCredentials),
}

impl Credentials {
    /// Waits for the headers.
    ///
    /// # Errors
    ///
    /// The reason why there are none.
    pub async fn headers(self) -> Result<HeaderMap, NoCredentials> {
        match self {
            Self::Ready(headers) => Ok(headers),
            Self::Wait(pending) => pending.await,
        }
    }
}

/// The message that needs credentials. Some credentials prove that they belong to one message (RFC
/// 9449, 4.2).
#[derive(Clone, Copy, Debug)]
pub struct MessageTarget<'a> {
    /// The HTTP method.
    pub method: &'a Method,
    /// The destination.
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
    /// The refused headers.
    pub shown: HeaderMap,
    /// The message's HTTP method.
    pub method: Method,
    /// The message's destination.
    pub url: Url,
}

/// The reason why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCredentials {
    /// The user has to sign in first.
    SignIn(Arc<SignInWish>),
    /// Credentials are unavailable for a reason that concerns operators.
    Unavailable {
        /// The failed attempt and its error.
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

fanlight_protocol::opaque!(dyn CredentialSource);
