//! A client for one HTTP/1.1 server, without TLS and without a proxy. Each worker thread has a pool
//! of connections.
//!
//! hyper expects a connection to be a separate task. Each request would then wake that task, and
//! its response would wake the request's task. Here the future that waits for a response drives the
//! connection (`connection`), and the pool's reaper drives idle connections (`pool`). This saves
//! two task switches per call.
//!
//! The rest of a long body is read from the socket without hyper, which saves a copy (`body`). A
//! long event stream is read without hyper from its first byte, so that it keeps no buffers
//! (`connection`, `socket_body`).
//!
//! The invariant that `fuzz/fuzz_targets/http_pool.rs` tries to break: **a response never contains
//! a byte that the server sent for another request.** It follows from these rules, each stated
//! where the code relies on it:
//!
//! 1. A connection has one owner: a request, a response body, or the idle list.
//! 2. It becomes idle only when hyper or the direct reader has read exactly the announced response.
//! 3. It is polled before anything is written to it, so that bytes that arrived while it was idle
//!    close it. Bytes are withheld from hyper only after the first byte of the request.

mod body;
mod body_buffer;
mod connection;
mod pool;
mod shared_waker;
mod socket_body;

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use tokio::sync::oneshot;

pub use body::ResponseBody;
use body::{CheckedOut, announced_idle};
pub use body_buffer::BodyBuffer;
use connection::PooledConnection;
pub use pool::{ConnectError, is_out_of_files, shortages, tcp_connector, wait_for_file};
use pool::{Connector, Pool};

/// The client of one server.
pub struct PooledClient {
    settings: PoolSettings,
    origin: Uri,
    /// The pool of each worker. A connection stays with the worker that made it, so a request and
    /// its connection are on one thread, and no pool is contended.
    pools: PerWorker<Arc<Pool>>,
}

/// The limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// The time limit for connecting, including the address lookup.
    pub connect_timeout: Duration,
    /// An unused connection is closed after at most this time, and after at least half of it.
    pub idle_timeout: Duration,
    /// The maximum number of idle connections in all workers' pools together.
    pub max_idle: usize,
    /// Limits for noticing that a peer has vanished.
    pub probes: TcpProbes,
}

/// Limits for noticing that a connection's peer has vanished.
#[derive(Clone, Copy, Debug)]
pub struct TcpProbes {
    /// The interval of TCP keep-alive probes on a silent connection; three may fail.
    pub interval: Duration,
    /// How long sent bytes may stay unacknowledged; Linux only.
    pub unacknowledged: Duration,
}

/// Resolves to the head of a response. Dropping it earlier closes the connection, which tells the
/// server.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture {
    pool: Arc<Pool>,
    state: State,
    has_yielded: bool,
    /// Whether the response may be a long event stream.
    may_last: bool,
}

enum State {
    Unsent(Box<Request<Full<Bytes>>>),
    /// There was no idle connection.
    Waiting(Box<Request<Full<Bytes>>>, oneshot::Receiver<Supply>),
    Sent(Box<PooledConnection>),
    Done,
}

/// The outcome of waiting for a connection.
type Supply = Result<Box<PooledConnection>, ConnectError>;

/// The error of a request without a complete response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There was no connection for the request, so certainly nothing was sent.
    #[error("cannot connect")]
    Connect(#[source] ConnectError),
    /// The connection broke before anything of the request was written.
    #[error("the connection failed")]
    Unsent(#[source] hyper::Error),
    /// The connection broke before the end of the response.
    #[error("the connection failed")]
    Connection(#[source] hyper::Error),
    /// The connection broke while the body was read without hyper.
    #[error("the connection failed")]
    Socket(#[source] io::Error),
}

impl PooledClient {
    /// Creates a client for the server of `origin`, which may be any URI of that server.
    pub fn new(origin: Uri, settings: PoolSettings) -> Self {
        Self {
            settings,
            origin,
            pools: PerWorker::default(),
        }
    }

    /// Sends a request on a connection of the current worker. Its URI must be its path, and it
    /// needs a `Host` header. If the server closed an idle connection before anything of the
    /// request was written, the request goes to another connection. It is never sent twice.
    pub fn execute(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        self.begin(request, false)
    }

    /// Like [`PooledClient::execute`], for a request whose response may be a long event stream with
    /// little traffic. It uses less memory while it waits, and more processor time.
    pub fn execute_lasting(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        self.begin(request, true)
    }

    fn begin(&self, request: Request<Full<Bytes>>, may_last: bool) -> ResponseFuture {
        let pool = Arc::clone(self.pools.get(|| self.new_pool()));
        let state = match pool.take() {
            Some(mut connection) => {
                connection.send(request, may_last);
                State::Sent(connection)
            }
            None => State::Unsent(Box::new(request)),
        };
        ResponseFuture {
            pool,
            state,
            has_yielded: false,
            may_last,
        }
    }

    /// Closes all idle connections, so that the next requests use new ones. To be called when a
    /// connection turned out to be dead: the server's host may have vanished silently, and the
    /// other connections with it.
    pub fn close_idle(&self) {
        self.pools.all().for_each(|pool| pool.close_idle());
    }

    fn new_pool(&self) -> Arc<Pool> {
        let PoolSettings {
            idle_timeout,
            max_idle,
            ..
        } = self.settings;
        let connector = Connector::new(self.origin.clone(), &self.settings);
        Pool::new(connector, idle_timeout, max_idle.div_ceil(workers()))
    }
}

impl ResponseFuture {
    /// Whether part of the request may have been written.
    pub fn may_be_sent(&self) -> bool {
        matches!(self.state, State::Sent(_) | State::Done)
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Requests that are ready together are written one after the other, so that a server on
        // another processor wakes once for all of them.
        if !std::mem::replace(&mut self.has_yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Self {
            pool,
            state,
            may_last,
            ..
        } = &mut *self;
        loop {
            *state = match std::mem::replace(state, State::Done) {
                State::Unsent(request) => match pool.take() {
                    Some(mut connection) => {
                        connection.send(*request, *may_last);
                        State::Sent(connection)
                    }
                    None => State::Waiting(request, pool.wait()),
                },
                State::Waiting(request, mut supply) => match Pin::new(&mut supply).poll(cx) {
                    Poll::Pending => {
                        *state = State::Waiting(request, supply);
                        return Poll::Pending;
                    }
                    Poll::Ready(supplied) => {
                        let supplied = supplied.unwrap_or(Err(ConnectError::Stopped));
                        let mut connection = supplied.map_err(Error::Connect)?;
                        connection.send(*request, *may_last);
                        State::Sent(connection)
                    }
                },
                State::Sent(mut connection) => match connection.poll_response(cx) {
                    Poll::Pending => {
                        *state = State::Sent(connection);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(response)) => {
                        let connection = CheckedOut {
                            pool: Arc::clone(pool),
                            connection: Some(connection),
                            idle: announced_idle(response.headers()),
                        };
                        return Poll::Ready(Ok(ResponseBody::attach(response, connection)));
                    }
                    // The error contains the request only if nothing of it was written.
                    Poll::Ready(Err(mut error)) => match error.take_message() {
                        Some(request) if connection.was_idle => State::Unsent(Box::new(request)),
                        Some(_) => return Poll::Ready(Err(Error::Unsent(error.into_error()))),
                        None => return Poll::Ready(Err(Error::Connection(error.into_error()))),
                    },
                },
                State::Done => return Poll::Pending,
            };
        }
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        // A newly supplied connection can serve another request.
        if let State::Waiting(_, supply) = &mut self.state {
            supply.close();
            if let Ok(Ok(connection)) = supply.try_recv() {
                self.pool.give(connection, None);
            }
        }
    }
}

/// The number of workers with their own values; further ones share them.
const MAX_WORKERS: usize = 64;

thread_local! {
    /// `None` on a thread that is not a worker.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

static WORKERS: AtomicUsize = AtomicUsize::new(1);

/// Makes the current thread worker `number`, from 0, of `workers`. To be called at the start of the
/// thread. Must not be called on a runtime that moves tasks between threads.
pub fn enter_worker(number: usize, workers: usize) {
    WORKERS.store(workers.max(1), Ordering::Relaxed);
    NUMBER.set(Some(number % MAX_WORKERS));
}

/// The number of workers; 1 if none has entered.
fn workers() -> usize {
    WORKERS.load(Ordering::Relaxed)
}

/// One value for each worker, made at its first use. Threads that are not workers share one.
pub struct PerWorker<T> {
    of_workers: Box<[OnceLock<Box<T>>]>,
    of_others: OnceLock<Box<T>>,
}

impl<T> Default for PerWorker<T> {
    fn default() -> Self {
        Self {
            of_workers: (0..MAX_WORKERS).map(|_| OnceLock::new()).collect(),
            of_others: OnceLock::new(),
        }
    }
}

impl<T> PerWorker<T> {
    /// All values made so far.
    fn all(&self) -> impl Iterator<Item = &T> {
        self.of_workers
            .iter()
            .chain([&self.of_others])
            .filter_map(|own| own.get().map(Box::as_ref))
    }

    /// The value of the current thread.
    pub fn get(&self, make: impl FnOnce() -> T) -> &T {
        let own = NUMBER
            .get()
            .and_then(|number| self.of_workers.get(number))
            .unwrap_or(&self.of_others);
        own.get_or_init(|| Box::new(make()))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_worker_has_a_value_and_all_other_threads_share_one() {
        let made = AtomicUsize::new(0);
        let values = PerWorker::default();
        let get = |number: Option<usize>| {
            let in_thread = || {
                if let Some(number) = number {
                    enter_worker(number, 1);
                }
                *values.get(|| made.fetch_add(1, Ordering::Relaxed))
            };
            thread::scope(|scope| scope.spawn(in_thread).join().unwrap())
        };
        assert_eq!(
            [
                get(Some(1)),
                get(None),
                get(Some(0)),
                get(Some(1)),
                get(None),
                get(Some(MAX_WORKERS))
            ],
            [0, 1, 2, 0, 1, 2]
        );
    }
}
