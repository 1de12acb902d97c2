//! Why a request has no identity.

use std::borrow::Cow;
use std::time::Duration;

/// Why a request has no identity. The texts are for the client: they name no token, address or path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// It carries no credentials: 401 without an error code (RFC 6750, 3.1).
    #[error("authentication is required")]
    Missing,
    /// Its credentials are not well-formed, or there are several: 400 `invalid_request`.
    #[error("{0}")]
    Malformed(Cow<'static, str>),
    /// Its credentials are not accepted: 401 `invalid_token`.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// Its proof of possession is not accepted: 401 `invalid_dpop_proof` (RFC 9449, 7.1).
    #[error("{0}")]
    InvalidProof(Cow<'static, str>),
    /// Its client is known, and may not use this endpoint: 403.
    #[error("{0}")]
    Forbidden(Cow<'static, str>),
    /// Too many of its peer's requests had credentials that are not accepted: 429.
    #[error("too many requests with credentials that are not accepted; try again later")]
    Throttled {
        /// After this time.
        retry_after: Duration,
    },
    /// Its credentials cannot be checked at the moment: 503.
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}
