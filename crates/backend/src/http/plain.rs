//! Plain HTTP/1.1 over TCP, without a proxy: one pool of connections for each worker, so that a call
//! and its connection stay on one thread.
//!
//! Must not know: what is sent.

use std::error::Error as StdError;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::client::ClientSettings;
use crate::worker::{PerWorker, workers};

pub(super) use hyper_util::client::legacy::Error;

/// A request on its way.
pub(super) type Executing = ResponseFuture;

/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(90);
/// A peer that is gone shows after a minute at the latest, on a connection that waits for it as well
/// as on one that has sent something.
const PROBE: (Duration, u32) = (Duration::from_secs(15), 3);
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// A pool hands its connections to the requests of one thread.
type Pool = Client<Connector, Full<Bytes>>;

/// See the module.
pub(super) struct PlainClient {
    settings: ClientSettings,
    pools: PerWorker<Pool>,
}

impl PlainClient {
    pub(super) fn new(settings: ClientSettings) -> Self {
        Self { settings, pools: PerWorker::default() }
    }

    /// Sends a request, on a connection of the current worker's. Should the server close the
    /// connection before any of the request is written to it, it is sent on another.
    pub(super) fn execute(&self, request: Request<Full<Bytes>>) -> Executing {
        self.pools.get(|| self.pool()).request(request)
    }

    /// The idle connections of all workers are as many as those of one would be.
    fn pool(&self) -> Pool {
        let ClientSettings { connect_timeout, most_idle } = self.settings;
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(connect_timeout));
        http.set_nodelay(true);
        http.set_keepalive(Some(PROBE.0));
        http.set_keepalive_interval(Some(PROBE.0));
        http.set_keepalive_retries(Some(PROBE.1));
        #[cfg(target_os = "linux")]
        http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(most_idle.div_ceil(workers()))
            .set_host(false)
            .build(Connector { http, patience: connect_timeout })
    }
}

/// Connects within a time that includes looking up the address.
#[derive(Clone)]
struct Connector {
    http: HttpConnector,
    patience: Duration,
}

type BoxError = Box<dyn StdError + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = timeout(self.patience, self.http.call(uri));
        Box::pin(async move {
            match connecting.await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time").into()),
            }
        })
    }
}
