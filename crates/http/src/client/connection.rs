//! One connection to a server. The future that waits for a response on it drives it.
//!
//! hyper and the socket always keep the connection's own waker ([`SharedWaker`]). It wakes the task
//! that currently drives the connection: a request, or the pool's reaper while it is idle.
//!
//! hyper keeps 16 KiB of buffers per connection, even while it waits minutes for the next event. So
//! a connection that may get such a stream is watched. Once hyper has the head of an event stream,
//! it gets nothing more, and the body is read without hyper (`socket_body`). Leaving hyper later
//! would be impossible, since only hyper knows how much of a chunk it has decoded.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::ReusableBoxFuture;

use super::shared_waker::SharedWaker;

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
    pub(crate) was_idle: bool,
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

/// The size of one read while a head is expected.
const READ: usize = 4 << 10;
/// The number of reads after which an incomplete head is left to hyper, with its body.
const READS: u8 = 8;
/// The number of response headers that hyper accepts.
const HEADERS: usize = 100;

/// The treatment of a connection's next response. The connection shares it with its socket, which
/// hyper owns.
#[derive(Clone, Default)]
struct HeadGate(Arc<AtomicU8>);

/// hyper gets all bytes.
const OPEN: u8 = 0;
/// Like `OPEN`, until a request is written. Bytes that arrive earlier are no response, and hyper
/// closes the connection.
const ARMED: u8 = 1;
/// A head is expected.
const WATCHING: u8 = 2;
/// hyper gets the rest of the head, but nothing of the body, which is an event stream.
const WITHHOLDING: u8 = 3;

impl HeadGate {
    /// Withholds the body of the next response if it is an event stream.
    fn arm(&self) {
        self.set(ARMED);
    }

    /// Whether the body of the current response is withheld.
    fn is_withholding(&self) -> bool {
        self.state() == WITHHOLDING
    }

    fn state(&self) -> u8 {
        // Only the thread that polls the connection accesses it.
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }
}

/// The socket of a connection.
struct GatedStream {
    stream: TcpStream,
    gate: HeadGate,
    /// Bytes that were read but not given to hyper.
    pending: BytesMut,
    /// The number of them that hyper may have.
    deliverable: usize,
    /// The number of reads since a head is expected.
    reads: u8,
}

impl GatedStream {
    fn new(stream: TcpStream, gate: HeadGate) -> Self {
        Self {
            stream,
            gate,
            pending: BytesMut::new(),
            deliverable: 0,
            reads: 0,
        }
    }

    /// The socket, and the bytes that were read but not given to hyper.
    fn into_parts(self) -> (TcpStream, BytesMut) {
        (self.stream, self.pending)
    }

    /// Reads more of a head, and decides about its body once the head is complete.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut space = [MaybeUninit::uninit(); READ];
        let mut read = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        self.pending.extend_from_slice(read.filled());
        self.reads += 1;
        match find_body(&self.pending) {
            Found::EventStream { body } => {
                self.deliverable = body;
                self.gate.set(WITHHOLDING);
            }
            Found::Unfinished if !read.filled().is_empty() && self.reads < READS => {}
            Found::Unfinished | Found::Other => self.gate.set(OPEN),
        }
        Poll::Ready(Ok(()))
    }

    fn before_write(&mut self) -> io::Result<()> {
        if self.gate.state() == ARMED {
            // hyper has read everything; otherwise these bytes would answer the request.
            if !self.pending.is_empty() {
                return Err(io::Error::other("bytes before the request"));
            }
            self.reads = 0;
            self.gate.set(WATCHING);
        }
        Ok(())
    }
}

/// The beginning of a response.
enum Found {
    /// An incomplete head.
    Unfinished,
    /// The head of an event stream, which ends at `body`.
    EventStream { body: usize },
    /// Anything else, which is left to hyper.
    Other,
}

/// Finds the end of the head with hyper's parser. Skips interim responses.
fn find_body(bytes: &[u8]) -> Found {
    let mut begin = 0;
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(bytes.get(begin..).unwrap_or_default()) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Found::Unfinished,
            Err(_) => return Found::Other,
        };
        let status = head.code.unwrap_or_default();
        begin += length;
        if !(100..200).contains(&status) {
            let is_events = head.headers.iter().any(is_event_stream);
            return if is_events {
                Found::EventStream { body: begin }
            } else {
                Found::Other
            };
        }
        if status == 101 {
            return Found::Other;
        }
    }
}

fn is_event_stream(header: &httparse::Header<'_>) -> bool {
    const KIND: &[u8] = b"text/event-stream";
    header.name.eq_ignore_ascii_case("content-type")
        && header
            .value
            .get(..KIND.len())
            .is_some_and(|kind| kind.eq_ignore_ascii_case(KIND))
}

impl AsyncRead for GatedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.deliverable > 0 {
                let count = this.deliverable.min(buf.remaining());
                buf.put_slice(&this.pending.split_to(count));
                this.deliverable -= count;
                return Poll::Ready(Ok(()));
            }
            match this.gate.state() {
                // The connection leaves hyper as soon as hyper has reported the head.
                WITHHOLDING => return Poll::Pending,
                WATCHING => ready!(this.poll_head(cx))?,
                _ if this.pending.is_empty() => {
                    return Pin::new(&mut this.stream).poll_read(cx, buf);
                }
                _ => this.deliverable = this.pending.len(),
            }
        }
    }
}

impl AsyncWrite for GatedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.before_write()?;
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.before_write()?;
        Pin::new(&mut this.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
