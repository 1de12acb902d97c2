//! A socket that can give hyper a response's head and withhold its body, if that is an event
//! stream.
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
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The size of one read while a head is expected.
const READ: usize = 4 << 10;
/// The number of reads after which an incomplete head is left to hyper, with its body.
const READS: u8 = 8;
/// The number of response headers that hyper accepts.
const HEADERS: usize = 100;

/// The treatment of a connection's next response. The connection shares it with its socket, which
/// hyper owns.
#[derive(Clone, Default)]
pub(crate) struct HeadGate(Arc<AtomicU8>);

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
    pub(crate) fn arm(&self) {
        self.set(ARMED);
    }

    /// Whether the body of the current response is withheld.
    pub(crate) fn is_withholding(&self) -> bool {
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
pub(crate) struct GatedStream {
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
    pub(crate) fn new(stream: TcpStream, gate: HeadGate) -> Self {
        Self {
            stream,
            gate,
            pending: BytesMut::new(),
            deliverable: 0,
            reads: 0,
        }
    }

    /// The socket, and the bytes that were read but not given to hyper.
    pub(crate) fn into_parts(self) -> (TcpStream, BytesMut) {
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
