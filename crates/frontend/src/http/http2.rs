//! Resets HTTP/2 streams whose clients do not read their responses; a window of zero would hold a
//! response for ever. The connection and its other streams stay.
//!
//! hyper asks a response for its next piece once the client's window has room for the one before.
//! So a response records when it gives a piece away. A timer beside the stream's task ends the
//! task, which resets the stream.

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
