//! One connection to a server. The future that waits for a response on it drives it.
//!
//! hyper and the socket always keep the connection's own waker ([`SharedWaker`]). It wakes the task
//! that currently drives the connection: a request, or the pool's reaper while it is idle.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::ReusableBoxFuture;

use crate::client::head_gate::{GatedStream, HeadGate};
use crate::client::shared_waker::SharedWaker;

/// The part of a request body that an empty socket certainly takes in the first write, in bytes.
const WRITTEN_AT_ONCE: u64 = 8 << 10;

/// A connection. It serves one request at a time; dropping it closes it.
pub(crate) struct PooledConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
    /// The response to the last request. One allocation serves all.
    response: ReusableBoxFuture<'static, Outcome>,
    shared: Arc<SharedWaker>,
    /// The waker of `shared`. `driver`, `response` and response bodies must be polled with no other
    /// waker: they would forget this one, and the reaper would miss the end of an idle connection.
    waker: Waker,
    /// Whether the connection was idle, so that the server may have closed it before the request
    /// arrived.
    was_idle: bool,
    /// The length of the last sent body in bytes.
    sent: u64,
    /// Decides whether the next response is withheld from hyper.
    gate: HeadGate,
}

/// hyper's connection future; `None` once it has ended.
struct Driver(Option<http1::Connection<TokioIo<GatedStream>, Full<Bytes>>>);

/// The error contains the request if nothing of it was written.
type Outcome = Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>>;

impl PooledConnection {
    /// Makes a connection over `stream`, which must have no unread bytes of an earlier response.
    pub(crate) async fn connect(stream: TcpStream, was_idle: bool) -> hyper::Result<Box<Self>> {
        let gate = HeadGate::default();
        let (sender, driver) =
            http1::handshake(TokioIo::new(GatedStream::new(stream, gate.clone()))).await?;
        let shared = Arc::<SharedWaker>::default();
        Ok(Box::new(Self {
            sender,
            driver: Driver(Some(driver)),
            response: ReusableBoxFuture::new(std::future::pending()),
            waker: Arc::clone(&shared).into(),
            shared,
            was_idle,
            sent: 0,
            gate,
        }))
    }

    /// Queues a request. [`PooledConnection::poll_response`] writes it, but first polls the driver
    /// once: bytes that arrived since the last response are an error, which closes the connection
    /// with nothing written. With `may_last`, the body of an event stream is withheld from hyper.
    pub(crate) fn send(&mut self, request: Request<Full<Bytes>>, may_last: bool) {
        self.shared.begin_poll();
        self.sent = request.body().size_hint().lower();
        // An unfinished request would be lost with hyper's connection.
        if may_last && self.has_sent_all() {
            self.gate.arm();
        }
        self.response.set(self.sender.try_send_request(request));
    }

    /// Polls for the head of the response. A caller that stops earlier must drop the connection,
    /// since the next request would get this response.
    pub(crate) fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Self {
            driver,
            response,
            shared,
            waker,
            ..
        } = self;
        shared.poll(waker, cx, |cx| {
            driver.advance(cx);
            response.poll(cx)
        })
    }

    /// Polls for the next frame of the response body.
    pub(crate) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Self {
            driver,
            shared,
            waker,
            ..
        } = self;
        shared.poll(waker, cx, |cx| {
            let frame = Pin::new(&mut *body).poll_frame(cx);
            if frame.is_ready() {
                return frame;
            }
            driver.advance(cx);
            Pin::new(&mut *body).poll_frame(cx)
        })
    }

    /// Whether it was idle before the last request.
    pub(crate) fn was_idle(&self) -> bool {
        self.was_idle
    }

    /// Whether the whole request has certainly been written, given that its response has begun.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.sent <= WRITTEN_AT_ONCE
    }

    /// Whether the response body is withheld from hyper.
    pub(crate) fn is_withholding(&self) -> bool {
        self.gate.is_withholding()
    }

    /// Takes the socket from hyper, with the bytes that hyper has read but not interpreted. `None`
    /// if the connection has ended.
    pub(crate) fn dismantle(&mut self) -> Option<(TcpStream, BytesMut)> {
        let http1::Parts { io, read_buf, .. } = self.driver.0.take()?.into_parts();
        let (stream, pending) = io.into_inner().into_parts();
        if read_buf.is_empty() {
            return Some((stream, pending));
        }
        let mut unread = BytesMut::from(read_buf);
        unread.extend_from_slice(&pending);
        Some((stream, unread))
    }

    /// Whether another request can be sent. The body of the last response must have been dropped.
    pub(crate) fn is_reusable(&mut self) -> bool {
        // Reading the end of the body has woken the shared waker. If the server has closed the
        // connection meanwhile, the next request or the reaper notices.
        self.shared.begin_poll();
        if !self.sender.is_ready() {
            self.driver.advance(&mut Context::from_waker(&self.waker));
        }
        self.was_idle = true;
        self.driver.0.is_some() && self.sender.is_ready()
    }

    /// Makes events of the idle connection wake `reaper`. Returns whether there has already been
    /// one.
    pub(crate) fn watch_idle(&mut self, reaper: &Waker) -> bool {
        self.was_idle = true;
        self.shared.end_poll(reaper)
    }

    /// Whether an idle connection is open. If so, `cx` is woken when that may have changed.
    pub(crate) fn poll_is_open(&mut self, cx: &mut Context<'_>) -> bool {
        let Self {
            driver,
            shared,
            waker,
            ..
        } = self;
        let ended = shared.poll(waker, cx, |cx| {
            driver.advance(cx);
            if driver.0.is_some() {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        });
        ended.is_pending() && !self.sender.is_closed()
    }
}

impl Driver {
    /// Reads and writes as far as possible without waiting.
    fn advance(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.0
            // The response reports the reason.
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.0 = None;
        }
    }
}
