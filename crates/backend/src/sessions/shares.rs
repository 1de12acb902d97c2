//! The share of a backend's concurrency that one client may use, so that some is left for others.
//!
//! A client is a session, or all requests without a session of one authenticated principal. Anonymous requests without a
//! session cannot be told apart: they have no share, and use what the others leave.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use fanlight_canonical::{Caller, Principal, SessionKey};

/// The shares of one backend.
pub(crate) struct Shares {
    /// How many requests of one client may run; as many may wait besides.
    most: usize,
    clients: Arc<Clients>,
}

/// The clients with requests.
type Clients = Mutex<HashMap<ClientKey, Share, RandomState>>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    principal: Principal,
    session: Option<SessionKey>,
}

struct Share {
    /// Requests that run or wait.
    requests: usize,
    running: Arc<Semaphore>,
}

/// A request's part of its client's share, given back when this is dropped.
pub(crate) struct SharePermit {
    of: Option<(Arc<Clients>, ClientKey)>,
    _running: Option<OwnedSemaphorePermit>,
}

impl Shares {
    /// Shares of three quarters of `concurrency` each, and at least one request.
    pub(crate) fn of(concurrency: usize) -> Self {
        Self { most: concurrency - concurrency / 4, clients: Arc::default() }
    }

    /// Waits until the client may run one more request; `None` if too many of its requests wait already.
    pub(crate) async fn enter(&self, caller: &Caller) -> Option<SharePermit> {
        let (principal, session) = (caller.principal(), caller.session());
        if session.is_none() && (caller.is_gateway() || *principal == Principal::anonymous()) {
            return Some(SharePermit { of: None, _running: None });
        }
        let key = ClientKey { principal: principal.clone(), session };
        let running = {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Share { requests: 0, running: Arc::new(Semaphore::new(self.most)) };
            let share = clients.entry(key.clone()).or_insert_with(new);
            if share.requests >= 2 * self.most {
                return None;
            }
            share.requests += 1;
            Arc::clone(&share.running)
        };
        let mut permit = SharePermit { of: Some((Arc::clone(&self.clients), key)), _running: None };
        // The semaphore is never closed.
        permit._running = running.acquire_owned().await.ok();
        Some(permit)
    }
}

impl Drop for SharePermit {
    fn drop(&mut self) {
        let Some((clients, key)) = &self.of else { return };
        let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = clients.get_mut(key) {
            share.requests -= 1;
            if share.requests == 0 {
                clients.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn session(number: u64) -> Caller {
        Caller::session_of(Principal::anonymous(), SessionKey(number))
    }

    fn named(subject: &str) -> Caller {
        Caller::request_of(Principal::named("https://issuer.example", subject))
    }

    #[tokio::test]
    async fn one_client_leaves_concurrency_to_others() {
        for (one, other) in [(session(1), session(2)), (named("ann"), named("bob")), (named("ann"), session(1))] {
            let shares = Shares::of(4);
            let running: Vec<_> = (0..3).map(|_| shares.enter(&one).now_or_never().unwrap().unwrap()).collect();
            // The fourth waits, for a request of the same client.
            let mut fourth = Box::pin(shares.enter(&one));
            assert!(fourth.as_mut().now_or_never().is_none());
            assert!(shares.enter(&other).now_or_never().unwrap().is_some());
            let anonymous = Caller::request_of(Principal::anonymous());
            assert!(shares.enter(&anonymous).now_or_never().unwrap().is_some());
            let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(shares.enter(&one))).collect();
            assert!(waiting.iter_mut().all(|waiting| waiting.as_mut().now_or_never().is_none()));
            assert!(shares.enter(&one).now_or_never().unwrap().is_none(), "as many wait as may run");
            drop(running);
            assert!(fourth.now_or_never().unwrap().is_some());
            drop(waiting);
            assert!(shares.clients.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn share_is_never_empty() {
        for (places, most) in [(1, 1), (2, 2), (3, 3), (4, 3), (256, 192)] {
            assert_eq!(Shares::of(places).most, most);
        }
    }
}
