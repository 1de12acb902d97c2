//! The idle connections of one worker to one server, and the requests that wait for a connection.
//!
//! The most recently used connection is used first. A task, the reaper, closes connections that the
//! server has closed, and connections that were unused for long. While something waits for a file,
//! it closes all idle ones.

use std::collections::VecDeque;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tower_service::Service as _;

use super::connection::PooledConnection;
use super::{PoolSettings, Supply};

/// The number of idle connections that are kept for the whole idle timeout. Each takes some 25 KiB,
/// so surplus ones are closed soon after a burst of requests. A constant: the next burst opens them
/// again.
const KEPT: usize = 16;
/// The interval of closing surplus connections that were unused since the last time. A constant:
/// the next burst opens them again.
const SURPLUS_INTERVAL: Duration = Duration::from_secs(5);

/// The pool of one worker.
pub(crate) struct Pool {
    connector: Connector,
    /// An unused connection is closed after at most this time, and after at least half of it.
    idle_timeout: Duration,
    max_idle: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// For each, [`PooledConnection::watch_idle`] was called with the reaper's waker, or the reaper has
    /// polled it since.
    idle: Vec<Idle>,
    /// The number of connections at the beginning of `idle` that were unused since surplus ones
    /// were last closed.
    unused: usize,
    /// The number of the current period, which is half of the idle timeout.
    period: u64,
    /// Requests without a connection, in order of arrival.
    waiting: VecDeque<oneshot::Sender<Supply>>,
    /// The number of connections being made. They go to waiting requests in order, whichever
    /// request started them.
    connecting: usize,
    /// Wakes the reaper; `None` if there is no reaper. Only the reaper replaces it, under this
    /// lock, and then polls all idle connections with the new waker.
    reaper: Option<Waker>,
}

/// An idle connection.
struct Idle {
    connection: Box<PooledConnection>,
    /// The period in which it became idle, so that no request reads the clock.
    since: u64,
    /// The last time at which it can be used, if the server has announced that it will close it.
    until: Option<Instant>,
}

/// A connection being made.
struct Attempt(Arc<Pool>);

/// The reaper. It ends with the pool or with its runtime.
struct Reaper(Weak<Pool>);

impl Pool {
    pub(crate) fn new(connector: Connector, idle_timeout: Duration, max_idle: usize) -> Arc<Self> {
        Arc::new(Self {
            connector,
            idle_timeout,
            max_idle,
            state: Mutex::default(),
        })
    }

    /// Takes an idle connection.
    pub(crate) fn take(&self) -> Option<Box<PooledConnection>> {
        loop {
            let mut state = self.state.lock();
            let idle = state.idle.pop()?;
            state.unused = state.unused.min(state.idle.len());
            // An expired one is closed without the lock.
            drop(state);
            if idle.until.is_none_or(|until| Instant::now() < until) {
                return Some(idle.connection);
            }
        }
    }

    /// Whether to keep a connection that has served a stream: only if few are idle. Many streams
    /// may end at the same time.
    pub(crate) fn has_few_idle(&self) -> bool {
        self.state.lock().idle.len() < KEPT.min(self.max_idle)
    }

    /// Takes back a reusable connection, which can be idle for at most this long.
    pub(crate) fn give(&self, connection: Box<PooledConnection>, idle: Option<Duration>) {
        let until = idle.map(|idle| Instant::now() + idle);
        let surplus = self.state.lock().put(connection, until, self.max_idle);
        // Closed without the lock.
        drop(surplus);
    }

    /// Closes all idle connections.
    pub(crate) fn close_idle(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        // Closed without the lock.
        drop(idle);
    }

    /// Waits for the first connection that is given back or made. Needs a tokio runtime.
    pub(crate) fn wait(self: &Arc<Self>) -> oneshot::Receiver<Supply> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.is_closed());
        state.waiting.push_back(sender);
        if state.connecting < state.waiting.len() {
            state.connecting += 1;
            drop(state);
            tokio::spawn(Attempt(Arc::clone(self)).make());
        }
        receiver
    }

    /// Whether a request waits for a connection.
    fn is_awaited(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.is_closed());
        !state.waiting.is_empty()
    }

    /// Starts the reaper if there is none. Needs a tokio runtime.
    fn start_reaper(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.reaper.is_none() {
            // The reaper's first poll stores its waker here, and polls the connections that have
            // come until then.
            state.reaper = Some(Waker::noop().clone());
            drop(state);
            tokio::spawn(Reaper(Arc::downgrade(self)).run(self.idle_timeout / 2));
        }
    }

    /// Closes idle connections that have ended or expired. `cx` is the reaper's.
    fn reap(&self, cx: &mut Context<'_>, period_passed: bool) {
        let mut state = self.state.lock();
        if !state
            .reaper
            .as_ref()
            .is_some_and(|reaper| reaper.will_wake(cx.waker()))
        {
            state.reaper = Some(cx.waker().clone());
        }
        state.period += u64::from(period_passed);
        let period = state.period;
        let is_useless =
            |idle: &mut Idle| idle.since + 2 <= period || !idle.connection.poll_is_open(cx);
        let closed: Vec<_> = state.idle.extract_if(.., is_useless).collect();
        state.unused = state.unused.min(state.idle.len());
        drop(state);
        drop(closed);
    }

    /// Whether there are surplus idle connections, which are not kept for long.
    fn has_surplus(&self) -> bool {
        self.state.lock().idle.len() > KEPT
    }

    /// Closes idle connections that were unused lately, except for a few.
    fn close_surplus(&self) {
        let mut state = self.state.lock();
        let surplus = state.unused.saturating_sub(KEPT);
        let closed: Vec<_> = state.idle.drain(..surplus).collect();
        state.unused = state.idle.len();
        state.idle.shrink_to(2 * KEPT);
        drop(state);
        drop(closed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(reaper) = self.state.lock().reaper.take() {
            reaper.wake();
        }
    }
}

impl State {
    /// Hands a connection to a waiting request, or keeps it as idle; returns it if there are too
    /// many.
    fn put(
        &mut self,
        mut connection: Box<PooledConnection>,
        until: Option<Instant>,
        max_idle: usize,
    ) -> Option<Box<PooledConnection>> {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(Ok(connection)) {
                Err(Ok(unwanted)) => connection = unwanted,
                _ => return None,
            }
        }
        let Some(reaper) = self.reaper.as_ref().filter(|_| self.idle.len() < max_idle) else {
            return Some(connection);
        };
        if connection.watch_idle(reaper) {
            reaper.wake_by_ref();
        }
        self.idle.push(Idle {
            connection,
            since: self.period,
            until,
        });
        if self.idle.len() == KEPT + 1 {
            reaper.wake_by_ref();
        }
        None
    }

    /// Fails the request that has waited longest.
    fn fail(&mut self, mut error: ConnectError) {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(Err(error)) {
                Err(Err(undelivered)) => error = undelivered,
                _ => return,
            }
        }
    }
}

impl Attempt {
    async fn make(self) {
        loop {
            match self.0.connector.clone().connect().await {
                Ok(connection) => {
                    self.0.start_reaper();
                    return self.0.give(connection, None);
                }
                // Other connections will be closed or given back. The requests limit their own
                // time.
                Err(error) if error.is_out_of_files() => {
                    if !self.0.is_awaited() {
                        return;
                    }
                    wait_for_file().await;
                }
                Err(error) => return self.0.state.lock().fail(error),
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.connecting -= 1;
        // The runtime has ended, so these requests will get no connection.
        if state.connecting < state.waiting.len() {
            state.fail(ConnectError::Stopped);
        }
    }
}

impl Reaper {
    /// Runs until the pool has gone.
    async fn run(self, period: Duration) {
        let mut shortages = shortages();
        tokio::select! {
            () = self.reap(period) => {}
            // Something else waits for files, which idle connections use.
            () = async {
                while shortages.changed().await.is_ok() {
                    self.0.upgrade().iter().for_each(|pool| pool.close_idle());
                }
                std::future::pending::<()>().await;
            } => {}
        }
    }

    async fn reap(&self, period: Duration) {
        let mut timer = pin!(sleep(period));
        // Set while there is a surplus.
        let mut surplus_timer = pin!(None);
        poll_fn(|cx| {
            let Some(pool) = self.0.upgrade() else {
                return Poll::Ready(());
            };
            let mut period_passed = false;
            while timer.as_mut().poll(cx).is_ready() {
                period_passed = true;
                timer.as_mut().reset(Instant::now() + period);
            }
            pool.reap(cx, period_passed);
            while pool.has_surplus() {
                if surplus_timer.is_none() {
                    surplus_timer.set(Some(sleep(SURPLUS_INTERVAL)));
                }
                let Some(timer) = surplus_timer.as_mut().as_pin_mut() else {
                    break;
                };
                if timer.poll(cx).is_pending() {
                    break;
                }
                surplus_timer.set(None);
                pool.close_surplus();
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // The runtime's sockets have ended with it.
        if let Some(pool) = self.0.upgrade() {
            let mut state = pool.state.lock();
            state.reaper = None;
            let idle = std::mem::take(&mut state.idle);
            drop(state);
            drop(idle);
        }
    }
}

/// Counts the attempts that failed for lack of a file. One counter per process, as for the limit of
/// files.
static SHORTAGES: LazyLock<watch::Sender<u64>> = LazyLock::new(watch::Sender::default);

/// Announces that something waits for a file, and waits a moment for one to become free.
pub async fn wait_for_file() {
    SHORTAGES.send_modify(|count| *count += 1);
    // A constant: the timeouts of calls and of connecting limit the whole wait.
    sleep(Duration::from_millis(50)).await;
}

/// Observes shortages; the value changes with each.
pub fn shortages() -> watch::Receiver<u64> {
    SHORTAGES.subscribe()
}

/// The number of probes that may fail before a connection is closed.
const PROBES: u32 = 3;

/// Makes connections within a time limit that includes the address lookup.
#[derive(Clone)]
pub(crate) struct Connector {
    http: HttpConnector,
    origin: Uri,
    timeout: Duration,
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address was not found, or the server refused.
    #[error("{0}")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
    /// The time limit was exceeded.
    #[error("no connection in time")]
    Timeout,
    /// The runtime ended before the connection was made.
    #[error("the runtime has ended")]
    Stopped,
}

impl ConnectError {
    /// Whether the process or the system has no free files. Others will be closed in time.
    pub(crate) fn is_out_of_files(&self) -> bool {
        match self {
            Self::Refused(error) => is_out_of_files(&**error),
            Self::Timeout | Self::Stopped => false,
        }
    }
}

/// Whether the cause of an error is that the process or the system has no free files.
pub fn is_out_of_files(error: &(dyn Error + 'static)) -> bool {
    /// `ENFILE` and `EMFILE`, equal on all Unix systems.
    const OUT_OF_FILES: [i32; 2] = [23, 24];
    let mut cause = Some(error);
    while let Some(error) = cause {
        let code = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        if code.is_some_and(|code| OUT_OF_FILES.contains(&code)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Makes TCP connections for a server, within the time for connecting and with the probes of
/// `settings`.
pub fn tcp_connector(settings: &PoolSettings) -> HttpConnector {
    let probes = settings.probes;
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(settings.connect_timeout));
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(probes.interval));
    tcp.set_keepalive_interval(Some(probes.interval));
    tcp.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(probes.unacknowledged));
    tcp
}

impl Connector {
    pub(crate) fn new(origin: Uri, settings: &PoolSettings) -> Self {
        Self {
            http: tcp_connector(settings),
            origin,
            timeout: settings.connect_timeout,
        }
    }

    pub(crate) async fn connect(mut self) -> Result<Box<PooledConnection>, ConnectError> {
        let connecting = async {
            let refused = |error| ConnectError::Refused(Box::new(error));
            poll_fn(|cx| self.http.poll_ready(cx))
                .await
                .map_err(refused)?;
            let io = self.http.call(self.origin).await.map_err(refused)?;
            PooledConnection::connect(io.into_inner(), false)
                .await
                .map_err(|error| ConnectError::Refused(error.into()))
        };
        timeout(self.timeout, connecting)
            .await
            .unwrap_or(Err(ConnectError::Timeout))
    }
}
