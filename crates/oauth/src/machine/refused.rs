//! What a server refuses.

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use url::Url;

/// A message that the server has refused.
#[derive(Debug)]
pub struct RefusedMessage<'a> {
    /// The status.
    pub status: StatusCode,
    /// The values of `WWW-Authenticate`.
    pub challenges: &'a [HeaderValue],
    /// What the next proof has to contain.
    pub nonce: Option<&'a HeaderValue>,
    /// What it was shown.
    pub shown: &'a HeaderMap,
    /// The message's method.
    pub method: Method,
    /// Where it was sent.
    pub url: Url,
}
