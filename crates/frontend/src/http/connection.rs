//! One connection of a client: which HTTP it speaks, its requests, and what ends it.
//!
//! Must not know: what is served, or how connections come in.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_socket::Socket;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Expired, Watched};
use super::library::{Desk, Library};
use super::listener::{Link, Serve};
use super::listening::Listening;
use super::reply::ReplyBody;
use super::timer::Timer;
use crate::settings::FrontendSettings;
use crate::woken::Woken;

/// What a client sends first that knows the server to speak HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
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
        let over = Arc::new(Link { local, peer, timer: Timer::default() });
        let activity = Activity::new(self.settings.header_timeout, self.settings.idle_connection);
        let mut stream = Watched::new(Socket::new(stream), Arc::clone(&activity));
        let is_http2 = tokio::select! {
            biased;
            // Nothing has been asked yet that would have to be finished.
            _ = self.turn(&activity, false, Duration::ZERO) => return,
            is_http2 = stream.begins_with(PREFACE) => is_http2,
        };
        match is_http2 {
            // The rarer kind, and the larger.
            Ok(true) => Box::pin(self.serve_http2(stream, &over, &activity)).await,
            Ok(false) => self.serve_http1(stream, &over, &activity).await,
            Err(_) => {}
        }
    }

    async fn serve_http1(&self, mut stream: Watched<Socket>, over: &Arc<Link>, activity: &Arc<Activity>) {
        let mut ending = Ending::default();
        // In a box: who only listens needs no room for the library.
        while let Some((between, response)) = Box::pin(self.by_library(stream, over, activity, &mut ending)).await {
            match self.listening(between, response, activity, &mut ending).await {
                Some(after) => stream = after,
                None => return,
            }
        }
    }

    /// Serves a connection by the HTTP library; returns it with a response that is to be sent without.
    async fn by_library(
        &self,
        stream: Watched<Socket>,
        over: &Arc<Link>,
        activity: &Arc<Activity>,
        ending: &mut Ending,
    ) -> Option<(Watched<Socket>, Box<Response<ReplyBody>>)> {
        let desk = Desk::default();
        let service = service_fn(|request| desk.ask(request));
        let mut connection = http1(&self.settings).serve_connection(TokioIo::new(stream), service);
        let answer = |request| Arc::clone(&self.endpoint).answer(request, Arc::clone(over));
        let mut library = Library::new(Pin::new(&mut connection), &desk, answer, activity);
        if !self.drive(&mut library, activity, ending).await {
            return None;
        }
        let response = library.into_apart()?;
        let parts = connection.into_parts();
        let mut stream = parts.io.into_inner();
        stream.unread(&parts.read_buf);
        Some((stream, response))
    }

    /// Sends a response without the HTTP library; returns the connection if that is to go on.
    async fn listening(
        &self,
        stream: Watched<Socket>,
        response: Box<Response<ReplyBody>>,
        activity: &Activity,
        ending: &mut Ending,
    ) -> Option<Watched<Socket>> {
        let mut listening = Listening::new(stream, *response);
        if !self.drive(&mut listening, activity, ending).await {
            return None;
        }
        let mut stream = listening.into_stream();
        if ending.is_due() {
            // There is nobody to tell of an error.
            let _ = stream.shutdown().await;
            return None;
        }
        Some(stream)
    }

    async fn serve_http2(&self, stream: Watched<Socket>, over: &Arc<Link>, activity: &Arc<Activity>) {
        let service = service_fn(|request| {
            let answer = self.answer(request, over, activity);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let connection = pin!(http2(&self.settings).serve_connection(TokioIo::new(stream), service));
        self.drive(&mut Multiplexed(connection), activity, &mut Ending::default()).await;
    }

    /// Answers one of several requests.
    fn answer(
        &self,
        request: Request<Incoming>,
        over: &Arc<Link>,
        activity: &Arc<Activity>,
    ) -> impl Future<Output = Response<ReplyBody>> + use<S> {
        let busy = activity.begin(true);
        // Boxed, since the connection keeps the place of this future for as long as it lasts: that
        // of a stream would else hold all that its request once needed.
        let answer = Box::pin(Arc::clone(&self.endpoint).answer(request, Arc::clone(over)));
        async move {
            let mut response = answer.await;
            after_others().await;
            response.body_mut().hold(busy);
            response
        }
    }

    /// Drives a connection until `driven` is done with it; says whether it is as it should be then.
    async fn drive(&self, driven: &mut impl Driven, activity: &Activity, ending: &mut Ending) -> bool {
        let mut next = Box::pin(self.turn(activity, ending.draining, Duration::ZERO));
        // It is looked at only once it has been woken, and not each time the connection is.
        let woken = Woken::new();
        loop {
            let turn = tokio::select! {
                biased;
                result = poll_fn(|cx| driven.poll_driven(cx)) => {
                    if let Err(error) = &result {
                        tracing::debug!(error = %error, "a client connection broke");
                    }
                    return result.is_ok();
                }
                turn = poll_fn(|cx| woken.poll(cx, |cx| next.as_mut().poll(cx))) => turn,
            };
            match turn {
                Turn::Drain => {
                    ending.draining = true;
                    driven.finish();
                }
                Turn::Expired(Expired::Idle) if !ending.closing => {
                    ending.closing = true;
                    driven.finish();
                }
                Turn::Expired(Expired::Stuck) => {
                    tracing::debug!("closing a client connection that makes no progress");
                    return false;
                }
                Turn::Expired(Expired::Idle) | Turn::Cut => return false,
            }
            // A connection that has part of a head does not close by itself.
            let grace = if ending.closing { self.settings.header_timeout } else { Duration::ZERO };
            next.set(self.turn(activity, ending.draining, grace));
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

/// What has a connection for a while.
pub(super) trait Driven {
    /// Resolves once it has done all it is to do with the connection.
    fn poll_driven(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>>;

    /// No request is to be taken after the one that is under way.
    fn finish(&mut self);
}

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The HTTP library for HTTP/2, until the connection is over.
struct Multiplexed<'a, C>(Pin<&'a mut C>);

impl<C: GracefulConnection<Error = hyper::Error>> Driven for Multiplexed<'_, C> {
    fn poll_driven(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.as_mut().poll(cx).map_err(Into::into)
    }

    fn finish(&mut self) {
        self.0.as_mut().graceful_shutdown();
    }
}

impl Driven for Listening {
    fn poll_driven(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.poll_sent(cx).map_err(Into::into)
    }

    fn finish(&mut self) {}
}

/// How a connection is about to end.
#[derive(Debug, Default)]
struct Ending {
    /// With the requests that it carries, since everything ends.
    draining: bool,
    /// Since it was idle for too long.
    closing: bool,
}

impl Ending {
    fn is_due(&self) -> bool {
        self.draining || self.closing
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

/// Lets the tasks that are ready have their turn first. Responses that are there at the same time are then
/// written one after the other: clients on other processors are woken once for several, and the code
/// that writes is still in the cache. Costs one more poll, and no look at the sockets, as tokio's
/// `yield_now` does.
async fn after_others() {
    let mut is_their_turn = true;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_their_turn, false) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
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
        .max_concurrent_streams(settings.http2_streams)
        .max_header_list_size(u32::try_from(settings.max_header).unwrap_or(u32::MAX));
    builder
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn what_is_ready_has_its_turn_first() {
        let order = RefCell::new(Vec::new());
        let response = async {
            after_others().await;
            order.borrow_mut().push("response");
        };
        tokio::join!(response, async { order.borrow_mut().push("other") });
        assert_eq!(order.take(), ["other", "response"]);
    }
}
