//! The entries of suspended calls.

use fanlight_canonical::Peer;
use fanlight_fair::{Rule, Table};
use fanlight_protocol::{RpcError, code};
use fanlight_telemetry::clients::SuspendedCallView;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::request_state::SuspendedId;

/// There are too many suspended calls, and none may end to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// A call that waits to be resumed.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) method: String,
    pub(super) name: Option<String>,
    pub(super) requests: Vec<String>,
    pub(super) since: Instant,
    pub(super) until: Instant,
}

/// Entries of suspended calls by id, as plain data: at most `limit`, and `per_peer` per peer (0 for
/// no limit). The calls themselves run in the process that began them.
pub(super) struct SuspendedEntries {
    table: Mutex<Table<Peer, SuspendedId, Entry>>,
    limit: usize,
    per_peer: usize,
}

#[derive(Default)]
struct Entry {
    /// The number of times that the call has been suspended.
    round: u32,
    waiting: Option<Waiting>,
}

impl SuspendedEntries {
    pub(super) fn new(limit: usize, per_peer: usize) -> Self {
        Self {
            table: Mutex::default(),
            limit,
            per_peer,
        }
    }

    /// Adds an entry for a call of `peer`; returns the call that lost its entry to make room, if
    /// any. At the limit, ends the longest suspended call of the peer with the most, unless that is the
    /// new call's peer.
    pub(super) fn insert(
        &self,
        id: SuspendedId,
        peer: &Peer,
    ) -> Result<Option<SuspendedId>, TooMany> {
        let mut table = self.table.lock();
        let is_full = table.len() >= self.limit;
        let mut fits = self.per_peer == 0 || table.count(peer) < self.per_peer;
        let mut ended = None;
        if fits && is_full {
            let since = |entry: &Entry| Some(entry.waiting.as_ref()?.since);
            let newcomer = table.newcomer(peer, self.limit);
            let lost = newcomer.least(Rule::UNUSED.restrict_to_others(), |call| since(call.value));
            ended = lost.filter(|lost| table.remove(lost).is_some());
            fits = ended.is_some();
        }
        if fits {
            table.insert(id, peer.clone(), Entry::default());
        }
        drop(table);
        if ended.is_some() {
            tracing::warn!(
                limit = self.limit,
                "suspended call dropped: table full, and its client has the most"
            );
        } else if !fits {
            tracing::warn!(
                limit = self.limit,
                "server request refused: too many suspended calls"
            );
        }
        if fits { Ok(ended) } else { Err(TooMany) }
    }

    /// Marks the call as suspended; returns how often it has been so far. `None` if it has no
    /// entry.
    pub(super) fn suspend(&self, id: &SuspendedId, new: Waiting) -> Option<u32> {
        self.table.lock().get_mut(id).map(|entry| {
            entry.round += 1;
            entry.waiting = Some(new);
            entry.round
        })
    }

    /// Marks the call as resumed from its suspension number `round`. This succeeds once per round.
    pub(super) fn resume(&self, id: &SuspendedId, round: u32) -> Result<(), RpcError> {
        match self.table.lock().get_mut(id) {
            Some(entry) if entry.round == round => {
                entry.waiting.take().map(drop).ok_or_else(replayed)
            }
            Some(_) => Err(replayed()),
            None => Err(expired_error()),
        }
    }

    /// Whether the call has an entry, so it has not ended.
    pub(super) fn contains(&self, id: &SuspendedId) -> bool {
        self.table.lock().get(id).is_some()
    }

    /// Removes a call's entry after its end.
    pub(super) fn remove(&self, id: &SuspendedId) {
        self.table.lock().remove(id);
    }

    /// The number of suspended calls.
    pub(super) fn count(&self) -> usize {
        self.table
            .lock()
            .values()
            .filter(|entry| entry.waiting.is_some())
            .count()
    }

    /// The suspended calls, for operators.
    pub(super) fn views(&self) -> Vec<SuspendedCallView> {
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
        self.table.lock().values().filter_map(view).collect()
    }
}

pub(super) fn refuse(reason: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("\"requestState\" {reason}"))
}

pub(super) fn expired_error() -> RpcError {
    refuse("has expired: its call has ended; repeat the call without it")
}

/// The error for a state whose call no living replica has.
pub(crate) fn kept_elsewhere() -> RpcError {
    refuse(
        "belongs to a call that ended when the gateway was restarted, or that another of its processes has: repeat the \
         call without it",
    )
}

pub(super) fn replayed() -> RpcError {
    refuse("has been used already: it is valid for one request")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    /// Suspends a call; returns the call that lost its entry to make room.
    fn suspend(calls: &SuspendedEntries, number: u8, of: u8) -> Result<Option<u8>, TooMany> {
        let id = [number; size_of::<SuspendedId>()];
        let ended = calls.insert(id, &peer(of))?;
        let since = Instant::now() + Duration::from_secs(number.into());
        let waiting = Waiting {
            method: String::new(),
            name: None,
            requests: Vec::new(),
            since,
            until: since,
        };
        assert_eq!(calls.suspend(&id, waiting), Some(1));
        Ok(ended.map(|ended| ended[0]))
    }

    fn resume(calls: &SuspendedEntries, number: u8, round: u32) -> Result<(), RpcError> {
        calls.resume(&[number; size_of::<SuspendedId>()], round)
    }

    #[test]
    fn peer_with_most_suspended_calls_loses_its_oldest() {
        let calls = SuspendedEntries::new(3, 0);
        assert_eq!(
            [
                suspend(&calls, 1, 1),
                suspend(&calls, 3, 2),
                suspend(&calls, 2, 2)
            ],
            [Ok(None); 3]
        );
        assert_eq!(suspend(&calls, 4, 2), Err(TooMany), "its own ones stay");
        assert_eq!(suspend(&calls, 5, 3), Ok(Some(2)));
        assert_eq!(suspend(&calls, 6, 3), Err(TooMany), "all have one now");
        assert!(
            resume(&calls, 1, 1).is_ok()
                && resume(&calls, 3, 1).is_ok()
                && resume(&calls, 5, 1).is_ok()
        );
        assert!(resume(&calls, 2, 1).is_err());
    }

    #[test]
    fn suspended_call_is_resumed_once_for_each_round() {
        let calls = SuspendedEntries::new(3, 0);
        suspend(&calls, 1, 1).unwrap();
        assert!(resume(&calls, 1, 2).is_err() && resume(&calls, 1, 1).is_ok());
        assert_eq!(
            resume(&calls, 1, 1).unwrap_err().message,
            replayed().message
        );
        calls.remove(&[1; size_of::<SuspendedId>()]);
        assert_eq!(
            resume(&calls, 1, 1).unwrap_err().message,
            expired_error().message
        );
    }

    #[test]
    fn quota_of_a_peer_bounds_its_suspended_calls() {
        let calls = SuspendedEntries::new(9, 1);
        assert_eq!(suspend(&calls, 1, 1), Ok(None));
        assert_eq!(
            (suspend(&calls, 2, 1), suspend(&calls, 3, 2)),
            (Err(TooMany), Ok(None))
        );
    }
}
