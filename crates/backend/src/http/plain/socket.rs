//! The socket to a server, which sends a short request in one piece.
//!
//! Must not know: what is sent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The kernel takes one piece in less time than the same in several, by more than it takes to copy so many bytes.
const SHORT: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Socket(TcpStream);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(stream)
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.0
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() > SHORT {
            return Pin::new(&mut self.0).poll_write_vectored(cx, bufs);
        }
        let mut whole = SmallVec::<[u8; SHORT]>::new();
        bufs.iter().for_each(|buf| whole.extend_from_slice(buf));
        Pin::new(&mut self.0).poll_write(cx, &whole)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
