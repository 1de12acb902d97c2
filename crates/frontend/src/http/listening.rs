//! Streams on which a client only listens, sent on HTTP/1.1 without the HTTP library: that keeps 16 KiB
//! of buffers for each connection, and most of these streams carry next to nothing.
//!
//! The library has read the request and decides on everything else before; once the stream is over, it
//! goes on with the connection.
//!
//! Source: RFC 9112, 7.1 (Chunked Transfer Coding). Must not know: what is sent.

use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::{Buf as _, Bytes};
use fanlight_socket::Socket;
use http::header::{CONNECTION, DATE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use smallvec::{SmallVec, smallvec};
use tokio::io::AsyncWrite as _;

use super::activity::Watched;
use super::reply::{ONE_PIECE, ReplyBody};

/// What is read at most of what a client sends while it listens.
const AHEAD: usize = 8 << 10;

/// Whether the response to a request can be sent by a [`Listening`]: nothing of the request is left on
/// the connection, and its client says nothing special of that.
pub(super) fn may_stand_apart(head: &Parts, body: &Incoming) -> bool {
    let is_usual = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    head.version == Version::HTTP_11
        && http_body::Body::is_end_stream(body)
        && head.headers.get_all(CONNECTION).iter().all(is_usual)
}

/// A response that is being sent.
pub(super) struct Listening {
    stream: Watched<Socket>,
    /// `None` once it is over.
    body: Option<ReplyBody>,
    /// What is to be written before anything else is taken.
    out: SmallVec<[Bytes; 3]>,
}

impl Listening {
    pub(super) fn new(stream: Watched<Socket>, response: Response<ReplyBody>) -> Self {
        let head = head(&response);
        Self { stream, body: Some(response.into_body()), out: smallvec![head] }
    }

    /// Sends all of it, as it comes; an error if the client goes before.
    pub(super) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_written(cx))?;
            let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.out = frame.into_data().map(chunk).unwrap_or_default(),
                Poll::Ready(None) => {
                    self.out.push(Bytes::from_static(b"0\r\n\r\n"));
                    self.body = None;
                }
                Poll::Pending => return self.stream.poll_gone(cx, AHEAD).map(Err),
            }
        }
    }

    /// What it was sent on.
    pub(super) fn into_stream(self) -> Watched<Socket> {
        self.stream
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let slices: SmallVec<[IoSlice<'_>; 3]> = self.out.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &slices))?;
            drop(slices);
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.retain(|piece| {
                let of_this = written.min(piece.len());
                piece.advance(of_this);
                written -= of_this;
                !piece.is_empty()
            });
        }
        Poll::Ready(Ok(()))
    }
}

/// The head of a response whose body comes in chunks.
fn head(response: &Response<ReplyBody>) -> Bytes {
    let mut head = Vec::with_capacity(512);
    let status = response.status();
    // Writing to memory does not fail.
    let _ = write!(head, "HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default());
    for (name, value) in response.headers() {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    let date = httpdate::fmt_http_date(SystemTime::now());
    let _ = write!(head, "{TRANSFER_ENCODING}: chunked\r\n{DATE}: {date}\r\n\r\n");
    head.into()
}

/// One chunk; a short one in one piece.
fn chunk(data: Bytes) -> SmallVec<[Bytes; 3]> {
    const END: &[u8] = b"\r\n";
    // An empty one would be the last.
    if data.is_empty() {
        return SmallVec::new();
    }
    let mut size = Vec::with_capacity(if data.len() <= ONE_PIECE { data.len() + 12 } else { 12 });
    let _ = write!(size, "{:x}\r\n", data.len());
    if data.len() > ONE_PIECE {
        return smallvec![size.into(), data, Bytes::from_static(END)];
    }
    size.extend_from_slice(&data);
    size.extend_from_slice(END);
    smallvec![size.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_say_how_long_they_are() {
        let written = |data: Bytes| chunk(data).concat();
        assert_eq!(written("0123456789abcdefg".into()), b"11\r\n0123456789abcdefg\r\n");
        let long = Bytes::from("x".repeat(2 * ONE_PIECE));
        assert_eq!(chunk(long.clone()).len(), 3);
        assert_eq!(written(long.clone()), [b"4000\r\n", &long[..], b"\r\n"].concat());
        assert!(chunk(Bytes::new()).is_empty());
    }
}
