//! One connection to a server, driven by whoever waits for a response on it.
//!
//! hyper means a connection to be a task of its own. Each request would then wake that task, and its
//! response would wake the request's. Here the request's future polls the connection itself; between
//! requests the pool's keeper does, if there is anything to see. Both are woken by way of a
//! [`Signal`], so that the wakers that hyper and the socket keep are always the same one.
//!
//! Must not know: other connections, what is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fanlight_socket::Socket;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::ReusableBoxFuture;

use super::signal::Signal;

/// A request with a body of so many bytes fits into a socket that nothing else waits in, and is written
/// at once.
const FITS: u64 = 8 << 10;

/// See the module.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    transport: Transport,
    /// The response to the request that was sent last. One box serves all.
    response: ReusableBoxFuture<'static, Outcome>,
    signal: Arc<Signal>,
    waker: Waker,
    used: bool,
    /// The length of the body that was sent last.
    sent: u64,
}

/// What is polled for anything to happen; `None` once the connection has ended.
struct Transport(Option<http1::Connection<TokioIo<Socket>, Full<Bytes>>>);

/// The error holds the request if nothing of it was written.
type Outcome = Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>>;

impl Connection {
    /// `used`: see [`Connection::was_used`].
    pub(super) async fn over(stream: TcpStream, used: bool) -> hyper::Result<Box<Self>> {
        let (sender, transport) = http1::handshake(TokioIo::new(Socket::new(stream))).await?;
        let signal = Arc::<Signal>::default();
        Ok(Box::new(Self {
            sender,
            transport: Transport(Some(transport)),
            response: ReusableBoxFuture::new(std::future::pending()),
            waker: Arc::clone(&signal).into(),
            signal,
            used,
            sent: 0,
        }))
    }

    /// Sends a request, once the response is waited for.
    pub(super) fn send(&mut self, request: Request<Full<Bytes>>) {
        self.signal.attend();
        self.sent = request.body().size_hint().lower();
        self.response.set(self.sender.try_send_request(request));
    }

    /// Waits for the head of the response. Whoever stops waiting before it is there must drop the
    /// connection.
    pub(super) fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Self { transport, response, signal, waker, .. } = self;
        signal.attend_to(waker, cx, |cx| {
            transport.advance(cx);
            response.poll(cx)
        })
    }

    /// Waits for the next frame of the body of the response.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Self { transport, signal, waker, .. } = self;
        signal.attend_to(waker, cx, |cx| {
            let frame = Pin::new(&mut *body).poll_frame(cx);
            if frame.is_ready() {
                return frame;
            }
            transport.advance(cx);
            Pin::new(&mut *body).poll_frame(cx)
        })
    }

    /// Whether it was free before, so that the server may have closed it meanwhile.
    pub(super) fn was_used(&self) -> bool {
        self.used
    }

    /// Whether all of the request is certainly on its way, given that its response is there.
    pub(super) fn has_sent_all(&self) -> bool {
        self.sent <= FITS
    }

    /// Takes the connection apart, into the socket and what has been read from it and not looked at.
    pub(super) fn dismantle(&mut self) -> Option<(TcpStream, Bytes)> {
        let http1::Parts { io, read_buf, .. } = self.transport.0.take()?.into_parts();
        Some((io.into_inner().into_stream(), read_buf))
    }

    /// Whether another request can be sent. To be called when nobody reads the last response any more.
    pub(super) fn is_free(&mut self) -> bool {
        // Reading the last of the body has raised it. Should the server have closed the connection
        // meanwhile, that is seen when it is used next, or when the keeper looks.
        self.signal.attend();
        if !self.sender.is_ready() {
            self.transport.advance(&mut Context::from_waker(&self.waker));
        }
        self.used = true;
        self.transport.0.is_some() && self.sender.is_ready()
    }

    /// Has `keeper` woken when something happens that calls for [`Connection::is_alive`]. Says
    /// whether it has happened already.
    pub(super) fn rest(&mut self, keeper: &Waker) -> bool {
        self.used = true;
        self.signal.rest(keeper)
    }

    /// Whether an idle connection has not ended. If so, `cx` is woken when that should be asked again.
    pub(super) fn is_alive(&mut self, cx: &mut Context<'_>) -> bool {
        let Self { transport, signal, waker, .. } = self;
        let ended = signal.attend_to(waker, cx, |cx| {
            transport.advance(cx);
            if transport.0.is_some() { Poll::Pending } else { Poll::Ready(()) }
        });
        ended.is_pending() && !self.sender.is_closed()
    }
}

impl Transport {
    /// Does what can be done without waiting.
    fn advance(&mut self, cx: &mut Context<'_>) {
        if let Some(transport) = &mut self.0
            // How it ended, the response tells.
            && Pin::new(transport).poll(cx).is_ready()
        {
            self.0 = None;
        }
    }
}
