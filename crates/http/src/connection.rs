//! HTTP/1.1 on one connection.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use crate::{
    ClientStream, Endable, HandshakeError, TlsServer, Usage, UsageKind, accept_tls,
    client_certificate,
};

/// The smallest head limit that hyper accepts, in bytes.
const MIN_HEAD: usize = 8 << 10;

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Http1Limits {
    /// The maximum size of a request head in bytes; at least 8 KiB are always allowed.
    pub head: usize,
    /// The time limit for the head of a request, and so for an idle connection.
    pub head_timeout: Duration,
    /// How long the client may read nothing of a response.
    pub write_timeout: Duration,
}

/// A byte stream of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Stream for S {}

/// A byte stream of an unknown kind, so that large code exists only once for all kinds.
pub type BoxedStream = Box<dyn Stream>;

/// A connection that is ready for HTTP, with the facts about it.
#[derive(Debug)]
pub struct OpenedStream {
    /// The stream; after the handshake, if the listener speaks TLS.
    pub stream: BoxedStream,
    /// The local address.
    pub local: Option<SocketAddr>,
    /// The address of the other end.
    pub peer: Option<SocketAddr>,
    /// The user and group ids of the process at the other end, on a Unix socket.
    pub socket: Option<(u32, u32)>,
    /// The client's verified certificate, in DER.
    pub certificate: Option<Arc<[u8]>>,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
}

/// Makes a connection ready for HTTP. This may take as long as the client likes, so the caller
/// limits the time.
///
/// # Errors
///
/// If the connection breaks, or the handshake fails.
pub async fn open(
    stream: ClientStream,
    tls: Option<&TlsServer>,
) -> Result<OpenedStream, HandshakeError> {
    let stream = match stream {
        ClientStream::Tcp(stream) => stream,
        ClientStream::Unix(stream) => {
            let process = stream.peer_cred()?;
            let socket = Some((process.uid(), process.gid()));
            let stream = Box::new(stream);
            return Ok(OpenedStream {
                stream,
                local: None,
                peer: None,
                socket,
                certificate: None,
                is_tls: false,
            });
        }
    };
    // Responses are written whole; waiting to fill a segment would only delay them.
    let _ = stream.set_nodelay(true);
    let (local, peer) = (stream.local_addr().ok(), stream.peer_addr().ok());
    let (stream, certificate): (BoxedStream, _) = match tls {
        None => (Box::new(stream), None),
        Some(tls) => {
            let stream = accept_tls(tls, stream, |stream| stream).await?;
            let certificate = client_certificate(&stream);
            (Box::new(stream), certificate)
        }
    };
    Ok(OpenedStream {
        stream,
        local,
        peer,
        socket: None,
        certificate,
        is_tls: tls.is_some(),
    })
}

/// Serves requests until the client closes the connection, and records them in `usage`. After
/// `shutdown` the running request is still answered.
///
/// # Errors
///
/// If the connection breaks or a limit is exceeded.
pub async fn serve_http1<S, B>(
    stream: BoxedStream,
    service: S,
    limits: Http1Limits,
    usage: Arc<ConnectionUse>,
    shutdown: CancellationToken,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));
    let service = service_fn(|request| {
        let (using, answering) = (usage.begin(), service.call(request));
        async move {
            answering
                .await
                .map(|response| response.map(|body| UsedBody::new(body, using)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head.max(MIN_HEAD))
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// The use of one connection.
#[derive(Debug)]
pub struct ConnectionUse {
    state: Mutex<State>,
    /// Cancelled when the connection must end.
    pub(crate) end: CancellationToken,
}

#[derive(Debug)]
struct State {
    requests: usize,
    has_served: bool,
    /// The time when the connection was accepted, or a request last began or ended.
    since: Instant,
}

impl ConnectionUse {
    /// The use of a newly accepted connection, which ends when `end` is cancelled.
    pub(crate) fn new(end: CancellationToken) -> Arc<Self> {
        let state = State {
            requests: 0,
            has_served: false,
            since: Instant::now(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            end,
        })
    }

    /// Records the arrival of a request. The request ends when the result is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> RequestUse {
        let mut state = self.state.lock();
        state.requests += 1;
        state.has_served = true;
        state.since = Instant::now();
        RequestUse(Arc::clone(self))
    }
}

impl Endable for ConnectionUse {
    fn usage(&self) -> Option<Usage> {
        let state = self.state.lock();
        let kind = match state.requests {
            0 if state.has_served => UsageKind::Idle,
            0 => UsageKind::Unused,
            _ => UsageKind::Works,
        };
        (!self.end.is_cancelled()).then_some(Usage {
            kind,
            since: state.since,
        })
    }

    fn end(&self) {
        self.end.cancel();
    }
}

/// A request without an answer yet.
#[derive(Debug)]
pub struct RequestUse(Arc<ConnectionUse>);

impl Drop for RequestUse {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        state.since = Instant::now();
    }
}

/// A response body whose request does not end before the body is dropped.
#[derive(Debug)]
struct UsedBody<B> {
    body: B,
    _request: RequestUse,
}

impl<B> UsedBody<B> {
    /// `body` as the answer to a request.
    fn new(body: B, request: RequestUse) -> Self {
        Self {
            body,
            _request: request,
        }
    }
}

impl<B: Body + Unpin> Body for UsedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
