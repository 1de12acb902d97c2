//! The entries of suspended calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanlight_canonical::{Decided, Peer};
use fanlight_fair::{Rule, Table};
use fanlight_protocol::{RpcError, code};
use fanlight_telemetry::clients::SuspendedCallView;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::request_state::SuspendedId;
use super::suspended_call::SuspendedCall;

/// Entries of suspended calls, by id. The calls themselves belong to the process that began them: with
/// replicas, a request that brings input is forwarded to that process, which `requestState` names.
pub(super) trait SuspendedCallStore: Send + Sync {
    /// Makes an entry for a call of `peer`; false if there are too many.
    fn insert(&self, id: SuspendedId, peer: &Peer) -> bool;

    /// The call is suspended and waits to be resumed; returns how often it has been. `None` if it has no
    /// entry.
    fn suspend(&self, id: &SuspendedId, waiting: Waiting) -> Option<u32>;

    /// What it was decided about when the call began that was suspended the `round`th time.
    fn decided(&self, id: &SuspendedId, round: u32) -> Result<Arc<Decided>, RpcError>;

    /// Takes the means to resume the call as it was suspended the `round`th time.
    fn resume(&self, id: &SuspendedId, round: u32) -> Result<HandOver, RpcError>;

    /// Removes the entry of a call.
    fn remove(&self, id: &SuspendedId);

    /// The number of calls that are suspended now.
    fn count(&self) -> usize;

    /// The calls that are suspended now, for an operator.
    fn views(&self) -> Vec<SuspendedCallView>;
}

/// Asks the task of a suspended call to hand the call over.
pub(super) type HandOver = oneshot::Sender<oneshot::Sender<Box<SuspendedCall>>>;

/// A call that waits to be resumed.
pub(super) struct Waiting {
    pub(super) hand_over: HandOver,
    pub(super) decided: Arc<Decided>,
    pub(super) method: String,
    pub(super) name: Option<String>,
    pub(super) requests: Vec<String>,
    pub(super) since: Instant,
    pub(super) until: Instant,
}

/// The entries of this process, at most `limit`, and `per_peer` of one peer unless that is 0.
pub(super) struct InMemorySuspendedCalls {
    table: Mutex<Table<Peer, SuspendedId, Entry>>,
    limit: usize,
    per_peer: usize,
}

#[derive(Default)]
struct Entry {
    /// How often the call has been suspended.
    round: u32,
    waiting: Option<Waiting>,
}

impl InMemorySuspendedCalls {
    pub(super) fn new(limit: usize, per_peer: usize) -> Self {
        Self { table: Mutex::default(), limit, per_peer }
    }

    fn lock(&self) -> MutexGuard<'_, Table<Peer, SuspendedId, Entry>> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SuspendedCallStore for InMemorySuspendedCalls {
    /// If there are too many, the call ends that has been suspended longest of the peer that has most, unless that
    /// is the peer of the new one.
    fn insert(&self, id: SuspendedId, peer: &Peer) -> bool {
        let mut table = self.lock();
        let is_full = table.len() >= self.limit;
        let mut fits = self.per_peer == 0 || table.count(peer) < self.per_peer;
        let mut ended = None;
        if fits && is_full {
            let since = |entry: &Entry| Some(entry.waiting.as_ref()?.since);
            let newcomer = table.newcomer(peer, self.limit);
            let lost = newcomer.least(Rule::UNUSED.of_others(), |call| since(call.value));
            ended = lost.and_then(|lost| table.remove(&lost));
            fits = ended.is_some();
        }
        if fits {
            table.insert(id, peer.clone(), Entry::default());
        }
        drop(table);
        // Without the lock. Its task ends the call.
        if ended.is_some() {
            tracing::warn!(limit = self.limit, "suspended call dropped: table full, and its client has most of it");
        } else if !fits {
            tracing::warn!(limit = self.limit, "server request refused: too many suspended calls");
        }
        fits
    }

    fn suspend(&self, id: &SuspendedId, new: Waiting) -> Option<u32> {
        let mut table = self.lock();
        let entry = table.get_mut(id)?;
        entry.round += 1;
        entry.waiting = Some(new);
        Some(entry.round)
    }

    fn decided(&self, id: &SuspendedId, round: u32) -> Result<Arc<Decided>, RpcError> {
        match self.lock().get_mut(id) {
            Some(entry) if entry.round == round => {
                entry.waiting.as_ref().map(|waiting| Arc::clone(&waiting.decided)).ok_or_else(replayed)
            }
            Some(_) => Err(replayed()),
            None => Err(expired()),
        }
    }

    fn resume(&self, id: &SuspendedId, round: u32) -> Result<HandOver, RpcError> {
        match self.lock().get_mut(id) {
            Some(entry) if entry.round == round => {
                entry.waiting.take().map(|waiting| waiting.hand_over).ok_or_else(replayed)
            }
            Some(_) => Err(replayed()),
            None => Err(expired()),
        }
    }

    fn remove(&self, id: &SuspendedId) {
        let entry = self.lock().remove(id);
        // Without the lock.
        drop(entry);
    }

    fn count(&self) -> usize {
        self.lock().values().filter(|entry| entry.waiting.is_some()).count()
    }

    fn views(&self) -> Vec<SuspendedCallView> {
        let now = Instant::now();
        let view = |entry: &Entry| {
            let waiting = entry.waiting.as_ref()?;
            Some(SuspendedCallView {
                method: waiting.method.clone(),
                name: waiting.name.clone(),
                requests: waiting.requests.clone(),
                round: entry.round,
                waiting: now.saturating_duration_since(waiting.since),
                left: waiting.until.saturating_duration_since(now),
            })
        };
        self.lock().values().filter_map(view).collect()
    }
}

pub(super) fn refuse(reason: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("\"requestState\" {reason}"))
}

pub(super) fn expired() -> RpcError {
    refuse("has expired: its call has ended; make the call anew, without it")
}

pub(super) fn kept_elsewhere() -> RpcError {
    refuse(
        "belongs to a call that ended when the gateway was restarted, or that another of its processes has: make the call \
         anew, without it",
    )
}

pub(super) fn replayed() -> RpcError {
    refuse("has been used already: it is good for one request")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fanlight_canonical::{CallContext, ResolvedOperation as _, Unresolved};
    use fanlight_protocol::Method;

    use super::*;
    use crate::session::testing::TestOperation;

    fn peer(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    /// Suspends a call; returns what ends when its entry does.
    fn suspend(
        calls: &InMemorySuspendedCalls,
        number: u8,
        of: u8,
    ) -> Option<oneshot::Receiver<oneshot::Sender<Box<SuspendedCall>>>> {
        let id = [number; size_of::<SuspendedId>()];
        if !calls.insert(id, &peer(of)) {
            return None;
        }
        let (hand_over, resumed) = oneshot::channel();
        let since = Instant::now() + Duration::from_secs(number.into());
        let (method, name, requests) = (String::new(), None, Vec::new());
        let request = Unresolved { method: Method::CallTool, params: None, context: CallContext::internal() };
        let decided = Arc::new(TestOperation(request).decided());
        calls.suspend(&id, Waiting { hand_over, decided, method, name, requests, since, until: since }).unwrap();
        Some(resumed)
    }

    fn has_ended(resumed: &mut oneshot::Receiver<oneshot::Sender<Box<SuspendedCall>>>) -> bool {
        matches!(resumed.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn peer_with_most_suspended_calls_loses_its_oldest() {
        let calls = InMemorySuspendedCalls::new(3, 0);
        let mut quiet = suspend(&calls, 1, 1).unwrap();
        let mut noisy = [suspend(&calls, 3, 2).unwrap(), suspend(&calls, 2, 2).unwrap()];
        assert!(suspend(&calls, 4, 2).is_none(), "its own ones stay");
        let mut new = suspend(&calls, 5, 3).unwrap();
        assert!(has_ended(&mut noisy[1]) && !has_ended(&mut noisy[0]) && !has_ended(&mut quiet));
        assert!(suspend(&calls, 6, 3).is_none(), "all have one now");
        assert!(!has_ended(&mut new));
    }

    #[test]
    fn quota_of_a_peer_bounds_its_suspended_calls() {
        let calls = InMemorySuspendedCalls::new(9, 1);
        let _one = suspend(&calls, 1, 1).unwrap();
        assert!(suspend(&calls, 2, 1).is_none() && suspend(&calls, 3, 2).is_some());
    }
}
