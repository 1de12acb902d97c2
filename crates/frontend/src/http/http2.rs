//! Resets HTTP/2 streams whose clients do not read their responses; a window of zero would hold a
//! response for ever. The connection and its other streams stay.
//!
//! hyper asks a response for its next piece once the client's window has room for the one before.
//! So a response records when it gives a piece away. A timer beside the stream's task ends the
//! task, which resets the stream.
//!
//! Clients may send only so many control frames ([`ControlFrames`]).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::activity::{Activity, UnsentPiece};
use super::limits::{ConnectionLimits, PIECE};

pub(crate) fn builder(
    limits: &ConnectionLimits,
    streams: StreamExecutor,
) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams)
        .initial_connection_window_size(limits.http2_window)
        .max_header_list_size(u32::try_from(limits.max_header).unwrap_or(u32::MAX))
        .max_send_buf_size(2 * PIECE)
        .max_pending_accept_reset_streams(limits.http2_resets)
        .keep_alive_interval(limits.keep_alive)
        .keep_alive_timeout(limits.http2_ping);
    builder
}

/// Runs the streams of one connection.
#[derive(Clone)]
pub(crate) struct StreamExecutor {
    /// The guard of the request that hyper has just read. hyper calls the service and executes the
    /// stream in one poll.
    begun: Arc<Mutex<Option<Arc<Waiting>>>>,
    limit: Duration,
}

/// The time since which the response waits for its client to read a piece.
#[derive(Debug, Default)]
struct Waiting(Mutex<Option<Instant>>);

/// The pending writes of one stream's response.
#[derive(Debug)]
pub(crate) struct StreamWrites {
    waiting: Arc<Waiting>,
    activity: Arc<Activity>,
}

impl StreamExecutor {
    /// Resets streams whose clients take longer than `limit` for one piece.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            begun: Arc::default(),
            limit,
        }
    }

    /// Prepares the stream that hyper executes next.
    pub(crate) fn begin(&self, activity: &Arc<Activity>) -> StreamWrites {
        let waiting = Arc::<Waiting>::default();
        *self.begun.lock() = Some(Arc::clone(&waiting));
        StreamWrites {
            waiting,
            activity: Arc::clone(activity),
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let (waiting, limit) = (self.begun.lock().take(), self.limit);
        tokio::spawn(async move {
            let Some(waiting) = waiting else {
                return stream.await;
            };
            let mut stream = pin!(stream);
            tokio::select! {
                biased;
                () = stream.as_mut() => {}
                () = waiting.longer_than(limit) => tracing::debug!(?limit, "HTTP/2 stream reset: its client does not read"),
            }
        });
    }
}

impl Waiting {
    /// Resolves once a piece has waited longer than `limit`.
    async fn longer_than(&self, limit: Duration) {
        loop {
            let now = Instant::now();
            let since = self.0.lock().unwrap_or(now);
            if now - since >= limit {
                return;
            }
            sleep_until(since + limit).await;
        }
    }
}

impl StreamWrites {
    /// Records that hyper asks for more: the client's window had room for the piece before.
    pub(crate) fn asked_for_more(&self) {
        *self.waiting.0.lock() = None;
    }

    /// Wraps a piece for hyper.
    pub(crate) fn give(&self, piece: Bytes) -> Bytes {
        *self.waiting.0.lock() = Some(Instant::now());
        Bytes::from_owner(Given {
            piece,
            _unsent: self.activity.begin_piece(),
        })
    }
}

/// A piece inside hyper.
struct Given {
    piece: Bytes,
    _unsent: UnsentPiece,
}

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.piece
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
pub(super) struct ControlFrames {
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
    pub(super) fn new(preface: usize) -> Self {
        Self {
            skipped: preface,
            head: [0; HEAD],
            filled: 0,
            count: 0,
            since: Instant::now(),
        }
    }

    /// Scans the client's next bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), TooMany> {
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
    use super::*;

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
