//! The connections of one worker to one server.
//!
//! Those that are idle wait for the next request, the one used last goes first. A task keeps them: it
//! closes what the server has closed and what nobody has used for long.
//!
//! Must not know: requests.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::Supply;
use super::connection::Connection;
use super::connector::{Connector, Unconnected};

/// See the module.
pub(super) struct Pool {
    connector: Connector,
    /// A connection that no request uses is closed between half of this and this.
    idle_timeout: Duration,
    most_idle: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// With the time when they came, in halves of the idle timeout: so nobody has to look at the clock.
    idle: Vec<(Box<Connection>, u64)>,
    now: u64,
    /// Requests without a connection, the one that waits longest first.
    waiting: VecDeque<oneshot::Sender<Supply>>,
    /// How many connections are being made. Each is for one that waits, whichever is first by then.
    connecting: usize,
    /// Wakes the keeper; there is none while this is `None`.
    keeper: Option<Waker>,
}

/// A connection that is being made.
struct Attempt(Arc<Pool>);

/// The keeper's end.
struct Keeping(Weak<Pool>);

impl Pool {
    pub(super) fn new(connector: Connector, idle_timeout: Duration, most_idle: usize) -> Arc<Self> {
        Arc::new(Self { connector, idle_timeout, most_idle, state: Mutex::default() })
    }

    /// An idle connection.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        self.state().idle.pop().map(|(connection, _)| connection)
    }

    /// Takes a connection that can be used.
    pub(super) fn give(&self, connection: Box<Connection>) {
        let surplus = self.state().put(connection, self.most_idle);
        // Closed without the lock.
        drop(surplus);
    }

    /// Waits for a connection: the first that is given back, or made. Needs a runtime around it.
    pub(super) fn wait(self: &Arc<Self>) -> oneshot::Receiver<Supply> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        state.waiting.retain(|waiting| !waiting.is_closed());
        state.waiting.push_back(sender);
        if state.connecting < state.waiting.len() {
            state.connecting += 1;
            drop(state);
            tokio::spawn(Attempt(Arc::clone(self)).make());
        }
        receiver
    }

    /// Sees to it that there is a keeper. Needs a runtime around it.
    fn keep(self: &Arc<Self>) {
        let mut state = self.state();
        if state.keeper.is_none() {
            state.keeper = Some(Waker::noop().clone());
            drop(state);
            tokio::spawn(Keeping(Arc::downgrade(self)).run(self.idle_timeout / 2));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(keeper) = self.state().keeper.take() {
            keeper.wake();
        }
    }
}

impl State {
    /// Gives back what there is no room for.
    fn put(&mut self, mut connection: Box<Connection>, most: usize) -> Option<Box<Connection>> {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(Ok(connection)) {
                Err(Ok(unwanted)) => connection = unwanted,
                _ => return None,
            }
        }
        let Some(keeper) = self.keeper.as_ref().filter(|_| self.idle.len() < most) else { return Some(connection) };
        if connection.rest(keeper) {
            keeper.wake_by_ref();
        }
        self.idle.push((connection, self.now));
        None
    }

    /// Tells the first who waits that a connection could not be made.
    fn fail(&mut self, mut error: Unconnected) {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(Err(error)) {
                Err(Err(unheard)) => error = unheard,
                _ => return,
            }
        }
    }
}

impl Attempt {
    async fn make(self) {
        let made = self.0.connector.clone().connect().await;
        match made {
            Ok(connection) => {
                self.0.keep();
                self.0.give(connection);
            }
            Err(error) => self.0.state().fail(error),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.connecting -= 1;
        // Where the runtime ended before the attempt did, nobody is left to make these.
        if state.connecting < state.waiting.len() {
            state.fail(Unconnected::Stopped);
        }
    }
}

impl Keeping {
    async fn run(self, half_timeout: Duration) {
        let mut turn = pin!(sleep(half_timeout));
        poll_fn(|cx| {
            let Some(pool) = self.0.upgrade() else { return Poll::Ready(()) };
            let mut time_passed = false;
            while turn.as_mut().poll(cx).is_ready() {
                time_passed = true;
                turn.as_mut().reset(Instant::now() + half_timeout);
            }
            pool.look_after(cx, time_passed);
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        // With the runtime the sockets have ended, too.
        if let Some(pool) = self.0.upgrade() {
            let mut state = pool.state();
            state.keeper = None;
            let idle = std::mem::take(&mut state.idle);
            drop(state);
            drop(idle);
        }
    }
}

impl Pool {
    /// Closes what is of no more use.
    fn look_after(&self, cx: &mut Context<'_>, time_passed: bool) {
        let mut state = self.state();
        if !state.keeper.as_ref().is_some_and(|keeper| keeper.will_wake(cx.waker())) {
            state.keeper = Some(cx.waker().clone());
        }
        state.now += u64::from(time_passed);
        let now = state.now;
        let closed: Vec<_> =
            state.idle.extract_if(.., |(connection, since)| *since + 2 <= now || !connection.is_alive(cx)).collect();
        drop(state);
        drop(closed);
    }
}
