//! Plain HTTP/1.1 over TCP, without a proxy: one pool of connections for each worker, so that a call
//! and its connection stay on one thread. No task stands between the two: whoever waits for a response
//! drives the connection it comes on ([`Connection`]).
//!
//! Must not know: what is sent.

mod body;
mod connection;
mod connector;
mod pool;
mod signal;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use tokio::sync::oneshot;

use super::client::ClientSettings;
use crate::worker::{PerWorker, workers};
pub(super) use body::Body;
use body::Held;
use connection::Connection;
use connector::{Connector, Unconnected};
use pool::Pool;

/// See the module.
pub(super) struct PlainClient {
    settings: ClientSettings,
    origin: Uri,
    pools: PerWorker<Arc<Pool>>,
}

/// A request on its way; resolves to the head of its response.
pub(super) struct Executing {
    pool: Arc<Pool>,
    progress: Progress,
    /// Whether other tasks have had their turn since it was made.
    yielded: bool,
}

enum Progress {
    Unsent(Box<Request<Full<Bytes>>>),
    /// There was no idle connection.
    Waiting(Box<Request<Full<Bytes>>>, oneshot::Receiver<Supply>),
    Sent(Box<Connection>),
    Done,
}

/// What comes of waiting for a connection.
type Supply = Result<Box<Connection>, Unconnected>;

/// Why there is no response, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// There was no connection to send it on.
    #[error("cannot connect")]
    Connect(#[source] Unconnected),
    /// A connection broke, before the response or in the middle of it.
    #[error("the connection failed")]
    Connection(#[source] hyper::Error),
    /// The same while the body was read directly.
    #[error("the connection failed")]
    Socket(#[source] io::Error),
}

impl PlainClient {
    /// `origin` is any URI of the server that it is for.
    pub(super) fn new(origin: Uri, settings: ClientSettings) -> Self {
        Self { settings, origin, pools: PerWorker::default() }
    }

    /// Sends a request, on a connection of the current worker's. Should the server close a connection
    /// that was idle before any of the request is written to it, it is sent on another.
    pub(super) fn execute(&self, request: Request<Full<Bytes>>) -> Executing {
        let pool = Arc::clone(self.pools.get(|| self.pool()));
        let progress = match pool.take() {
            Some(mut connection) => {
                connection.send(request);
                Progress::Sent(connection)
            }
            None => Progress::Unsent(Box::new(request)),
        };
        Executing { pool, progress, yielded: false }
    }

    /// The idle connections of all workers are as many as those of one would be.
    fn pool(&self) -> Arc<Pool> {
        let ClientSettings { connect_timeout, idle_timeout, most_idle } = self.settings;
        let connector = Connector::new(self.origin.clone(), connect_timeout);
        Pool::new(connector, idle_timeout, most_idle.div_ceil(workers()))
    }
}

impl Future for Executing {
    type Output = Result<Response<Body>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Requests that are ready at the same time are written one after the other, so that a server on
        // another processor is woken once for all of them.
        if !std::mem::replace(&mut self.yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            let this = &mut *self;
            this.progress = match &mut this.progress {
                Progress::Sent(connection) => match ready!(connection.poll_response(cx)) {
                    Ok(response) => {
                        let (version, held) = (response.version(), this.held());
                        return Poll::Ready(Ok(response.map(|incoming| Body::new(incoming, version, held))));
                    }
                    Err(mut error) => match error.take_message().filter(|_| connection.was_used()) {
                        // Nothing of it was written.
                        Some(request) => Progress::Unsent(Box::new(request)),
                        None => return Poll::Ready(Err(Error::Connection(error.into_error()))),
                    },
                },
                Progress::Unsent(_) => this.look_for_connection(),
                Progress::Waiting(_, supply) => {
                    let supply = ready!(Pin::new(supply).poll(cx)).unwrap_or(Err(Unconnected::Stopped));
                    this.supplied(supply.map_err(Error::Connect)?)
                }
                Progress::Done => return Poll::Pending,
            };
        }
    }
}

impl Executing {
    fn look_for_connection(&mut self) -> Progress {
        match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Unsent(request) => match self.pool.take() {
                Some(mut connection) => {
                    connection.send(*request);
                    Progress::Sent(connection)
                }
                None => Progress::Waiting(request, self.pool.wait()),
            },
            other => other,
        }
    }

    fn supplied(&mut self, mut connection: Box<Connection>) -> Progress {
        match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Waiting(request, _) => {
                connection.send(*request);
                Progress::Sent(connection)
            }
            other => other,
        }
    }

    /// The connection that the response has come on.
    fn held(&mut self) -> Held {
        let connection = match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Sent(connection) => Some(connection),
            _ => None,
        };
        Held { pool: Arc::clone(&self.pool), connection }
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        // A connection that has just been supplied serves another request.
        if let Progress::Waiting(_, supply) = &mut self.progress {
            supply.close();
            if let Ok(Ok(connection)) = supply.try_recv() {
                self.pool.give(connection);
            }
        }
    }
}
