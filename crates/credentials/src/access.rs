//! How a listener asks who a client is.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use fanlight_identity::Identity;

use crate::sign_in::{IdToken, SignInError, Signing};
use crate::{Credentials, Denial};

/// The answer to who a client is: at once, in nearly all cases, or after others have been asked.
pub enum Authentication<'a> {
    /// It is known.
    Ready(Result<Arc<Identity>, Denial>),
    /// An issuer has to be asked.
    Pending(Pin<Box<dyn Future<Output = Result<Arc<Identity>, Denial>> + Send + 'a>>),
}

impl Authentication<'_> {
    /// Waits for it.
    ///
    /// # Errors
    ///
    /// If the request has no identity.
    pub async fn outcome(self) -> Result<Arc<Identity>, Denial> {
        match self {
            Self::Ready(outcome) => outcome,
            Self::Pending(outcome) => outcome.await,
        }
    }
}

impl fmt::Debug for Authentication<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(outcome) => f.debug_tuple("Ready").field(outcome).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

/// Tells the identity behind requests.
pub trait Authenticate: Send + Sync + fmt::Debug {
    /// The identity behind a request with these credentials. Asked once for each request.
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a>;

    /// The user that an ID token names, which an issuer of access tokens has given to Fanlight as its client: the same principal
    /// as by that issuer's access tokens.
    fn identify<'a>(&'a self, shown: IdToken<'a>) -> Signing<'a, Arc<Identity>> {
        let _ = shown;
        Box::pin(async { Err(SignInError::Refused("nobody signs in here".into())) })
    }
}

/// Serves everyone as [`Identity::anonymous`].
#[derive(Clone, Debug)]
pub struct Open(Arc<Identity>);

impl Default for Open {
    fn default() -> Self {
        Self(Arc::new(Identity::anonymous()))
    }
}

impl Authenticate for Open {
    fn authenticate<'a>(&'a self, _: &Credentials<'a>) -> Authentication<'a> {
        Authentication::Ready(Ok(Arc::clone(&self.0)))
    }
}
