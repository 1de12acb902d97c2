//! Limits the bytes of servers' messages in memory: messages that are arriving, that wait for a
//! client, or that a client has not answered.
//!
//! A message's bytes count until its last part is dropped, wherever it waits. So no queue needs its
//! own limit of bytes. One server may hold three times as much as it leaves free for others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::BackendError;
use fanlight_fair::{Budget, Part, Reservation, Spent};
use tokio::time::{Instant, timeout};

/// The largest text that is not counted. The other data of a message takes as much, and their
/// number is limited.
const UNCOUNTED: usize = 8 << 10;
/// The largest answer that is not counted if it is a whole response body; each call has only one.
const UNCOUNTED_BODY: usize = 64 << 10;
/// The step in which arriving bytes are counted.
const STEP: usize = 64 << 10;
/// How long a message waits for memory while no other message is dropped. While a client reads,
/// however slowly, the wait goes on. Memory that failed calls give back does not count; otherwise
/// calls would fail one after the other.
const PATIENCE: Duration = Duration::from_secs(5);
/// The share of memory that one server may hold.
const PART: Part = Part {
    for_each_free: 3,
    kept: [(usize::MAX, 0); 2],
};

/// The memory for messages of all servers, in bytes.
#[derive(Clone, Debug)]
pub struct MessageMemory(Budget<Arc<str>>);

/// The share of one server.
pub(crate) struct ServerMemory {
    budget: Budget<Arc<str>>,
    server: Arc<str>,
}

/// The memory for the text that is arriving on one connection.
pub(crate) struct Arriving {
    memory: Arc<ServerMemory>,
    uncounted: usize,
    held: Option<Reservation<Arc<str>>>,
    /// The rest of [`PATIENCE`] for this text.
    patience: Duration,
}

impl MessageMemory {
    /// Memory of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Budget::new(limit, PART))
    }

    pub(crate) fn server(&self, server: &Arc<str>) -> Arc<ServerMemory> {
        Arc::new(ServerMemory {
            budget: self.0.clone(),
            server: Arc::clone(server),
        })
    }
}

#[cfg(any(test, feature = "test-support"))]
impl Default for MessageMemory {
    fn default() -> Self {
        Self::new(1 << 30)
    }
}

impl ServerMemory {
    /// The error of a call whose messages do not fit.
    pub(crate) fn no_memory_error(&self) -> BackendError {
        BackendError::NoMemory {
            limit: self.budget.limit(),
        }
    }
}

impl Arriving {
    /// Counts messages, of which one call may have many.
    pub(crate) fn messages(memory: &Arc<ServerMemory>) -> Self {
        Self::new(memory, UNCOUNTED)
    }

    /// Counts the body of one response.
    pub(crate) fn body(memory: &Arc<ServerMemory>) -> Self {
        Self::new(memory, UNCOUNTED_BODY)
    }

    fn new(memory: &Arc<ServerMemory>, uncounted: usize) -> Self {
        Self {
            memory: Arc::clone(memory),
            uncounted,
            held: None,
            patience: PATIENCE,
        }
    }

    /// Counts a text of which this many bytes have arrived.
    pub(crate) fn try_cover(&mut self, bytes: usize) -> Result<(), Spent> {
        if bytes <= self.uncounted {
            self.held = None;
            return Ok(());
        }
        self.resize(bytes.next_multiple_of(STEP))
    }

    /// The same text, counted until its last part is dropped.
    pub(crate) fn try_hold(&mut self, text: Bytes) -> Result<Bytes, Spent> {
        self.patience = PATIENCE;
        if text.len() > self.uncounted {
            self.resize(text.len())?;
            if let Some(held) = self.held.take() {
                return Ok(held.hold(text));
            }
        }
        self.held = None;
        Ok(text)
    }

    /// Like [`Self::try_cover`], but waits for memory.
    pub(crate) async fn cover(&mut self, bytes: usize) -> Result<(), BackendError> {
        match self.try_cover(bytes) {
            Ok(()) => Ok(()),
            // Boxed, since it is rare: this keeps the futures of calls small.
            Err(Spent) => Box::pin(self.wait_for(bytes.next_multiple_of(STEP))).await,
        }
    }

    /// Like [`Self::try_hold`], but waits for memory.
    pub(crate) async fn hold(&mut self, text: Bytes) -> Result<Bytes, BackendError> {
        if text.len() > self.uncounted && self.resize(text.len()).is_err() {
            Box::pin(self.wait_for(text.len())).await?;
        }
        self.try_hold(text)
            .map_err(|Spent| self.memory.no_memory_error())
    }

    async fn wait_for(&mut self, bytes: usize) -> Result<(), BackendError> {
        let memory = Arc::clone(&self.memory);
        let mut dropped = memory.budget.texts_dropped();
        loop {
            // Registered before the attempt, so that no returned memory is missed.
            let given_back = memory.budget.given_back();
            if self.resize(bytes).is_ok() {
                return Ok(());
            }
            let since = Instant::now();
            let is_over = timeout(self.patience, given_back).await.is_err();
            self.patience = self.patience.saturating_sub(since.elapsed());
            if std::mem::replace(&mut dropped, memory.budget.texts_dropped()) != dropped {
                self.patience = PATIENCE;
            } else if is_over {
                return Err(memory.no_memory_error());
            }
        }
    }

    fn resize(&mut self, bytes: usize) -> Result<(), Spent> {
        match &mut self.held {
            Some(held) => held.resize(bytes),
            None => {
                self.held = Some(self.memory.budget.reserve(&self.memory.server, bytes)?);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: usize) -> (MessageMemory, Arc<ServerMemory>) {
        let all = MessageMemory::new(limit);
        let server = all.server(&Arc::from("s"));
        (all, server)
    }

    #[test]
    fn message_is_counted_from_its_first_bytes_until_it_is_dropped() {
        let (all, server) = memory(1 << 20);
        let mut arriving = Arriving::messages(&server);
        arriving.try_cover(UNCOUNTED).unwrap();
        assert_eq!(all.0.held(), 0);
        arriving.try_cover(UNCOUNTED + 1).unwrap();
        assert_eq!(all.0.held(), STEP);
        let text = arriving.try_hold(Bytes::from(vec![b'x'; 100_000])).unwrap();
        assert_eq!(all.0.held(), 100_000);
        let part = text.slice(99_999..);
        drop((text, arriving));
        assert_eq!(all.0.held(), 100_000);
        drop(part);
        assert_eq!(all.0.held(), 0);
    }

    #[test]
    fn server_leaves_memory_to_others() {
        let (all, server) = memory(16 * STEP);
        let hold = |memory: &Arc<ServerMemory>| {
            Arriving::messages(memory).try_hold(Bytes::from(vec![0; STEP]))
        };
        let held: Vec<Bytes> = std::iter::from_fn(|| hold(&server).ok()).collect();
        assert!((11..=13).contains(&held.len()), "{}", held.len());
        assert!(hold(&all.server(&Arc::from("other"))).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn stream_waits_while_memory_is_given_back_and_fails_otherwise() {
        let (_, server) = memory(2 * STEP);
        let first = Arriving::messages(&server)
            .try_hold(Bytes::from(vec![0; STEP]))
            .unwrap();
        let mut arriving = Arriving::messages(&server);
        let second = arriving.hold(Bytes::from(vec![0; 2 * STEP]));
        let mut second = std::pin::pin!(second);
        assert!(futures_util::FutureExt::now_or_never(second.as_mut()).is_none());
        drop(first);
        let second = second.await.unwrap();
        let third = Arriving::messages(&server)
            .hold(Bytes::from(vec![0; STEP]))
            .await;
        assert_eq!(
            third.unwrap_err(),
            BackendError::NoMemory { limit: 2 * STEP }
        );
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_that_never_end_fail_together() {
        let (_, server) = memory(6 * STEP);
        let started = Instant::now();
        let attempts = (0..20).map(|_| async {
            let mut arriving = Arriving::messages(&server);
            for bytes in (1..).map(|steps| steps * STEP) {
                if arriving.cover(bytes).await.is_err() {
                    return;
                }
            }
        });
        futures_util::future::join_all(attempts).await;
        assert!(started.elapsed() < 2 * PATIENCE, "{:?}", started.elapsed());
    }
}
