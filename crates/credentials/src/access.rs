//! The interface by which a listener authenticates clients.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fanlight_canonical::identity::Identity;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};

use crate::sign_in::{IdToken, SignInError};

/// A client's identity, which is known at once or needs requests to an issuer.
pub enum Authentication<'a> {
    /// The identity is known.
    Ready(Result<Arc<Identity>, Denial>),
    /// An issuer has to be asked.
    Pending(BoxFuture<'a, Result<Arc<Identity>, Denial>>),
}

impl Authentication<'_> {
    /// Waits for the identity.
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

fanlight_protocol::opaque!(Authentication<'_>);

/// Authenticates requests.
#[async_trait]
pub trait Authenticate: Send + Sync + fmt::Debug {
    /// The identity of a request with these credentials. Called once for each request.
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a>;

    /// The identity of a user by an ID token that an issuer has given to Fanlight as its client.
    /// The principal is the same as with that issuer's access tokens.
    async fn identify(&self, shown: IdToken<'_>) -> Result<Arc<Identity>, SignInError> {
        let _ = shown;
        Err(SignInError::Refused("nobody signs in here".into()))
    }
}

/// Gives everyone the identity [`Identity::anonymous`].
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

/// The reason why a request has no identity. The texts are for the client: they contain no token,
/// address or path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The request has no credentials: 401 without an error code (RFC 6750, 3.1).
    #[error("authentication is required")]
    Missing,
    /// The credentials are malformed, or there are several: 400 `invalid_request`.
    #[error("{0}")]
    Malformed(Cow<'static, str>),
    /// The credentials are not accepted: 401 `invalid_token`.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// The proof of possession is not accepted: 401 `invalid_dpop_proof` (RFC 9449, 7.1).
    #[error("{0}")]
    InvalidProof(Cow<'static, str>),
    /// The client is authenticated, but may not use this endpoint: 403.
    #[error("{0}")]
    Forbidden(Cow<'static, str>),
    /// Too many requests of the peer had credentials that were not accepted: 429.
    #[error("too many requests with credentials that are not accepted; try again later")]
    Throttled {
        /// The time after which the client may try again.
        retry_after: Duration,
    },
    /// The credentials cannot be checked at the moment: 503.
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}

/// The properties of a client's connection that a listener knows.
#[derive(Clone, Debug, Default)]
pub struct ConnectionFacts {
    /// The number of the connection in recordings.
    pub number: u64,
    /// The local address that the connection arrived at.
    pub local: Option<IpAddr>,
    /// The remote address, which may be a proxy's.
    pub peer: Option<SocketAddr>,
    /// The remote process, on a Unix socket.
    pub socket: Option<SocketPeer>,
    /// The client's TLS certificate in DER, which the listener has verified.
    pub certificate: Option<Arc<[u8]>>,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
}

/// The process at the other end of a Unix socket, as reported by the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketPeer {
    /// The process's effective user.
    pub user: u32,
    /// The process's effective group.
    pub group: u32,
}

/// The parts of a request that can identify its client.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The path of its URL, as the client sent it.
    pub path: &'a str,
    /// The request's header fields.
    pub headers: &'a HeaderMap,
    /// The request's connection.
    pub connection: &'a ConnectionFacts,
    /// The address whose share of limits the request uses: the remote address, or the one that a
    /// trusted proxy has forwarded. For IPv6 it is a network. `None` on a Unix socket.
    pub client: Option<IpAddr>,
    /// The path of the requested endpoint, such as `/mcp`.
    pub endpoint: &'a str,
}

fanlight_protocol::opaque!(Credentials<'_>);

/// The URL of the resource at `path` of a listener that clients reach at `public_url`. Tokens are
/// issued for it (RFC 8707) and metadata name it (RFC 9728). It has no slash at the end (2026-07-28
/// basic/authorization, Canonical Server URI).
pub fn resource_url(public_url: &str, path: &str) -> String {
    format!(
        "{}{}",
        public_url.trim_end_matches('/'),
        path.trim_end_matches('/')
    )
}
