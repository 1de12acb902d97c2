//! One connection of a client: which HTTP it speaks, its requests, and what ends it.
//!
//! Must not know: what is served, or how connections come in.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Expired, Watched};
use super::listener::{Ends, Serve};
use crate::settings::FrontendSettings;

/// What a client sends first that knows the server to speak HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 100;
/// The smallest head limit that the HTTP library takes.
const MIN_HEADER: usize = 8 << 10;

/// See the module.
pub(super) struct Connection<S> {
    pub(super) endpoint: Arc<S>,
    pub(super) settings: Arc<FrontendSettings>,
    /// The connection ends with the requests that it carries.
    pub(super) shutdown: CancellationToken,
    /// The connection ends at once.
    pub(super) cut: CancellationToken,
}

impl<S: Serve> Connection<S> {
    /// Serves one connection until either side is done with it.
    pub(super) async fn serve(self, stream: TcpStream) {
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
        let mut stream = Watched::new(stream, Arc::clone(&activity));
        let is_http2 = tokio::select! {
            biased;
            // Nothing has been asked yet that would have to be finished.
            _ = self.turn(&activity, false, Duration::ZERO) => return,
            is_http2 = stream.begins_with(PREFACE) => is_http2,
        };
        let Ok(is_http2) = is_http2 else { return };
        let stream = TokioIo::new(stream);
        if is_http2 {
            // The rarer kind, and the larger.
            Box::pin(self.drive(http2(&self.settings).serve_connection(stream, service), &activity)).await;
        } else {
            self.drive(http1(&self.settings).serve_connection(stream, service), &activity).await;
        }
    }

    /// Drives a connection to its end.
    async fn drive(&self, connection: impl GracefulConnection<Error = hyper::Error>, activity: &Activity) {
        let mut connection = pin!(connection);
        // A set of one: it is looked at only once it has been woken, and not each time the connection is.
        let mut turns = FuturesUnordered::from_iter([Box::pin(self.turn(activity, false, Duration::ZERO))]);
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
            turns.push(Box::pin(self.turn(activity, draining, grace)));
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

fn http1(settings: &FrontendSettings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // Counted by `Activity`, which tells a slow head from an idle connection.
        .header_read_timeout(None)
        .max_buf_size(settings.max_header.max(MIN_HEADER));
    builder
}

fn http2(settings: &FrontendSettings) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(settings.max_header).unwrap_or(u32::MAX));
    builder
}
