//! Requests that one replica passes on to another: to the one that keeps what they are about (a session, a suspended call, or a
//! task that Fanlight has made), or, of a replica that ends, to one that opens the session that they ask for.
//!
//! A request goes through an envelope ([`Envelopes`]), which holds all that the receiver acts on: what the client asked, and who the
//! client is as the sender has authenticated it. It is sealed with the keys that replicas share, for one run of one
//! replica, with the digest of the body, a time and a number that is good once. What stands outside of it decides nothing,
//! so a client that writes such a request itself, or changes one, is refused.
//!
//! A request that came in an envelope is never passed on again: the types of the receiver have no way to do so.

mod client;
mod envelope;
mod window;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use fanlight_canonical::ProcessRun;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;

pub use client::ForwardedClient;
pub use envelope::{Envelopes, Opened, Refused};

/// The header field that holds the envelope.
pub const ENVELOPE: &str = "fanlight-envelope";

/// The most bytes of an envelope. No option: more than the largest `limits.header` comes to in it, with every character escaped and
/// in Base64, and replicas trust each other with as much.
pub const LONGEST_ENVELOPE: usize = 4 << 20;

/// The most that HTTP/2 lets be on its way over a connection, in bytes (RFC 9113 section 6.9.1): what many clients have in common.
pub const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// The status with which a replica says [`ForwardError::TaskElsewhere`]. No answer to a client has it.
pub const TASK_ELSEWHERE: StatusCode = StatusCode::TEMPORARY_REDIRECT;

/// A request of a client, but for its body.
#[derive(Clone, Debug)]
pub struct ForwardedRequest {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub target: Uri,
    /// The header fields that its meaning depends on. None with credentials: those have been checked.
    pub headers: HeaderMap,
    /// Who has sent it.
    pub client: ForwardedClient,
}

/// The body of an answer, as it arrives.
pub type ForwardedBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// The future of an answer. Dropping it cancels the request at the other replica.
pub type Forwarding<'a> =
    Pin<Box<dyn Future<Output = Result<Response<ForwardedBody>, ForwardError>> + Send + 'a>>;

/// Why another replica has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// It has ended, or keeps what the request is about no more: it has not looked at the request.
    #[error("the replica has ended")]
    Gone,
    /// It keeps the session of the request, but not the task that the request is about: it has done no more than find that out.
    #[error("the replica keeps the session, and another one the task")]
    TaskElsewhere,
    /// The header fields of the request and what is known of its client take more than [`LONGEST_ENVELOPE`]: nothing was sent.
    #[error("the request is too long to be passed on")]
    TooLong,
    /// No connection to it can be made, so that it has not seen the request. It may live all the same.
    #[error("the replica cannot be reached")]
    Unreachable,
    /// The connection broke after the request was sent, which may have been carried out.
    #[error("the connection to the replica broke; it may have carried the request out")]
    Lost,
}

/// The other replicas of this process.
pub trait Replicas: Send + Sync + fmt::Debug {
    /// Has `run` answer a request. Nothing is sent twice.
    fn forward<'a>(
        &'a self,
        run: ProcessRun,
        request: &'a ForwardedRequest,
        body: Bytes,
    ) -> Forwarding<'a>;

    /// Any other replica that goes on, for what is not to begin at one that ends.
    fn another(&self) -> Option<ProcessRun>;

    /// Opens an envelope that was sent to this replica. It is good once.
    ///
    /// # Errors
    ///
    /// If no replica has sent it to this one just now.
    fn open(&self, envelope: &str) -> Result<Opened, Refused>;
}
