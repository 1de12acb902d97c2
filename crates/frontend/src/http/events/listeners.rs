//! The limit of streams on which clients only listen, and which of them ends when all are in use: the oldest of the peer
//! that has most, for a peer that has fewer even afterwards.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use fanlight_canonical::Peer;
use fanlight_http_edge::WarningLimit;

/// The listen-only streams of a listener.
pub(crate) struct ListenOnlyStreams {
    shared: Arc<Shared>,
    limit: usize,
    warnings: WarningLimit,
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By number, which rises from stream to stream.
    peers: HashMap<Peer, BTreeMap<u64, Arc<End>>>,
    count: usize,
    next: u64,
}

/// Whether a stream is to end for another.
#[derive(Debug, Default)]
struct End(Mutex<EndState>);

#[derive(Debug, Default)]
struct EndState {
    has_begun: bool,
    waker: Option<Waker>,
}

/// Counts a listen-only stream until it is dropped.
pub(crate) struct StreamPermit {
    shared: Arc<Shared>,
    peer: Peer,
    number: u64,
    end: Arc<End>,
}

/// All streams are in use, and none ends for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("busy: {limit} event streams are open, the limit here; close one, or try later")]
pub(crate) struct NoStream {
    limit: usize,
}

impl ListenOnlyStreams {
    /// At most `limit`, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self { shared: Arc::default(), limit: limit.max(1), warnings: WarningLimit::default() }
    }

    /// A permit for a stream of `peer`.
    pub(crate) fn acquire(&self, peer: &Peer) -> Result<StreamPermit, NoStream> {
        let mut table = self.shared.lock();
        let mut ended = None;
        if table.count >= self.limit {
            ended = table.take_oldest_for(peer);
            if ended.is_none() {
                drop(table);
                if self.warnings.is_due() {
                    let limit = self.limit;
                    tracing::warn!(limit, "event stream refused: too many listen-only streams (limits.streams)");
                }
                return Err(NoStream { limit: self.limit });
            }
        }
        let (number, end) = (table.next, Arc::<End>::default());
        table.next += 1;
        table.count += 1;
        table.peers.entry(peer.clone()).or_default().insert(number, Arc::clone(&end));
        // The stream is woken without the lock.
        drop(table);
        if let Some(ended) = ended {
            ended.begin();
            if self.warnings.is_due() {
                let limit = self.limit;
                tracing::warn!(limit, "event stream ended: all are in use (limits.streams), and its client has most");
            }
        }
        Ok(StreamPermit { shared: Arc::clone(&self.shared), peer: peer.clone(), number, end })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Removes the oldest stream of the peer that has most, if that is more than `newcomer` has with one more.
    fn take_oldest_for(&mut self, newcomer: &Peer) -> Option<Arc<End>> {
        let own = self.peers.get(newcomer).map_or(0, BTreeMap::len);
        let (peer, streams) = self.peers.iter().max_by_key(|(_, streams)| streams.len())?;
        if streams.len() <= own + 1 {
            return None;
        }
        let (peer, oldest) = (peer.clone(), *streams.first_key_value()?.0);
        self.remove(&peer, oldest)
    }

    fn remove(&mut self, peer: &Peer, number: u64) -> Option<Arc<End>> {
        let streams = self.peers.get_mut(peer)?;
        let removed = streams.remove(&number)?;
        if streams.is_empty() {
            self.peers.remove(peer);
        }
        self.count -= 1;
        Some(removed)
    }
}

impl End {
    fn begin(&self) {
        let mut state = self.lock();
        state.has_begun = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, EndState> {
        // As above: a waker is only cloned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamPermit {
    /// Ready once the stream is to end for another.
    pub(crate) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.end.lock();
        if state.has_begun {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(known) => known.clone_from(cx.waker()),
            None => state.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        // It is there no more if the stream has ended for another.
        drop(self.shared.lock().remove(&self.peer, self.number));
    }
}

impl std::fmt::Debug for StreamPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamPermit").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    fn has_ended(permit: &StreamPermit) -> bool {
        permit.poll_end(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn oldest_stream_of_the_peer_with_most_ends_for_another() {
        let streams = ListenOnlyStreams::new(4);
        let open = |of| streams.acquire(&peer(of));
        let noisy = [open(1).unwrap(), open(1).unwrap(), open(1).unwrap()];
        let quiet = open(2).unwrap();
        assert!(open(1).is_err(), "it has most itself");
        let other = open(3).unwrap();
        assert_eq!(noisy.each_ref().map(has_ended), [true, false, false]);
        assert!(open(3).is_err(), "two each would be no fairer");
        assert!(!has_ended(&quiet) && !has_ended(&other));
        // One that has ended for another does not count any more.
        let [first, second, third] = noisy;
        drop(first);
        assert!(open(4).is_ok() && has_ended(&second));
        drop((second, third, quiet, other));
        assert!(streams.shared.lock().peers.is_empty());
        assert_eq!(streams.shared.lock().count, 0);
    }

    #[tokio::test]
    async fn stream_is_woken_to_end() {
        let streams = ListenOnlyStreams::new(2);
        let [first, _second] = [1, 1].map(|of| streams.acquire(&peer(of)).unwrap());
        let ended = tokio::spawn(async move { std::future::poll_fn(|cx| first.poll_end(cx)).await });
        tokio::task::yield_now().await;
        let _other = streams.acquire(&peer(2)).unwrap();
        ended.await.unwrap();
    }
}
