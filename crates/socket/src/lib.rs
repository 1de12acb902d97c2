//! A TCP connection as both edges use it. To those above it is a stream of bytes like any other.
//!
//! Who drives a connection asks it for more each time anything happens to what the connection is for,
//! and nearly always there is nothing. Such a look costs a lock and the comparison of two wakers, where
//! the runtime makes it; here it costs one load. And what is short goes out in one piece.
//!
//! Must not know: what is sent, or which edge it is.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop;

/// The kernel takes one piece in less time than the same in several, by more than it takes to copy so many bytes.
const SHORT: usize = 1024;

/// A connection. See the crate.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    /// Whoever looked last.
    reader: Option<Waker>,
    /// The runtime is to wake that one, and has not been seen to have.
    awaited: bool,
}

impl Socket {
    /// The connection that `stream` is.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, reader: None, awaited: false }
    }

    /// The stream itself.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Whether nothing has come since somebody looked in vain, who is woken once something does.
    fn is_awaited(&self, waker: &Waker) -> bool {
        self.awaited
            && self.reader.as_ref().is_some_and(|reader| reader.will_wake(waker))
            // Does nothing but look whether it would be done: no error means that there may be something.
            && self.stream.try_io(Interest::READABLE, || Ok(())).is_err()
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.is_awaited(cx.waker()) {
            return Poll::Pending;
        }
        // Without any left, the runtime looks for nothing and has the task come back at once.
        let has_budget = coop::has_budget_remaining();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.awaited = polled.is_pending() && has_budget;
        if this.awaited && !this.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            this.reader = Some(cx.waker().clone());
        }
        polled
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() > SHORT {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        }
        let mut whole = SmallVec::<[u8; SHORT]>::new();
        bufs.iter().for_each(|buf| whole.extend_from_slice(buf));
        Pin::new(&mut self.stream).poll_write(cx, &whole)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
