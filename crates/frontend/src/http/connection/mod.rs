//! One client connection: its HTTP version, its requests and its end.

mod listen_only;

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fanlight_credentials::{ConnectionFacts, SocketPeer};
use fanlight_http::{
    BoxedStream, ClientStream, TlsServer, UsageKind, accept_tls, client_certificate,
};
use fanlight_telemetry::recording::fresh_number;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::activity::{ActiveRequest, Activity, Expired};
use super::http2::{self, ControlFrames, StreamExecutor};
use super::limits::ConnectionLimits;
use super::reply::ReplyBody;
use listen_only::ListenOnly;
pub(super) use listen_only::can_bypass_hyper;

/// The connection preface of a client with prior knowledge of HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The smallest head limit that hyper accepts.
const MIN_HEADER: usize = 8 << 10;

/// Answers the requests of a listener.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers one request of this connection; `active` is its guard there. The future is dropped
    /// when the connection ends.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<ConnectionFacts>,
        active: &ActiveRequest,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;

    /// Whether a load balancer is in front. It sends the next request on any open connection.
    fn has_balancer(&self) -> bool {
        false
    }

    /// Removes expired entries. Called periodically.
    fn clean_up(&self) {}

    /// Ends streams without an end of their own. Called once no more connections are accepted.
    fn drain(&self) {}

    /// Waits for work that has outlived its connection.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A client connection. `endpoint` answers its requests.
pub(super) struct HttpConnection<S> {
    pub(super) endpoint: Arc<S>,
    pub(super) limits: Arc<ConnectionLimits>,
    pub(super) activity: Arc<Activity>,
    /// Cancelling this token ends the connection at once.
    pub(super) cut: CancellationToken,
}

impl<S: Serve> HttpConnection<S> {
    /// Serves the connection on the runtime that it is attached to, and drops `guards` at its end.
    pub(super) fn serve_attached(
        self,
        attach: impl FnOnce() -> io::Result<ClientStream> + Send,
        tls: Option<Arc<TlsServer>>,
        guards: impl Send,
    ) -> impl Future<Output = ()> + Send {
        async move {
            match attach() {
                Ok(stream) => self.serve(stream, tls).await,
                Err(error) => tracing::warn!(%error, "cannot serve a client connection"),
            }
            drop(guards);
        }
    }

    /// Serves the connection until either side ends it. With `tls`, a handshake comes first.
    async fn serve(self, stream: ClientStream, tls: Option<Arc<TlsServer>>) {
        match (stream, tls) {
            (ClientStream::Tcp(stream), None) => {
                let facts = facts_of(&stream);
                self.serve_io(stream, Arc::new(facts)).await;
            }
            // Boxed, since TLS connections are larger and rarer.
            (ClientStream::Tcp(stream), Some(tls)) => Box::pin(self.serve_tls(stream, tls)).await,
            (ClientStream::Unix(stream), _) => {
                let Ok(peer) = stream.peer_cred() else { return };
                let facts = ConnectionFacts {
                    number: fresh_number(),
                    socket: Some(SocketPeer {
                        user: peer.uid(),
                        group: peer.gid(),
                    }),
                    ..ConnectionFacts::default()
                };
                let stream: BoxedStream = Box::new(stream);
                Box::pin(self.serve_io(stream, Arc::new(facts))).await;
            }
        }
    }

    /// Performs the TLS handshake. Its time counts as part of the time for the first request.
    async fn serve_tls(self, stream: TcpStream, tls: Arc<TlsServer>) {
        let facts = facts_of(&stream);
        let activity = Arc::clone(&self.activity);
        let mut ending = self.ending(&activity);
        let accepted = tokio::select! {
            biased;
            () = ending.without_request(self.limits.first_request) => return,
            accepted = accept_tls(&tls, stream, |stream| TrackedIo::below_tls(stream, Arc::clone(&activity))) => accepted,
        };
        match accepted {
            Ok(stream) => {
                let facts = ConnectionFacts {
                    certificate: client_certificate(&stream),
                    is_tls: true,
                    ..facts
                };
                let stream: BoxedStream = Box::new(stream);
                self.serve_stream(TrackedIo::over_tls(stream, activity), Arc::new(facts))
                    .await;
            }
            Err(error) => tracing::debug!(%error, "TLS handshake with a client failed"),
        }
    }

    async fn serve_io<I>(self, stream: I, facts: Arc<ConnectionFacts>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let activity = Arc::clone(&self.activity);
        self.serve_stream(TrackedIo::new(stream, activity), facts)
            .await;
    }

    async fn serve_stream<I>(self, mut stream: TrackedIo<I>, facts: Arc<ConnectionFacts>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let activity = Arc::clone(&self.activity);
        let mut ending = self.ending(&activity);
        let is_http2 = tokio::select! {
            biased;
            () = ending.without_request(self.limits.first_request) => return,
            is_http2 = stream.begins_with(PREFACE) => is_http2,
        };
        match is_http2 {
            // Boxed, since HTTP/2 connections are larger and rarer.
            Ok(true) => Box::pin(self.serve_http2(stream, facts, &activity, &mut ending)).await,
            Ok(false) => {
                self.serve_http1(stream, facts, &activity, &mut ending)
                    .await;
            }
            Err(_) => {}
        }
    }

    fn ending<'a>(&'a self, activity: &'a Activity) -> Ending<'a> {
        Ending::new(
            &self.cut,
            activity,
            self.limits.header_timeout,
            self.endpoint.has_balancer(),
        )
    }

    async fn serve_http1<I>(
        &self,
        mut stream: TrackedIo<I>,
        facts: Arc<ConnectionFacts>,
        activity: &Arc<Activity>,
        ending: &mut Ending<'_>,
    ) where
        I: AsyncRead + AsyncWrite + Send + Unpin,
    {
        // Boxed, so that hyper's connection uses no memory during a listen-only stream.
        while let Some((taken, response)) =
            Box::pin(self.serve_by_hyper(stream, Arc::clone(&facts), activity, ending)).await
        {
            match listen_only(taken, *response, ending).await {
                Some(reusable) => stream = reusable,
                None => return,
            }
        }
    }

    /// Lets hyper serve an HTTP/1 connection until it ends or a response has to bypass hyper. In
    /// that case, returns the connection and the response.
    async fn serve_by_hyper<I>(
        &self,
        stream: TrackedIo<I>,
        facts: Arc<ConnectionFacts>,
        activity: &Arc<Activity>,
        ending: &mut Ending<'_>,
    ) -> Option<(TrackedIo<I>, Box<Response<ReplyBody>>)>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin,
    {
        // One poll of this future both fills and empties it, since that poll also polls the
        // service.
        let bypassing = Mutex::new(None);
        let service = service_fn(|request| {
            let active = activity.begin_request(false);
            let (bypassing, facts) = (&bypassing, Arc::clone(&facts));
            async move {
                let response = self.answer(request, facts, active).await;
                if !response.body().bypasses_hyper {
                    return Ok::<_, Infallible>(response);
                }
                *bypassing.lock() = Some(Box::new(response));
                // hyper must not answer: the connection is taken from it.
                pending().await
            }
        });
        let mut connection = http1(&self.limits).serve_connection(TokioIo::new(stream), service);
        // hyper would at once close a connection that has to end before its first request.
        let mut ends_after_first = ending.has_begun();
        let mut ends_with_next = false;
        let response = loop {
            let served = poll_fn(|cx| {
                if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
                    return Poll::Ready(result.map(|()| None));
                }
                let has_next = ends_with_next && activity.usage().kind != UsageKind::Idle;
                if has_next || ends_after_first && activity.has_served() {
                    (ends_after_first, ends_with_next) = (false, false);
                    Pin::new(&mut connection).graceful_shutdown();
                    cx.waker().wake_by_ref();
                }
                // Write earlier responses first.
                let mut bypassing = bypassing.lock();
                let response = if activity.is_write_blocked() {
                    None
                } else {
                    bypassing.take()
                };
                response.map_or(Poll::Pending, |response| Poll::Ready(Ok(Some(response))))
            });
            tokio::select! {
                biased;
                result = served => break log_error(result)??,
                end = ending.next() => match end {
                    End::AfterNext => ends_with_next = true,
                    End::Graceful => Pin::new(&mut connection).graceful_shutdown(),
                    End::Abort => return None,
                },
            }
        };
        let parts = connection.into_parts();
        let mut stream = parts.io.into_inner();
        stream.put_back(&parts.read_buf);
        Some((stream, response))
    }

    async fn serve_http2<I>(
        &self,
        mut stream: TrackedIo<I>,
        facts: Arc<ConnectionFacts>,
        activity: &Arc<Activity>,
        ending: &mut Ending<'_>,
    ) where
        I: AsyncRead + AsyncWrite + Send + Unpin,
    {
        stream.limit_control_frames(PREFACE.len());
        let streams = StreamExecutor::new(self.limits.write_timeout);
        let service = service_fn(|request| {
            let writes = streams.begin(activity);
            // Boxed, since hyper keeps this future's memory until the response body ends. A request
            // needs much more memory than a stream.
            let answer =
                Box::pin(self.answer(request, Arc::clone(&facts), activity.begin_request(true)));
            async move {
                let mut response = answer.await;
                response.body_mut().writes = Some(writes);
                Ok::<_, Infallible>(response)
            }
        });
        let builder = http2::builder(&self.limits, streams.clone());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        if ending.has_begun() {
            // Requests that the client sends before it knows are still served.
            connection.as_mut().graceful_shutdown();
        }
        loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => {
                    log_error(result);
                    return;
                }
                end = ending.next() => match end {
                    End::AfterNext | End::Graceful => connection.as_mut().graceful_shutdown(),
                    End::Abort => return,
                },
            }
        }
    }

    /// Answers a request. `active` is held until the response has been sent.
    ///
    /// The endpoint's future is created inside this one. Capturing it would store it twice, and
    /// hyper copies the whole future for each request.
    fn answer(
        &self,
        request: Request<Incoming>,
        facts: Arc<ConnectionFacts>,
        active: ActiveRequest,
    ) -> impl Future<Output = Response<ReplyBody>> + use<S> {
        let endpoint = Arc::clone(&self.endpoint);
        async move {
            let mut response = endpoint.answer(request, facts, &active).await;
            yield_to_other_tasks().await;
            response.body_mut().hold_active(active);
            response
        }
    }
}

/// The facts about a TCP connection before anything has been read.
fn facts_of(stream: &TcpStream) -> ConnectionFacts {
    // Responses are small and complete, so waiting to fill a segment would only delay them.
    let _ = stream.set_nodelay(true);
    ConnectionFacts {
        number: fresh_number(),
        local: stream.local_addr().ok().map(|address| address.ip()),
        peer: stream.peer_addr().ok(),
        ..ConnectionFacts::default()
    }
}

/// Sends a listen-only stream; returns the connection if it can carry further requests.
async fn listen_only<I>(
    stream: TrackedIo<I>,
    response: Response<ReplyBody>,
    ending: &mut Ending<'_>,
) -> Option<TrackedIo<I>>
where
    I: AsyncRead + AsyncWrite + Send + Unpin,
{
    let mut sending = ListenOnly::new(stream, response);
    loop {
        tokio::select! {
            biased;
            result = poll_fn(|cx| sending.poll_sent(cx)) => break log_error(result)?,
            end = ending.next() => match end {
                // The stream ends by itself when the server drains.
                End::AfterNext | End::Graceful => {}
                End::Abort => return None,
            },
        }
    }
    let mut stream = sending.stream;
    if ending.has_begun() {
        // The connection is over in any case; an error changes nothing.
        let _ = stream.shutdown().await;
        return None;
    }
    Some(stream)
}

fn log_error<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| tracing::debug!(%error, "a client connection broke"))
        .ok()
}

/// Lets other ready tasks run first. Responses that are ready together are then written one after
/// the other, so clients on other processors are woken once for several.
///
/// That saves 10% of a small call's processor time. tokio's `yield_now` does not, since it polls
/// the sockets in between.
async fn yield_to_other_tasks() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn http1(limits: &ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // `Activity` has this timeout, since it tells a slow head from an idle connection.
        .header_read_timeout(None)
        .max_buf_size(limits.max_header.max(MIN_HEADER));
    builder
}

/// How long an idle connection of a load balancer stays open after shutdown. If it closed at once,
/// the balancer might send a request at the same moment, and could not safely repeat it. A
/// constant, since a busy balancer uses the connection sooner.
const LINGER: Duration = Duration::from_secs(1);

/// The reasons to end a connection that its client keeps open.
pub(super) struct Ending<'a> {
    /// Cancelling this token ends the connection at once.
    pub(super) cut: &'a CancellationToken,
    pub(super) activity: &'a Activity,
    pub(super) header_timeout: Duration,
    /// Whether there are other replicas, and so a load balancer.
    has_balancer: bool,
    is_draining: bool,
    lingers_until: Option<Instant>,
    has_been_idle: bool,
}

/// The way to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The connection ends after its next request, or when [`Self::Graceful`] follows.
    AfterNext,
    /// The connection ends after its running requests.
    Graceful,
    /// The connection ends at once.
    Abort,
}

impl<'a> Ending<'a> {
    pub(super) fn new(
        cut: &'a CancellationToken,
        activity: &'a Activity,
        header_timeout: Duration,
        has_balancer: bool,
    ) -> Self {
        Self {
            cut,
            activity,
            header_timeout,
            has_balancer,
            is_draining: false,
            has_been_idle: false,
            lingers_until: None,
        }
    }

    /// Whether `next` has returned an end.
    fn has_begun(&self) -> bool {
        self.is_draining || self.has_been_idle
    }

    /// Waits until an unused connection must end. On shutdown, a connection younger than `grace`
    /// stays open: its first request may be on its way. Cancel safe.
    async fn without_request(&mut self, grace: Duration) {
        if self.is_draining || self.next().await == End::Graceful {
            let age = self.activity.usage().since.elapsed();
            tokio::select! {
                () = self.cut.cancelled() => {}
                () = sleep(grace.saturating_sub(age)) => {}
            }
        }
    }

    /// Waits for the next way to end the connection. Cancel safe.
    pub(super) async fn next(&mut self) -> End {
        // hyper does not close a connection that has received part of a head.
        let grace = if self.has_been_idle {
            self.header_timeout
        } else {
            Duration::ZERO
        };
        let expired = tokio::select! {
            biased;
            () = self.cut.cancelled() => return End::Abort,
            () = self.activity.shutdown().cancelled(), if !self.is_draining => {
                self.is_draining = true;
                if self.has_balancer && self.activity.usage().kind == UsageKind::Idle {
                    self.lingers_until = Some(Instant::now() + LINGER);
                    return End::AfterNext;
                }
                return End::Graceful;
            }
            () = sleep_until(self.lingers_until.unwrap_or_else(Instant::now)), if self.lingers_until.is_some() => {
                self.lingers_until = None;
                return End::Graceful;
            }
            expired = self.activity.expired(grace) => expired,
        };
        match expired {
            Expired::Idle if !self.has_been_idle => {
                self.has_been_idle = true;
                End::Graceful
            }
            Expired::Idle => End::Abort,
            Expired::Stuck => {
                tracing::debug!("closing a client connection that makes no progress");
                End::Abort
            }
        }
    }
}

/// A byte stream that records its traffic in an [`Activity`].
#[derive(Debug)]
struct TrackedIo<S> {
    inner: S,
    activity: Arc<Activity>,
    /// Whether this stream records reads.
    records_reads: bool,
    /// Whether this stream records writes. Over TLS the socket below records them, since TLS
    /// buffers bytes that the socket does not take.
    records_writes: bool,
    /// Bytes from `inner` to be read again.
    unread: Vec<u8>,
    /// Counts HTTP/2 frames.
    frames: Option<Box<ControlFrames>>,
}

impl<S> TrackedIo<S> {
    /// Records all traffic of `inner` in `activity`.
    fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self {
            inner,
            activity,
            records_reads: true,
            records_writes: true,
            unread: Vec::new(),
            frames: None,
        }
    }

    /// A stream for a socket below TLS, which records only writes.
    fn below_tls(inner: S, activity: Arc<Activity>) -> Self {
        Self {
            records_reads: false,
            ..Self::new(inner, activity)
        }
    }

    /// A stream for TLS over such a socket, which records only reads.
    fn over_tls(inner: S, activity: Arc<Activity>) -> Self {
        Self {
            records_writes: false,
            ..Self::new(inner, activity)
        }
    }

    /// Makes reads fail once the client has sent too many HTTP/2 control frames. The next bytes are
    /// a preface of this length.
    fn limit_control_frames(&mut self, preface: usize) {
        self.frames = Some(Box::new(ControlFrames::new(preface)));
    }

    fn record_write(&self, result: &Poll<io::Result<usize>>) {
        if self.records_writes {
            self.activity.record_write(match result {
                Poll::Ready(written) => Some(*written.as_ref().unwrap_or(&0)),
                Poll::Pending => None,
            });
        }
    }

    /// Puts back `bytes`, which were read last; the next read returns them again.
    fn put_back(&mut self, bytes: &[u8]) {
        self.unread.splice(..0, bytes.iter().copied());
    }
}

impl<S: AsyncRead + Unpin> TrackedIo<S> {
    /// Whether the stream begins with `prefix`. Reads as little as possible, and puts it back.
    async fn begins_with<const N: usize>(&mut self, prefix: &[u8; N]) -> io::Result<bool> {
        let (mut first, mut len) = ([0; N], 0);
        while len < N && first.get(..len) == prefix.get(..len) {
            match self.read(first.get_mut(len..).unwrap_or_default()).await? {
                0 => break,
                read => len += read,
            }
        }
        self.put_back(first.get(..len).unwrap_or_default());
        Ok(first == *prefix)
    }

    /// Waits until the client closes the connection, and resolves to that error. Puts back bytes
    /// that arrive meanwhile; after `limit` bytes, reads no more.
    fn poll_closed(&mut self, cx: &mut Context<'_>, limit: usize) -> Poll<io::Error> {
        let mut bytes = [0; 512];
        while self.unread.len() < limit {
            let mut read = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read)) {
                Ok(()) if read.filled().is_empty() => {
                    return Poll::Ready(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(()) => self.unread.extend_from_slice(read.filled()),
                Err(error) => return Poll::Ready(error),
            }
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.poll_fill(cx, buf))?;
        if let Some(frames) = &mut self.frames {
            frames
                .take(buf.filled().get(before..).unwrap_or_default())
                .map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> TrackedIo<S> {
    fn poll_fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let len = self.unread.len().min(buf.remaining());
            buf.put_slice(self.unread.get(..len).unwrap_or_default());
            self.unread = self.unread.split_off(len);
            if buf.remaining() > 0 {
                // Fill the whole buffer: hyper would otherwise double it. The next read returns an
                // error of this one.
                let _ = Pin::new(&mut self.inner).poll_read(cx, buf);
            }
            return Poll::Ready(Ok(()));
        }
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if result.is_ready() && self.records_reads {
            self.activity.record_read();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.record_write(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.record_write(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tracked_io_tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::http::limits::ConnectionLimits;
    use crate::settings::FrontendSettings;

    fn tracked<S>(inner: S) -> TrackedIo<S> {
        let limits = ConnectionLimits::from(&FrontendSettings::default());
        let [shutdown, cut] = <[CancellationToken; 2]>::default();
        TrackedIo::new(inner, Activity::new(&limits, shutdown, cut))
    }

    #[tokio::test]
    async fn begins_with_puts_back_what_it_reads() {
        for (sent, begins) in [
            ("prefix and more", true),
            ("prefix", true),
            ("pre", false),
            ("other", false),
            ("", false),
        ] {
            let mut stream = tracked(sent.as_bytes());
            assert_eq!(
                stream.begins_with(b"prefix").await.unwrap(),
                begins,
                "{sent}"
            );
            let mut whole = String::new();
            stream.read_to_string(&mut whole).await.unwrap();
            assert_eq!(whole, sent);
        }
    }

    /// Otherwise hyper's buffer takes 16 KiB instead of 8 while a stream holds part of its request.
    #[tokio::test]
    async fn first_read_returns_more_than_was_put_back() {
        let mut stream = tracked(&b"more"[..]);
        stream.put_back(b"put back and ");
        let mut buf = [0; 64];
        let read = stream.read(&mut buf).await.unwrap();
        assert_eq!(&buf[..read], b"put back and more");
    }

    #[tokio::test]
    async fn begins_with_waits_for_a_prefix_that_comes_in_pieces() {
        let (mut client, server) = tokio::io::duplex(64);
        let server = tokio::spawn(async move {
            let mut stream = tracked(server);
            let begins = stream.begins_with(b"prefix").await.unwrap();
            let mut whole = String::new();
            stream.read_to_string(&mut whole).await.unwrap();
            (begins, whole)
        });
        for piece in ["p", "ref", "ix!"] {
            client.write_all(piece.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        drop(client);
        assert_eq!(server.await.unwrap(), (true, "prefix!".to_owned()));
    }

    #[tokio::test]
    async fn poll_closed_puts_back_what_it_reads_up_to_a_limit() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut stream = tracked(server);
        stream.put_back(b"first ");
        client.write_all(b"then this").await.unwrap();
        drop(client);
        // The limit is reached before the end of the stream.
        let is_closed = poll_fn(|cx| Poll::Ready(stream.poll_closed(cx, 15).is_ready())).await;
        assert!(!is_closed);
        let error = poll_fn(|cx| stream.poll_closed(cx, 16)).await;
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let mut whole = String::new();
        stream.read_to_string(&mut whole).await.unwrap();
        assert_eq!(whole, "first then this");
    }
}
