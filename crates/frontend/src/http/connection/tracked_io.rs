//! A byte stream that records its traffic and can put back bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::http::activity::Activity;

/// A byte stream that records its traffic in an [`Activity`].
#[derive(Debug)]
pub(super) struct TrackedIo<S> {
    inner: S,
    activity: Arc<Activity>,
    /// Whether this stream records reads.
    records_reads: bool,
    /// Whether this stream records writes. Over TLS the socket below records them, since TLS
    /// buffers bytes that the socket does not take.
    records_writes: bool,
    /// Bytes from `inner` to be read again.
    unread: Vec<u8>,
    /// Counts HTTP/2 frames.
    frames: Option<Box<ControlFrames>>,
}

impl<S> TrackedIo<S> {
    /// Records all traffic of `inner` in `activity`.
    pub(super) fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self {
            inner,
            activity,
            records_reads: true,
            records_writes: true,
            unread: Vec::new(),
            frames: None,
        }
    }

    /// A stream for a socket below TLS, which records only writes.
    pub(super) fn below_tls(inner: S, activity: Arc<Activity>) -> Self {
        Self {
            records_reads: false,
            ..Self::new(inner, activity)
        }
    }

    /// A stream for TLS over such a socket, which records only reads.
    pub(super) fn over_tls(inner: S, activity: Arc<Activity>) -> Self {
        Self {
            records_writes: false,
            ..Self::new(inner, activity)
        }
    }

    /// Makes reads fail once the client has sent too many HTTP/2 control frames. The next bytes are
    /// a preface of this length.
    pub(super) fn limit_control_frames(&mut self, preface: usize) {
        self.frames = Some(Box::new(ControlFrames::new(preface)));
    }

    fn record_write(&self, result: &Poll<io::Result<usize>>) {
        if self.records_writes {
            self.activity.record_write(match result {
                Poll::Ready(written) => Some(*written.as_ref().unwrap_or(&0)),
                Poll::Pending => None,
            });
        }
    }

    /// Puts back `bytes`, which were read last; the next read returns them again.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.unread.splice(..0, bytes.iter().copied());
    }
}

impl<S: AsyncRead + Unpin> TrackedIo<S> {
    /// Whether the stream begins with `prefix`. Reads as little as possible, and puts it back.
    pub(super) async fn begins_with<const N: usize>(
        &mut self,
        prefix: &[u8; N],
    ) -> io::Result<bool> {
        let (mut first, mut len) = ([0; N], 0);
        while len < N && first.get(..len) == prefix.get(..len) {
            match self.read(first.get_mut(len..).unwrap_or_default()).await? {
                0 => break,
                read => len += read,
            }
        }
        self.put_back(first.get(..len).unwrap_or_default());
        Ok(first == *prefix)
    }

    /// Waits until the client closes the connection, and resolves to that error. Puts back bytes
    /// that arrive meanwhile; after `limit` bytes, reads no more.
    pub(super) fn poll_closed(&mut self, cx: &mut Context<'_>, limit: usize) -> Poll<io::Error> {
        let mut bytes = [0; 512];
        while self.unread.len() < limit {
            let mut read = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read)) {
                Ok(()) if read.filled().is_empty() => {
                    return Poll::Ready(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(()) => self.unread.extend_from_slice(read.filled()),
                Err(error) => return Poll::Ready(error),
            }
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.poll_fill(cx, buf))?;
        if let Some(frames) = &mut self.frames {
            frames
                .take(buf.filled().get(before..).unwrap_or_default())
                .map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> TrackedIo<S> {
    fn poll_fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let len = self.unread.len().min(buf.remaining());
            buf.put_slice(self.unread.get(..len).unwrap_or_default());
            self.unread = self.unread.split_off(len);
            if buf.remaining() > 0 {
                // Fill the whole buffer: hyper would otherwise double it. The next read returns an
                // error of this one.
                let _ = Pin::new(&mut self.inner).poll_read(cx, buf);
            }
            return Poll::Ready(Ok(()));
        }
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if result.is_ready() && self.records_reads {
            self.activity.record_read();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.record_write(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.record_write(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The maximum number of such frames in one [`INTERVAL`]. Clients send a few settings at the start,
/// and a ping every few seconds.
const MOST: usize = 1000;
/// The time over which frames are counted.
const INTERVAL: Duration = Duration::from_secs(10);

/// The length of a frame's head (RFC 9113, 4.1).
const HEAD: usize = 9;
const DATA: u8 = 0;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// The last frame type of RFC 9113.
const CONTINUATION: u8 = 9;
/// The flag of the last frame of a stream.
const END_STREAM: u8 = 1;

/// Counts control frames in the bytes that a client sends.
#[derive(Debug)]
struct ControlFrames {
    /// The remaining bytes before the next head: the preface, or the content of a frame.
    skipped: usize,
    head: [u8; HEAD],
    filled: usize,
    count: usize,
    since: Instant,
}

/// The client has sent too many control frames.
#[derive(Debug, thiserror::Error)]
#[error("more than {MOST} control frames in {INTERVAL:?}")]
pub(super) struct TooMany;

impl ControlFrames {
    /// Counts frames after a preface of this many bytes.
    fn new(preface: usize) -> Self {
        Self {
            skipped: preface,
            head: [0; HEAD],
            filled: 0,
            count: 0,
            since: Instant::now(),
        }
    }

    /// Scans the client's next bytes.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), TooMany> {
        while let Some((byte, rest)) = bytes.split_first() {
            if self.skipped > 0 {
                let skipped = self.skipped.min(bytes.len());
                self.skipped -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            if let Some(place) = self.head.get_mut(self.filled) {
                *place = *byte;
            }
            self.filled += 1;
            bytes = rest;
            if self.filled == HEAD {
                self.filled = 0;
                self.frame()?;
            }
        }
        Ok(())
    }

    fn frame(&mut self) -> Result<(), TooMany> {
        let [high, middle, low, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.skipped = length;
        let is_empty_data = kind == DATA && length == 0 && flags & END_STREAM == 0;
        if !is_empty_data && !matches!(kind, PRIORITY | SETTINGS | PING) && kind <= CONTINUATION {
            return Ok(());
        }
        self.count += 1;
        if self.count <= MOST {
            return Ok(());
        }
        if self.since.elapsed() < INTERVAL {
            return Err(TooMany);
        }
        (self.count, self.since) = (1, Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::http::limits::ConnectionLimits;
    use crate::settings::FrontendSettings;

    fn tracked<S>(inner: S) -> TrackedIo<S> {
        let limits = ConnectionLimits::from(&FrontendSettings::default());
        let [shutdown, cut] = <[CancellationToken; 2]>::default();
        TrackedIo::new(inner, Activity::new(&limits, shutdown, cut))
    }

    #[tokio::test]
    async fn begins_with_puts_back_what_it_reads() {
        for (sent, begins) in [
            ("prefix and more", true),
            ("prefix", true),
            ("pre", false),
            ("other", false),
            ("", false),
        ] {
            let mut stream = tracked(sent.as_bytes());
            assert_eq!(
                stream.begins_with(b"prefix").await.unwrap(),
                begins,
                "{sent}"
            );
            let mut whole = String::new();
            stream.read_to_string(&mut whole).await.unwrap();
            assert_eq!(whole, sent);
        }
    }

    /// Otherwise hyper's buffer takes 16 KiB instead of 8 while a stream holds part of its request.
    #[tokio::test]
    async fn first_read_returns_more_than_was_put_back() {
        let mut stream = tracked(&b"more"[..]);
        stream.put_back(b"put back and ");
        let mut buf = [0; 64];
        let read = stream.read(&mut buf).await.unwrap();
        assert_eq!(&buf[..read], b"put back and more");
    }

    #[tokio::test]
    async fn begins_with_waits_for_a_prefix_that_comes_in_pieces() {
        let (mut client, server) = tokio::io::duplex(64);
        let server = tokio::spawn(async move {
            let mut stream = tracked(server);
            let begins = stream.begins_with(b"prefix").await.unwrap();
            let mut whole = String::new();
            stream.read_to_string(&mut whole).await.unwrap();
            (begins, whole)
        });
        for piece in ["p", "ref", "ix!"] {
            client.write_all(piece.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        drop(client);
        assert_eq!(server.await.unwrap(), (true, "prefix!".to_owned()));
    }

    #[tokio::test]
    async fn poll_closed_puts_back_what_it_reads_up_to_a_limit() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut stream = tracked(server);
        stream.put_back(b"first ");
        client.write_all(b"then this").await.unwrap();
        drop(client);
        // The limit is reached before the end of the stream.
        let is_closed = poll_fn(|cx| Poll::Ready(stream.poll_closed(cx, 15).is_ready())).await;
        assert!(!is_closed);
        let error = poll_fn(|cx| stream.poll_closed(cx, 16)).await;
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let mut whole = String::new();
        stream.read_to_string(&mut whole).await.unwrap();
        assert_eq!(whole, "first then this");
    }

    fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
        [
            &[
                0,
                0,
                u8::try_from(content.len()).unwrap(),
                kind,
                0,
                0,
                0,
                0,
                0,
            ][..],
            content,
        ]
        .concat()
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_counted_however_they_are_cut() {
        let ping = frame(PING, b"01234567");
        let bytes = [
            b"PRI".to_vec(),
            [frame(1, &[PING; 40]), ping].concat().repeat(MOST),
        ]
        .concat();
        for size in [1, 7, 1000, bytes.len()] {
            let mut frames = ControlFrames::new(3);
            assert!(bytes.chunks(size).all(|piece| frames.take(piece).is_ok()));
            frames.take(&frame(1, b"")).unwrap();
            assert!(frames.take(&frame(SETTINGS, b"")).is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_counted_over_a_time() {
        let mut frames = ControlFrames::new(0);
        for _ in 0..5 {
            frames.take(&frame(0xfa, b"x").repeat(MOST)).unwrap();
            tokio::time::advance(INTERVAL).await;
        }
        assert!(frames.take(&frame(0, b"").repeat(MOST + 1)).is_err());
    }
}
