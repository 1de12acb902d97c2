//! Limits listen-only streams. At the limit, a new stream ends the oldest stream of the peer with
//! the most streams, if the new stream's peer has fewer even afterwards.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use fanlight_canonical::Peer;
use fanlight_fair::{Rule, Table};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The listen-only streams of a listener.
#[derive(Debug)]
pub(crate) struct ListenOnlyStreams {
    shared: Arc<Shared>,
    limit: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shared(Mutex<Streams>);

#[derive(Debug, Default)]
struct Streams {
    /// Keyed by stream number, which rises. Dropping an entry ends its stream, to make room for
    /// another.
    open: Table<Peer, u64, oneshot::Sender<()>>,
    next: u64,
}

/// Counts a listen-only stream until dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    shared: Arc<Shared>,
    number: u64,
    entry_dropped: oneshot::Receiver<()>,
}

/// All streams are in use, and none may be ended for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("busy: {limit} event streams are open, the limit here; close one, or try later")]
pub(crate) struct NoStream {
    limit: usize,
}

impl ListenOnlyStreams {
    /// Allows `limit` streams, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shared: Arc::default(),
            limit: AtomicUsize::new(limit.max(1)),
        }
    }

    /// Changes the limit. Open streams stay, even above the limit.
    pub(crate) fn resize(&self, limit: usize) {
        self.limit.store(limit.max(1), Ordering::Relaxed);
    }

    /// A permit for a stream of `peer`.
    pub(crate) fn acquire(&self, peer: &Peer) -> Result<StreamPermit, NoStream> {
        let limit = self.limit.load(Ordering::Relaxed);
        let mut streams = self.shared.0.lock();
        let mut ended = None;
        if streams.open.len() >= limit {
            let oldest = streams
                .open
                .newcomer(peer, limit)
                .least(Rule::IN_USE, |stream| Some(*stream.key));
            ended = oldest.and_then(|oldest| streams.open.remove(&oldest));
            if ended.is_none() {
                drop(streams);
                tracing::warn!(limit, "event stream refused: too many listen-only streams");
                return Err(NoStream { limit });
            }
        }
        let (entry, entry_dropped) = oneshot::channel();
        let number = streams.next;
        streams.next += 1;
        streams.open.insert(number, peer.clone(), entry);
        // Wake the stream without the lock.
        drop(streams);
        if ended.is_some() {
            tracing::warn!(
                limit,
                "event stream ended: all are in use, and its client has the most"
            );
        }
        Ok(StreamPermit {
            shared: Arc::clone(&self.shared),
            number,
            entry_dropped,
        })
    }
}

impl Shared {}

impl StreamPermit {
    /// Ready once the stream must end to make room for another.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.entry_dropped.is_terminated() {
            let _ = ready!(Pin::new(&mut self.entry_dropped).poll(cx));
        }
        Poll::Ready(())
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        // Absent if another stream has replaced this one.
        drop(self.shared.0.lock().open.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    fn has_ended(permit: &mut StreamPermit) -> bool {
        permit
            .poll_end(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn oldest_stream_of_the_peer_with_most_ends_for_another() {
        let streams = ListenOnlyStreams::new(4);
        let open = |of| streams.acquire(&peer(of));
        let mut noisy = [open(1).unwrap(), open(1).unwrap(), open(1).unwrap()];
        let mut quiet = open(2).unwrap();
        assert!(open(1).is_err(), "it has most itself");
        let mut other = open(3).unwrap();
        assert_eq!(noisy.each_mut().map(has_ended), [true, false, false]);
        assert!(open(3).is_err(), "two each would be no fairer");
        assert!(!has_ended(&mut quiet) && !has_ended(&mut other));
        // A replaced stream no longer counts.
        let [first, mut second, third] = noisy;
        drop(first);
        assert!(open(4).is_ok() && has_ended(&mut second));
        drop((second, third, quiet, other));
        assert!(streams.shared.0.lock().open.is_empty());
    }

    #[tokio::test]
    async fn stream_is_woken_to_end() {
        let streams = ListenOnlyStreams::new(2);
        let [mut first, _second] = [1, 1].map(|of| streams.acquire(&peer(of)).unwrap());
        let ended =
            tokio::spawn(async move { std::future::poll_fn(|cx| first.poll_end(cx)).await });
        tokio::task::yield_now().await;
        let _other = streams.acquire(&peer(2)).unwrap();
        ended.await.unwrap();
    }
}
