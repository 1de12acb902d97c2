//! A server's refusal.

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use url::Url;

/// A message that the server has refused.
#[derive(Debug)]
pub struct RefusedMessage<'a> {
    /// The status.
    pub status: StatusCode,
    /// The values of `WWW-Authenticate`.
    pub challenges: &'a [HeaderValue],
    /// The nonce for the next DPoP proof.
    pub nonce: Option<&'a HeaderValue>,
    /// The headers with the refused credentials.
    pub shown: &'a HeaderMap,
    /// The message's method.
    pub method: Method,
    /// The URL that it was sent to.
    pub url: Url,
}
