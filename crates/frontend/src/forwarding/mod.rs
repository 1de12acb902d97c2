//! Requests that one replica forwards to another. Usually that is the one with the request's
//! subject: a session, a suspended call, or a task that Fanlight made. A replica that is ending
//! forwards requests for new sessions to any other.
//!
//! A request travels in an envelope ([`Envelopes`]). It contains everything that the receiver acts
//! on: the client's request, and the client's identity as the sender has authenticated it. It is
//! sealed with the replicas' shared keys, for one run of one replica. The seal covers the digest of
//! the body, a time, and a number that is valid once. Nothing outside of the envelope matters. So a
//! request that a client makes up or changes is refused.
//!
//! A forwarded request is never forwarded again: the receiver's types have no way to do so.

mod client;
mod envelope;

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use fanlight_canonical::ProcessRun;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;

pub use client::ForwardedClient;
pub use envelope::{Envelopes, Opened, Refused};

/// The header field with the envelope.
pub const ENVELOPE: &str = "fanlight-envelope";

/// The maximum length of an envelope in bytes. The longest header needs less, even with every
/// character escaped and in Base64. Replicas trust each other with as much.
pub const LONGEST_ENVELOPE: usize = 4 << 20;

/// The maximum number of bytes in flight on an HTTP/2 connection (RFC 9113 section 6.9.1), which
/// many clients share.
pub const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// The status that stands for [`ForwardError::TaskElsewhere`]. No answer to a client has it.
pub const TASK_ELSEWHERE: StatusCode = StatusCode::TEMPORARY_REDIRECT;

/// A client's request without its body.
#[derive(Clone, Debug)]
pub struct ForwardedRequest {
    /// The method.
    pub method: Method,
    /// The path and query.
    pub target: Uri,
    /// The header fields that affect the request's meaning. None has credentials, which have been
    /// checked already.
    pub headers: HeaderMap,
    /// The sender of the request.
    pub client: ForwardedClient,
}

/// The body of an answer, as it arrives.
pub type ForwardedBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// The future of an answer. Dropping it cancels the request at the other replica.
pub type Forwarding<'a> = BoxFuture<'a, Result<Response<ForwardedBody>, ForwardError>>;

/// The reason why another replica did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// The replica has ended or no longer has the request's subject. It has not processed the
    /// request.
    #[error("the replica has ended")]
    Gone,
    /// The replica has the request's session, but not its task. It did nothing else.
    #[error("the replica keeps the session, and another one the task")]
    TaskElsewhere,
    /// The request's header fields and its client's identity exceed [`LONGEST_ENVELOPE`]. Nothing
    /// was sent.
    #[error("the request is too long to be passed on")]
    TooLong,
    /// No connection is possible, so the replica has not seen the request. It may still be alive.
    #[error("the replica cannot be reached")]
    Unreachable,
    /// The connection broke after the request was sent, so the request may have run.
    #[error("the connection to the replica broke; it may have carried the request out")]
    Lost,
}

/// The other replicas, from the view of this process.
///
/// A trait because its implementation depends on this crate.
pub trait Replicas: Send + Sync + fmt::Debug {
    /// Lets `run` answer a request. Nothing is sent twice.
    fn forward<'a>(
        &'a self,
        run: ProcessRun,
        request: &'a ForwardedRequest,
        body: Bytes,
    ) -> Forwarding<'a>;

    /// A replica that is not ending, for work that an ending replica should not begin.
    fn find_other(&self) -> Option<ProcessRun>;

    /// Opens an envelope for this replica, which is valid once.
    ///
    /// # Errors
    ///
    /// If no replica has just sent it to this one.
    fn open(&self, envelope: &str) -> Result<Opened, Refused>;
}
