//! Whether a backend has to be listened to for changes of its lists.
//!
//! A process alone listens to each. Where several have the same servers, each stream is one of many at a server: it is listened to only
//! while a client listens here, or a list of it does not say for how long it holds (`ttlMs`; 2026-07-28 server/utilities/caching).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::ListKind;
use crate::topology::BackendId;

/// How long nobody needs a stream before it ends. No option: clients come and go, and each stream that begins has lists read again.
const LINGER: Duration = Duration::from_secs(60);

/// Who needs to hear of changes of lists.
#[derive(Default)]
pub(super) struct Demand {
    /// Whether any client listens.
    clients: watch::Sender<bool>,
    /// The lists of each backend that do not say for how long they hold.
    untimed: Mutex<HashMap<BackendId, Untimed>>,
}

type Untimed = watch::Sender<HashSet<ListKind>>;

impl Demand {
    pub(super) fn set_clients(&self, listen: bool) {
        self.clients
            .send_if_modified(|listened| std::mem::replace(listened, listen) != listen);
    }

    /// A list of a backend has been read, which says for how long it holds or does not.
    pub(super) fn read(&self, backend: BackendId, kind: ListKind, is_timed: bool) {
        self.of(backend).send_if_modified(|untimed| {
            if is_timed {
                untimed.remove(&kind)
            } else {
                untimed.insert(kind)
            }
        });
    }

    /// Forgets backends other than these.
    pub(super) fn retain(&self, is_there: impl Fn(BackendId) -> bool) {
        self.untimed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|backend, _| is_there(*backend));
    }

    /// Waits until a backend has to be listened to.
    pub(super) async fn begins(&self, backend: BackendId) {
        self.becomes(backend, true).await;
    }

    /// Waits until a backend has not had to be listened to for some time.
    pub(super) async fn ends(&self, backend: BackendId) {
        loop {
            self.becomes(backend, false).await;
            if timeout(LINGER, self.begins(backend)).await.is_err() {
                return;
            }
        }
    }

    async fn becomes(&self, backend: BackendId, wanted: bool) {
        let (mut clients, mut untimed) = (self.clients.subscribe(), self.of(backend).subscribe());
        loop {
            if (*clients.borrow_and_update() || !untimed.borrow_and_update().is_empty()) == wanted {
                return;
            }
            tokio::select! {
                // Its sender lives as long as this.
                _ = clients.changed() => {}
                // The backend has left, and listening to it ends.
                changed = untimed.changed() => if changed.is_err() { return },
            }
        }
    }

    fn of(&self, backend: BackendId) -> Untimed {
        self.untimed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(backend)
            .or_default()
            .clone()
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
            [BackendId::fresh(), BackendId::fresh()],
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
        let (demand, backend) = (Arc::new(Demand::default()), BackendId::fresh());
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
