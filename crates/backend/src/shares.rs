//! How many of a backend's places one client may take, so that there are some left for others.
//!
//! Clients are told apart by their sessions. Those without one are not told apart at all: they share
//! what the sessions leave, and sessions what they leave.
//!
//! Must not know: requests.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use fanlight_canonical::SessionKey;

/// What the sessions have of one backend's places.
pub(crate) struct Shares {
    /// Requests of one session that may run; as many may wait besides.
    most: usize,
    sessions: Arc<Sessions>,
}

type Sessions = Mutex<HashMap<SessionKey, Share, BuildHasherDefault<OwnKeys>>>;

/// Spreads numbers that this process gave, which nobody can choose so that they collide.
#[derive(Default)]
struct OwnKeys(u64);

struct Share {
    /// Requests that run or wait.
    requests: usize,
    running: Arc<Semaphore>,
}

/// A request's place among those of its session, given up by dropping it.
pub(crate) struct Within {
    of: Option<(Arc<Sessions>, SessionKey)>,
    _running: Option<OwnedSemaphorePermit>,
}

impl Hasher for OwnKeys {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio's part of 2^64: for numbers in a row, upper and lower bits differ.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Shares {
    /// Shares of `places`: three quarters each at most, and one at least.
    pub(crate) fn of(places: usize) -> Self {
        Self { most: places - places / 4, sessions: Arc::default() }
    }

    /// A place, once the session has one; `None` if too many of its requests wait already.
    pub(crate) async fn enter(&self, session: Option<SessionKey>) -> Option<Within> {
        let Some(session) = session else { return Some(Within { of: None, _running: None }) };
        let running = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Share { requests: 0, running: Arc::new(Semaphore::new(self.most)) };
            let share = sessions.entry(session).or_insert_with(new);
            if share.requests >= 2 * self.most {
                return None;
            }
            share.requests += 1;
            Arc::clone(&share.running)
        };
        let mut within = Within { of: Some((Arc::clone(&self.sessions), session)), _running: None };
        // The semaphore is never closed.
        within._running = running.acquire_owned().await.ok();
        Some(within)
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        let Some((sessions, session)) = &self.of else { return };
        let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = sessions.get_mut(session) {
            share.requests -= 1;
            if share.requests == 0 {
                sessions.remove(session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const A: Option<SessionKey> = Some(SessionKey(1));

    #[tokio::test]
    async fn one_session_leaves_places_to_others() {
        let shares = Shares::of(4);
        let running: Vec<_> = (0..3).map(|_| shares.enter(A).now_or_never().unwrap().unwrap()).collect();
        // The fourth waits, for a place of its own session.
        let mut fourth = Box::pin(shares.enter(A));
        assert!(fourth.as_mut().now_or_never().is_none());
        assert!(shares.enter(Some(SessionKey(2))).now_or_never().unwrap().is_some());
        assert!(shares.enter(None).now_or_never().unwrap().is_some());
        let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(shares.enter(A))).collect();
        assert!(waiting.iter_mut().all(|waiting| waiting.as_mut().now_or_never().is_none()));
        assert!(shares.enter(A).now_or_never().unwrap().is_none(), "as many wait as may run");
        drop(running);
        assert!(fourth.now_or_never().unwrap().is_some());
        drop(waiting);
        assert!(shares.sessions.lock().unwrap().is_empty());
    }

    #[test]
    fn everybody_has_a_place() {
        for (places, most) in [(1, 1), (2, 2), (3, 3), (4, 3), (256, 192)] {
            assert_eq!(Shares::of(places).most, most);
        }
    }
}
