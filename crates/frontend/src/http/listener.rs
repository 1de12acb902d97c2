//! Accepting connections, serving HTTP/1.1 and HTTP/2 on them within limits, and draining them.
//!
//! Must not know: what is served.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::{Activity, Expired, Watched};
use super::reply::ReplyBody;
use super::slots::{Slot, Slots};
use crate::error::FrontendError;
use crate::settings::FrontendSettings;

/// How often an endpoint's upkeep runs.
const UPKEEP: Duration = Duration::from_secs(10);
/// How long accepting rests after an error that concerns the listener.
const ACCEPT_REST: Duration = Duration::from_secs(1);
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 100;
/// The smallest head limit that the HTTP library takes.
const MIN_HEADER: usize = 8 << 10;

/// The addresses of a connection's ends, where they are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The address at which it arrived.
    pub(crate) local: Option<IpAddr>,
    /// The other end's.
    pub(crate) peer: Option<SocketAddr>,
}

/// What answers the requests of a listener.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers one request, which came `over` a connection between these ends. Dropped when its client
    /// goes.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        over: Ends,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;

    /// Called now and then.
    fn upkeep(&self) {}

    /// Called once no more connections are accepted: what would last as long as its client likes is
    /// to end.
    fn drain(&self) {}

    /// Waits for work that has outlived its connection.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Serves until `shutdown`, then lets requests finish for as long as the settings say, then
/// cancels `cut`, on which everything still there must end.
pub(crate) async fn serve<S: Serve>(
    listener: TcpListener,
    endpoint: Arc<S>,
    settings: &Arc<FrontendSettings>,
    shutdown: CancellationToken,
    cut: CancellationToken,
) -> Result<(), FrontendError> {
    let address = listener.local_addr().map_err(FrontendError::Listener)?;
    let slots = Slots::for_connections(settings);
    let connections = TaskTracker::new();
    let mut upkeep = interval(UPKEEP);
    upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tracing::debug!(%address, "listening");
    loop {
        let (stream, slot) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            _ = upkeep.tick() => {
                endpoint.upkeep();
                continue;
            }
            accepted = accept(&listener, &slots) => accepted,
        };
        let connection = Connection {
            endpoint: Arc::clone(&endpoint),
            settings: Arc::clone(settings),
            shutdown: shutdown.clone(),
            cut: cut.clone(),
        };
        connections.spawn(async move {
            connection.serve(stream).await;
            drop(slot);
        });
    }
    drop(listener);
    endpoint.drain();
    let deadline = Instant::now() + settings.drain;
    connections.close();
    let drained = timeout_at(deadline, async {
        connections.wait().await;
        endpoint.finished().await;
    });
    if drained.await.is_err() {
        tracing::warn!(connections = connections.len(), "closing connections that did not finish in time");
    }
    cut.cancel();
    connections.wait().await;
    endpoint.finished().await;
    Ok(())
}

/// The next connection, once there is room for it.
///
/// An error of one connection that ended before it was accepted concerns nobody else. Any other
/// error is about the process, most often that it has no file descriptors left: accepting again at
/// once would spin, and giving up would turn a shortage into an outage, so it rests for a moment
/// while connections close.
async fn accept(listener: &TcpListener, slots: &Slots) -> (TcpStream, Option<Slot>) {
    let slot = match slots.try_enter() {
        Some(slot) => Some(slot),
        None => {
            if slots.is_to_warn() {
                let limit = slots.limit();
                tracing::warn!(limit, "limits.connections client connections are open; further ones wait");
            }
            slots.enter().await
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) if concerns_one_connection(&error) => {
                tracing::debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                sleep(ACCEPT_REST).await;
            }
        }
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

struct Connection<S> {
    endpoint: Arc<S>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
    cut: CancellationToken,
}

impl<S: Serve> Connection<S> {
    /// Serves one connection until either side is done with it.
    async fn serve(self, stream: TcpStream) {
        // Answers are small and complete; waiting to fill a segment only delays them.
        let _ = stream.set_nodelay(true);
        let (peer, local) = (stream.peer_addr().ok(), stream.local_addr().ok().map(|address| address.ip()));
        let over = Ends { local, peer };
        let activity = Activity::new(self.settings.header_timeout, self.settings.idle_connection);
        let service = service_fn(|request: Request<Incoming>| {
            let busy = activity.begin(request.version() == Version::HTTP_2);
            // Boxed, since the connection keeps the place of this future for as long as it lasts: that
            // of a stream would else hold all that its request once needed.
            let answer = Box::pin(Arc::clone(&self.endpoint).answer(request, over));
            async move {
                let mut response = answer.await;
                response.body_mut().hold(busy);
                Ok::<_, Infallible>(response)
            }
        });
        let builder = builder(&self.settings);
        let io = TokioIo::new(Watched::new(stream, Arc::clone(&activity)));
        let mut connection = pin!(builder.serve_connection(io, service));
        // A set of one: it is looked at only once it has been woken, and not each time the connection is.
        let mut turns = FuturesUnordered::from_iter([self.turn(&activity, false, Duration::ZERO)]);
        let (mut closing, mut draining) = (false, false);
        loop {
            let turn = tokio::select! {
                biased;
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error = %error, "a client connection broke");
                    }
                    return;
                }
                Some(turn) = turns.next() => turn,
            };
            match turn {
                Turn::Drain => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                Turn::Expired(Expired::Idle) if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                Turn::Expired(Expired::Stuck) => {
                    tracing::debug!("closing a client connection that makes no progress");
                    return;
                }
                Turn::Expired(Expired::Idle) | Turn::Cut => return,
            }
            // A connection that has part of a head does not close by itself.
            let grace = if closing { self.settings.header_timeout } else { Duration::ZERO };
            turns.push(self.turn(&activity, draining, grace));
        }
    }

    /// What happens to the connection next from outside; its times count once `grace` is over.
    async fn turn(&self, activity: &Activity, draining: bool, grace: Duration) -> Turn {
        tokio::select! {
            biased;
            () = self.cut.cancelled() => Turn::Cut,
            () = self.shutdown.cancelled(), if !draining => Turn::Drain,
            why = activity.expired(grace) => Turn::Expired(why),
        }
    }
}

/// What happens to a connection from outside.
enum Turn {
    /// It ends, whatever it carries.
    Cut,
    /// It ends with the requests that it carries.
    Drain,
    /// It has been idle or stuck for too long.
    Expired(Expired),
}

fn builder(settings: &FrontendSettings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Counted by `Activity`, which tells a slow head from an idle connection.
        .header_read_timeout(None)
        .max_buf_size(settings.max_header.max(MIN_HEADER));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(settings.max_header).unwrap_or(u32::MAX));
    builder
}
