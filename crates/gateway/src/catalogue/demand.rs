//! Decides whether Fanlight has to listen to a server for changes of its lists.
//!
//! A single Fanlight process listens to every server. With several replicas each stream is one of
//! many at the server. So a replica listens only while one of its clients listens, or while a list
//! of the server has no lifetime (`ttlMs`; 2026-07-28 server/utilities/caching).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use super::ListKind;
use crate::topology::BackendId;

/// How long a stream stays open after nobody needs it. No option: clients come and go, and each new
/// stream makes Fanlight read the lists again.
const LINGER: Duration = Duration::from_secs(60);

/// The reasons to listen to servers for changes of lists.
#[derive(Default)]
pub(super) struct Demand {
    /// Whether any client listens for changes.
    clients: watch::Sender<bool>,
    /// For each server, the lists that have no lifetime.
    untimed: Mutex<HashMap<BackendId, Untimed>>,
}

type Untimed = watch::Sender<HashSet<ListKind>>;

impl Demand {
    pub(super) fn set_clients(&self, listen: bool) {
        self.clients
            .send_if_modified(|listened| std::mem::replace(listened, listen) != listen);
    }

    /// Records that a list of a server was read, and whether it has a lifetime.
    pub(super) fn read(&self, backend: BackendId, kind: ListKind, is_timed: bool) {
        self.untimed(backend).send_if_modified(|untimed| {
            if is_timed {
                untimed.remove(&kind)
            } else {
                untimed.insert(kind)
            }
        });
    }

    /// Forgets the servers for which `is_there` is false.
    pub(super) fn retain(&self, is_there: impl Fn(BackendId) -> bool) {
        self.untimed.lock().retain(|backend, _| is_there(*backend));
    }

    /// Waits until Fanlight has to listen to the server.
    pub(super) async fn begins(&self, backend: BackendId) {
        self.becomes(backend, true).await;
    }

    /// Waits until Fanlight has not had to listen to the server for [`LINGER`].
    pub(super) async fn ends(&self, backend: BackendId) {
        loop {
            self.becomes(backend, false).await;
            if timeout(LINGER, self.begins(backend)).await.is_err() {
                return;
            }
        }
    }

    async fn becomes(&self, backend: BackendId, wanted: bool) {
        let (mut clients, mut untimed) =
            (self.clients.subscribe(), self.untimed(backend).subscribe());
        loop {
            if (*clients.borrow_and_update() || !untimed.borrow_and_update().is_empty()) == wanted {
                return;
            }
            tokio::select! {
                // The sender belongs to `self`, so it cannot close here.
                _ = clients.changed() => {}
                // The server has left the topology, so listening to it ends.
                changed = untimed.changed() => if changed.is_err() { return },
            }
        }
    }

    fn untimed(&self, backend: BackendId) -> Untimed {
        self.untimed.lock().entry(backend).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backend_is_listened_to_for_clients_and_for_lists_that_do_not_say_how_long_they_hold() {
        let (demand, [one, other]) = (
            Arc::new(Demand::default()),
            [BackendId::generate(), BackendId::generate()],
        );
        let is_wanted = async |backend| {
            timeout(Duration::ZERO, demand.begins(backend))
                .await
                .is_ok()
        };
        demand.read(one, ListKind::Tools, true);
        assert!(!is_wanted(one).await && !is_wanted(other).await);
        demand.read(one, ListKind::Prompts, false);
        assert!(is_wanted(one).await && !is_wanted(other).await);
        demand.set_clients(true);
        assert!(is_wanted(other).await);
        demand.read(one, ListKind::Prompts, true);
        demand.set_clients(false);
        assert!(!is_wanted(one).await && !is_wanted(other).await);
    }

    #[tokio::test(start_paused = true)]
    async fn stream_stays_for_a_while_after_the_last_client() {
        let (demand, backend) = (Arc::new(Demand::default()), BackendId::generate());
        demand.set_clients(true);
        let waiting = Arc::clone(&demand);
        let ended = tokio::spawn(async move {
            waiting.ends(backend).await;
            Instant::now()
        });
        advance(LINGER).await;
        demand.set_clients(false);
        tokio::task::yield_now().await;
        advance(LINGER / 2).await;
        demand.set_clients(true);
        tokio::task::yield_now().await;
        let left = Instant::now();
        demand.set_clients(false);
        assert_eq!(ended.await.unwrap() - left, LINGER);
    }
}
