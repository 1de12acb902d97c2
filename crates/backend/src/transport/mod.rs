//! The transports, which send a request and receive its reply.

pub(crate) mod channel;
pub(crate) mod http;
pub(crate) mod recorded;
pub(crate) mod stdio;

use ::http::header::HeaderValue;
use bytes::Bytes;
use fanlight_protocol::Revision;
use futures_util::future::Either;
use tokio_util::sync::CancellationToken;

use crate::request::{OutgoingRequest, Reply};
use crate::transport::channel::{Channel, Shared};
use crate::transport::http::HttpTransport;
use fanlight_canonical::BackendError;

/// A transport to one server. Dropping it ends the child process, if there is one.
pub(crate) enum Transport {
    Http(Box<HttpTransport>),
    /// A child process.
    Stdio(Channel),
    /// A server of the deprecated HTTP+SSE transport.
    Sse(Channel),
}

impl Transport {
    /// Sends a request and waits for its reply. [`BackendError::Unreachable`] means that nothing
    /// was sent. The caller must poll the future at once.
    pub(crate) fn exchange<'a>(
        &'a self,
        outgoing: OutgoingRequest<'a>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        match self {
            Self::Http(http) => Either::Left(http.exchange(outgoing)),
            Self::Stdio(channel) | Self::Sse(channel) => Either::Right(channel.exchange(outgoing)),
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, text: Bytes) -> Result<(), BackendError> {
        match self {
            Self::Http(http) => http.notify(text).await,
            Self::Stdio(channel) | Self::Sse(channel) => channel.notify(text).await,
        }
    }

    /// Adopts the handshake's agreement.
    pub(crate) fn adopt(&mut self, revision: Revision, session: Option<HeaderValue>) {
        match self {
            Self::Http(http) => http.adopt(revision, session),
            Self::Stdio(channel) | Self::Sse(channel) => channel.adopt(revision),
        }
    }

    /// Cancelled once nothing can be answered any more; `None` for HTTP.
    pub(crate) fn gone_token(&self) -> Option<CancellationToken> {
        // HTTP connections come and go; their number means nothing.
        self.channel().map(|channel| channel.gone.clone())
    }

    /// The channel, which shows the server's signs of life; `None` for HTTP.
    pub(crate) fn channel(&self) -> Option<&Shared> {
        match self {
            Self::Http(_) => None,
            Self::Stdio(channel) | Self::Sse(channel) => Some(&channel.shared),
        }
    }

    /// Whether the server has assigned a session.
    pub(crate) fn has_session(&self) -> bool {
        match self {
            Self::Http(http) => http.has_session(),
            Self::Stdio(_) => false,
            // The stream is the session.
            Self::Sse(_) => true,
        }
    }

    /// The id of the session.
    pub(crate) fn session(&self) -> Option<&str> {
        self.http().and_then(HttpTransport::session)
    }

    /// The transport's name.
    pub(crate) fn transport(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Stdio(_) => "stdio",
            Self::Sse(_) => "sse",
        }
    }

    /// Whether the server uses the deprecated HTTP+SSE transport.
    pub(crate) fn is_sse(&self) -> bool {
        matches!(self, Self::Sse(_))
    }

    /// Whether messages are sent as HTTP requests with their own headers.
    pub(crate) fn has_headers(&self) -> bool {
        matches!(self, Self::Http(_) | Self::Sse(_))
    }

    pub(crate) fn is_http(&self) -> bool {
        self.http().is_some()
    }

    /// Whether the server is a child process.
    pub(crate) fn is_stdio(&self) -> bool {
        matches!(self, Self::Stdio(_))
    }

    pub(crate) fn http(&self) -> Option<&HttpTransport> {
        match self {
            Self::Http(http) => Some(http),
            Self::Stdio(_) | Self::Sse(_) => None,
        }
    }

    /// Ends the session or begins to end the process. Takes a bounded time.
    pub(crate) async fn close(&self) {
        match self {
            Self::Http(http) => http.close().await,
            Self::Stdio(channel) | Self::Sse(channel) => channel.shared.end.cancel(),
        }
    }
}
