//! The entries of suspended calls.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fanlight_protocol::{RpcError, code};
use fanlight_telemetry::clients::SuspendedCallView;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::request_state::SuspendedId;
use super::suspended_call::SuspendedCall;

/// Entries of suspended calls, by id. The calls themselves belong to the process that began them: with
/// replicas, a request that brings input is forwarded to that process, which `requestState` names.
pub(super) trait SuspendedCallStore: Send + Sync {
    /// Makes an entry for a call; false if there are too many.
    fn insert(&self, id: SuspendedId) -> bool;

    /// The call is suspended and waits to be resumed; returns how often it has been. `None` if it has no
    /// entry.
    fn suspend(&self, id: &SuspendedId, waiting: Waiting) -> Option<u32>;

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
    pub(super) method: String,
    pub(super) name: Option<String>,
    pub(super) requests: Vec<String>,
    pub(super) since: Instant,
    pub(super) until: Instant,
}

/// The entries of this process, at most `limit`.
pub(super) struct InMemorySuspendedCalls {
    table: Mutex<HashMap<SuspendedId, (u32, Option<Waiting>)>>,
    limit: usize,
}

impl InMemorySuspendedCalls {
    pub(super) fn new(limit: usize) -> Self {
        Self { table: Mutex::default(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SuspendedId, (u32, Option<Waiting>)>> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SuspendedCallStore for InMemorySuspendedCalls {
    fn insert(&self, id: SuspendedId) -> bool {
        let mut table = self.lock();
        let fits = table.len() < self.limit;
        if fits {
            table.insert(id, (0, None));
        } else {
            tracing::warn!(limit = self.limit, "server request refused: too many suspended calls");
        }
        fits
    }

    fn suspend(&self, id: &SuspendedId, new: Waiting) -> Option<u32> {
        let mut table = self.lock();
        let (round, waiting) = table.get_mut(id)?;
        *round += 1;
        *waiting = Some(new);
        Some(*round)
    }

    fn resume(&self, id: &SuspendedId, round: u32) -> Result<HandOver, RpcError> {
        match self.lock().get_mut(id) {
            Some((last, waiting)) if *last == round => {
                waiting.take().map(|waiting| waiting.hand_over).ok_or_else(replayed)
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
        self.lock().values().filter(|(_, waiting)| waiting.is_some()).count()
    }

    fn views(&self) -> Vec<SuspendedCallView> {
        let now = Instant::now();
        let view = |(round, waiting): &(u32, Option<Waiting>)| {
            let waiting = waiting.as_ref()?;
            Some(SuspendedCallView {
                method: waiting.method.clone(),
                name: waiting.name.clone(),
                requests: waiting.requests.clone(),
                round: *round,
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

pub(super) fn replayed() -> RpcError {
    refuse("has been used already: it is good for one request")
}
