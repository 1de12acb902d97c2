//! The reasons for denying a request.

use std::borrow::Cow;
use std::time::Duration;

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
