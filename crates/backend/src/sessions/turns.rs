//! Lets requests wait for a process of a legacy stdio server that is about to be free, instead of
//! starting one more.
//!
//! A request whose client can be asked has its own process. Several concurrent requests would start
//! as many processes, although one fast process could serve them all before another has started. So
//! a request without a spare process waits, as long as the running processes for similar clients
//! should be free sooner than a start would take. The estimate uses earlier starts and requests.
//! The wait takes at most one start's time. A start in progress is waited for as well, since
//! another one would compete with it.

use std::time::Duration;

use fanlight_canonical::CallContext;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::SessionPool;
use super::clients::{Owner, Running, SpareKey};
use crate::connection::attempt::Measured;
use crate::connection::supervised::InUse;

/// The duration that counts for a process that its request did not free: the process ended, or its
/// server had asked the client. Nobody could have waited for such a process, so the duration only
/// has to be longer than a start.
const NOT_FREED: Duration = Duration::from_secs(60);

/// The requests that wait for a process, and the usual time that processes are in use.
#[derive(Default)]
pub(super) struct Turns {
    queue: Mutex<Queue>,
    /// The usual time that a request keeps its process.
    uses: Measured,
    /// Changes when a process may have become free or ready.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Queue {
    last: u64,
    /// Waiting requests, in order.
    waiting: Vec<(u64, SpareKey)>,
}

/// Wakes the waiting requests when dropped: the process that a request waits for is ready, or will
/// not be.
pub(super) struct WakeOnDrop<'a>(pub(super) &'a Turns);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// The process for a request.
pub(super) enum Place<'a> {
    Free(InUse),
    /// A process must be started.
    Start(Option<Starting<'a>>),
}

/// A process that is about to start, until it has been added to the connections.
pub(super) struct Starting<'a> {
    pool: &'a SessionPool,
    key: SpareKey,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.pool.connections.lock().end_start(&self.key);
    }
}

/// The place of a waiting request; dropping this gives it up.
struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    key: &'a SpareKey,
}

impl Turns {
    /// Records the end of a request with its own process. `time` is how long it took; `None` if the
    /// process is not free now.
    pub(super) fn record_use(&self, time: Option<Duration>) {
        self.uses.record(time.unwrap_or(NOT_FREED));
        self.wake();
    }

    /// Wakes the waiting requests.
    pub(super) fn wake(&self) {
        self.changed.send_replace(());
    }

    fn enter<'a>(&'a self, key: &'a SpareKey) -> Turn<'a> {
        let mut queue = self.queue.lock();
        queue.last += 1;
        let number = queue.last;
        queue.waiting.push((number, key.clone()));
        Turn {
            turns: self,
            number,
            key,
        }
    }
}

impl Turn<'_> {
    /// The number of earlier requests that wait for the same processes.
    fn ahead(&self) -> usize {
        let queue = self.turns.queue.lock();
        queue
            .waiting
            .iter()
            .filter(|(number, key)| *number < self.number && key == self.key)
            .count()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns
            .queue
            .lock()
            .waiting
            .retain(|(number, _)| *number != self.number);
        // The requests behind it have moved up.
        self.turns.wake();
    }
}

/// Whether the running processes can serve a request with `ahead` others before it sooner than a
/// start, which takes `start`. Each request keeps its process for `each`.
fn is_sooner(running: Running, ahead: usize, each: Option<Duration>, start: Duration) -> bool {
    let processes = running.ready + running.starting;
    let turns = (ahead + 1).div_ceil(processes.max(1));
    let wait = each.map(|each| each.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX)));
    processes > 0 && wait.is_none_or(|wait| wait <= start)
}

impl SessionPool {
    /// Waits for a free process, or decides to start one.
    pub(super) async fn wait_for_turn(&self, owner: &Owner, client: &CallContext) -> Place<'_> {
        let measured = self
            .settings
            .process()
            .and_then(|_| self.settings.starts.average());
        let (Owner::Request(_), Some(start)) = (owner, measured) else {
            return Place::Start(None);
        };
        let key = self.spare_key(client);
        let turn = self.turns.enter(&key);
        let mut changed = self.turns.changed.subscribe();
        let latest = Instant::now() + self.settings.timeouts.connect;
        let mut patience = None;
        loop {
            changed.mark_unchanged();
            let ahead = turn.ahead();
            let running = {
                let mut connections = self.connections.lock();
                if connections.spares(&key) > ahead
                    && let Some(free) = connections.claim(owner, &key)
                {
                    return Place::Free(free);
                }
                let running = connections.count_running(&key, start);
                if !is_sooner(running, ahead, self.turns.uses.average(), start) {
                    // Other requests see the start at once, and wait for it.
                    connections.begin_start(&key);
                    return Place::Start(Some(Starting {
                        pool: self,
                        key: key.clone(),
                    }));
                }
                running
            };
            if running.ready > 0 {
                patience.get_or_insert_with(|| Instant::now() + start);
            }
            let until = patience.unwrap_or(latest).min(latest);
            tokio::select! {
                // The sender lives as long as the pool.
                _ = changed.changed() => {}
                () = sleep_until(until) => {
                    self.connections.lock().begin_start(&key);
                    return Place::Start(Some(Starting { pool: self, key: key.clone() }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const fn running(ready: usize, starting: usize) -> Running {
        Running { ready, starting }
    }

    #[test]
    fn start_is_waited_for_where_the_processes_are_free_later_or_never() {
        let second = Duration::from_secs(1);
        let is_sooner = |running, ahead, each| is_sooner(running, ahead, each, second);
        assert!(!is_sooner(running(0, 0), 0, None), "no process runs");
        assert!(is_sooner(running(0, 1), 6, None), "not measured yet");
        assert!(is_sooner(running(1, 0), 3, Some(second / 4)));
        assert!(
            !is_sooner(running(1, 0), 4, Some(second / 4)),
            "four are ahead of it"
        );
        assert!(
            is_sooner(running(1, 1), 4, Some(second / 4)),
            "two processes take turns"
        );
        assert!(!is_sooner(running(8, 0), 0, Some(NOT_FREED)));
    }

    #[tokio::test]
    async fn requests_wait_in_order_and_those_behind_move_up() {
        let (turns, key) = (
            Turns::default(),
            (
                fanlight_canonical::Principal::anonymous(),
                Bytes::from_static(b"{}"),
            ),
        );
        let other = (key.0.clone(), Bytes::from_static(b"{ }"));
        let (first, second, _elsewhere) =
            (turns.enter(&key), turns.enter(&key), turns.enter(&other));
        assert_eq!((first.ahead(), second.ahead()), (0, 1));
        let mut changed = turns.changed.subscribe();
        drop(first);
        assert_eq!(second.ahead(), 0);
        assert!(changed.has_changed().unwrap());
        changed.mark_unchanged();
        turns.record_use(None);
        assert!(changed.has_changed().unwrap());
        assert_eq!(turns.uses.average(), Some(NOT_FREED));
    }
}
