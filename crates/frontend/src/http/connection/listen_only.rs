//! Listen-only streams on HTTP/1.1, which bypass hyper. hyper's buffers take 16 KiB per connection,
//! and most of these streams carry next to nothing.
//!
//! hyper reads the request, and serves the connection again after the stream.
//!
//! Source: RFC 9112, 7.1 (Chunked Transfer Coding).

use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::{Buf as _, Bytes};
use http::header::{CONNECTION, DATE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use smallvec::{SmallVec, smallvec};
use tokio::io::{AsyncRead, AsyncWrite};

use super::super::events::ONE_PIECE;
use super::super::reply::ReplyBody;
use super::TrackedIo;

/// The maximum number of bytes to read from a client while it listens.
const MAX_READ_AHEAD: usize = 8 << 10;

/// Whether a [`ListenOnly`] can send the response. The request must be complete, and its client
/// must want the connection kept, with no other treatment.
pub(in crate::http) fn can_bypass_hyper(head: &Parts, body: &Incoming) -> bool {
    let is_usual = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    head.version == Version::HTTP_11
        && http_body::Body::is_end_stream(body)
        && head.headers.get_all(CONNECTION).iter().all(is_usual)
}

/// A listen-only stream on a connection.
pub(super) struct ListenOnly<I> {
    /// The connection, including bytes that the client sent meanwhile.
    pub(crate) stream: TrackedIo<I>,
    /// `None` after the end.
    body: Option<ReplyBody>,
    /// Bytes to write before polling the body again.
    unwritten: SmallVec<[Bytes; 3]>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> ListenOnly<I> {
    pub(super) fn new(stream: TrackedIo<I>, response: Response<ReplyBody>) -> Self {
        let head = head(&response);
        Self {
            stream,
            body: Some(response.into_body()),
            unwritten: smallvec![head],
        }
    }

    /// Sends the body to its end. Fails if the client closes the connection earlier.
    pub(super) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_written(cx))?;
            let Some(body) = &mut self.body else {
                return Poll::Ready(Ok(()));
            };
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.unwritten = frame.into_data().map(chunk).unwrap_or_default();
                }
                Poll::Ready(None) => {
                    self.unwritten.push(Bytes::from_static(b"0\r\n\r\n"));
                    self.body = None;
                }
                Poll::Pending => return self.stream.poll_closed(cx, MAX_READ_AHEAD).map(Err),
            }
        }
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            let slices: SmallVec<[IoSlice<'_>; 3]> = self
                .unwritten
                .iter()
                .map(|piece| IoSlice::new(piece))
                .collect();
            let mut len = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &slices))?;
            drop(slices);
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unwritten.retain(|piece| {
                let written = len.min(piece.len());
                piece.advance(written);
                len -= written;
                !piece.is_empty()
            });
        }
        // TLS buffers bytes that the socket does not take.
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

/// The head of a response with a chunked body.
fn head(response: &Response<ReplyBody>) -> Bytes {
    let mut head = Vec::with_capacity(512);
    let status = response.status();
    // Writing to memory does not fail.
    let _ = write!(
        head,
        "HTTP/1.1 {} {}\r\n",
        status.as_str(),
        status.canonical_reason().unwrap_or_default()
    );
    for (name, value) in response.headers() {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    let date = httpdate::fmt_http_date(SystemTime::now());
    let _ = write!(
        head,
        "{TRANSFER_ENCODING}: chunked\r\n{DATE}: {date}\r\n\r\n"
    );
    head.into()
}

/// The pieces of one chunk; a short chunk is a single piece.
fn chunk(data: Bytes) -> SmallVec<[Bytes; 3]> {
    const CRLF: &[u8] = b"\r\n";
    // An empty chunk would end the body.
    if data.is_empty() {
        return SmallVec::new();
    }
    let mut size = Vec::with_capacity(if data.len() <= ONE_PIECE {
        data.len() + 12
    } else {
        12
    });
    let _ = write!(size, "{:x}\r\n", data.len());
    if data.len() > ONE_PIECE {
        return smallvec![size.into(), data, Bytes::from_static(CRLF)];
    }
    size.extend_from_slice(&data);
    size.extend_from_slice(CRLF);
    smallvec![size.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_begins_with_its_length() {
        let written = |data: Bytes| chunk(data).concat();
        assert_eq!(
            written("0123456789abcdefg".into()),
            b"11\r\n0123456789abcdefg\r\n"
        );
        let long = Bytes::from("x".repeat(2 * ONE_PIECE));
        assert_eq!(chunk(long.clone()).len(), 3);
        assert_eq!(
            written(long.clone()),
            [b"4000\r\n", &long[..], b"\r\n"].concat()
        );
        assert!(chunk(Bytes::new()).is_empty());
    }
}
