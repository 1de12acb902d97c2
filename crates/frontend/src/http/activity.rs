//! How busy a connection is, and when it has been idle, slow or stuck for too long.
//!
//! A connection is cut off when the head of a request takes too long to arrive, when it has
//! carried no request for too long, or when it takes nothing of what is sent to it for too long.
//! One timer a connection looks at what the I/O leaves behind, so that a request costs a few stores, no timer and
//! no look at the clock. A limit may therefore be noticed late, by at most the head timeout.
//!
//! Must not know: HTTP beyond that requests have a beginning and an end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

/// A time that nobody has looked at the clock for.
const UNTIMED: u64 = u64::MAX;

/// The times that matter of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    header_timeout: Duration,
    idle: Duration,
    requests: AtomicUsize,
    /// Whether bytes have come since the last request ended, or ever: a head is arriving.
    head: AtomicBool,
    /// HTTP/2 has frames between requests that belong to none; only idleness counts there.
    multiplexed: AtomicBool,
    /// Milliseconds after `start` at which the last request ended, or the head began to arrive; or `UNTIMED`, and it
    /// counts from when that is seen.
    since: AtomicU64,
    /// Milliseconds after `start`, plus one, since when a write has been waiting; 0 if none is.
    write_waits: AtomicU64,
}

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// It has carried no request for too long; nobody loses anything.
    Idle,
    /// A head does not arrive, or a response is not taken.
    Stuck,
}

impl Activity {
    /// A connection that has just been accepted: its first head is awaited.
    pub(crate) fn new(header_timeout: Duration, idle: Duration) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            header_timeout,
            idle,
            requests: AtomicUsize::new(0),
            head: AtomicBool::new(true),
            multiplexed: AtomicBool::new(false),
            since: AtomicU64::new(0),
            write_waits: AtomicU64::new(0),
        })
    }

    /// A request has arrived. It ends when the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>, multiplexed: bool) -> Busy {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.head.store(false, Ordering::Relaxed);
        self.multiplexed.store(multiplexed, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Whether something is still to be written that the client does not take.
    pub(crate) fn is_writing(&self) -> bool {
        self.write_waits.load(Ordering::Relaxed) > 0
    }

    /// Nothing that has come makes a request yet. A head that arrives nearly always does at once; only if it does not
    /// does its time matter.
    pub(crate) fn awaits_more(&self) {
        if self.head.load(Ordering::Relaxed) {
            self.since();
        }
    }

    /// Waits for `grace`, and then until the connection is to be closed.
    pub(crate) async fn expired(&self, grace: Duration) -> Expired {
        sleep(grace).await;
        loop {
            match self.due() {
                (expired, left) if left.is_zero() => return expired,
                (_, left) => sleep(left.min(self.header_timeout)).await,
            }
        }
    }

    /// What is due next, and in how long.
    fn due(&self) -> (Expired, Duration) {
        let left = |since: u64, limit: Duration| limit.saturating_sub(self.elapsed_since(since));
        let waits = self.write_waits.load(Ordering::Relaxed);
        if waits > 0 {
            return (Expired::Stuck, left(waits - 1, self.idle));
        }
        if self.requests.load(Ordering::Relaxed) > 0 {
            return (Expired::Idle, self.header_timeout.max(Duration::from_millis(1)));
        }
        let since = self.since();
        if self.head.load(Ordering::Relaxed) && !self.multiplexed.load(Ordering::Relaxed) {
            (Expired::Stuck, left(since, self.header_timeout))
        } else {
            (Expired::Idle, left(since, self.idle))
        }
    }

    fn received(&self) {
        if self.requests.load(Ordering::Relaxed) == 0
            && !self.multiplexed.load(Ordering::Relaxed)
            && !self.head.swap(true, Ordering::Relaxed)
        {
            self.since.store(UNTIMED, Ordering::Relaxed);
        }
    }

    fn ended(&self) {
        self.since.store(UNTIMED, Ordering::Relaxed);
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }

    fn wrote(&self, progress: bool) {
        let waits = self.write_waits.load(Ordering::Relaxed) > 0;
        match (progress, waits) {
            (true, true) => self.write_waits.store(0, Ordering::Relaxed),
            (false, false) => self.write_waits.store(self.now() + 1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Since when it has been as it is, or is seen to be.
    fn since(&self) -> u64 {
        let since = self.since.load(Ordering::Relaxed);
        if since != UNTIMED {
            return since;
        }
        let now = self.now();
        self.since.store(now, Ordering::Relaxed);
        now
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(UNTIMED - 1)
    }

    fn elapsed_since(&self, millis: u64) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(millis))
    }
}

/// A request that a connection has.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// A byte stream whose traffic is noted.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    inner: S,
    activity: Arc<Activity>,
    /// What has been read of it, and is to be read again.
    first: Vec<u8>,
}

impl<S> Watched<S> {
    /// Notes the traffic of `inner` in `activity`.
    pub(crate) fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self { inner, activity, first: Vec::new() }
    }
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Whether what comes begins with `prefix`: as much of it is read as tells, to be read again.
    pub(crate) async fn begins_with<const N: usize>(&mut self, prefix: &[u8; N]) -> io::Result<bool> {
        let (mut first, mut len) = ([0; N], 0);
        while len < N && first.get(..len) == prefix.get(..len) {
            match self.read(first.get_mut(len..).unwrap_or_default()).await? {
                0 => break,
                read => len += read,
            }
        }
        self.first = first.get(..len).unwrap_or_default().to_vec();
        Ok(first == *prefix)
    }

    /// Has `bytes`, which were read last, read again.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        self.first.splice(..0, bytes.iter().copied());
    }

    /// Waits for the client to go, which is an error. What it sends meanwhile is to be read again; once
    /// there are `most` bytes of it, nobody looks for more.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Error> {
        let mut bytes = [0; 512];
        while self.first.len() < most {
            let mut read = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read)) {
                Ok(()) if read.filled().is_empty() => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
                Ok(()) => self.first.extend_from_slice(read.filled()),
                Err(error) => return Poll::Ready(error),
            }
        }
        Poll::Pending
    }

    fn read_again(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) {
        let count = self.first.len().min(buf.remaining());
        buf.put_slice(self.first.get(..count).unwrap_or_default());
        self.first = self.first.split_off(count);
        if buf.remaining() > 0 {
            // With what is there already, most readers have all they need, and make no room for more.
            // Whatever else comes of this, the next read says.
            let _ = Pin::new(&mut self.inner).poll_read(cx, buf);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            self.read_again(cx, buf);
            return Poll::Ready(Ok(()));
        }
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if result.is_ready() {
            self.activity.received();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.activity.wrote(result.is_ready());
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.activity.wrote(result.is_ready());
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
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_arrive_is_not_awaited() {
        let activity = Activity::new(HEAD, IDLE);
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert_eq!(start.elapsed(), HEAD);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_kept_for_a_while() {
        let activity = Activity::new(HEAD, IDLE);
        drop(activity.begin(false));
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Idle);
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dripping_head_counts_from_its_first_byte() {
        let activity = Activity::new(HEAD, IDLE);
        drop(activity.begin(false));
        activity.received();
        activity.awaits_more();
        tokio::time::advance(HEAD / 2).await;
        activity.received();
        activity.awaits_more();
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert_eq!(start.elapsed(), HEAD / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_request_keeps_the_connection() {
        let activity = Activity::new(HEAD, IDLE);
        let busy = activity.begin(false);
        assert!(tokio::time::timeout(IDLE * 100, activity.expired(Duration::ZERO)).await.is_err());
        drop(busy);
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_cut_off() {
        let activity = Activity::new(HEAD, IDLE);
        let _busy = activity.begin(true);
        activity.wrote(false);
        tokio::time::advance(IDLE / 2).await;
        activity.wrote(true);
        activity.wrote(false);
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert!(start.elapsed() >= IDLE && start.elapsed() <= IDLE + HEAD);
    }

    #[tokio::test]
    async fn what_tells_the_beginning_is_read_again() {
        for (sent, begins) in
            [("prefix and more", true), ("prefix", true), ("pre", false), ("other", false), ("", false)]
        {
            let mut watched = Watched::new(sent.as_bytes(), Activity::new(HEAD, IDLE));
            assert_eq!(watched.begins_with(b"prefix").await.unwrap(), begins, "{sent}");
            let mut whole = String::new();
            watched.read_to_string(&mut whole).await.unwrap();
            assert_eq!(whole, sent);
        }
    }

    #[tokio::test]
    async fn what_comes_while_a_client_only_listens_is_read_later() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut watched = Watched::new(server, Activity::new(HEAD, IDLE));
        watched.unread(b"first ");
        client.write_all(b"then this").await.unwrap();
        drop(client);
        // There is room for no more, and nobody looks whether there is more.
        let looked = std::future::poll_fn(|cx| Poll::Ready(watched.poll_gone(cx, 15).is_ready())).await;
        assert!(!looked);
        let gone = std::future::poll_fn(|cx| watched.poll_gone(cx, 16)).await;
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
        let mut whole = String::new();
        watched.read_to_string(&mut whole).await.unwrap();
        assert_eq!(whole, "first then this");
    }

    #[tokio::test]
    async fn a_beginning_that_comes_in_pieces_is_awaited() {
        let (mut client, server) = tokio::io::duplex(64);
        let told = tokio::spawn(async move {
            let mut watched = Watched::new(server, Activity::new(HEAD, IDLE));
            let begins = watched.begins_with(b"prefix").await.unwrap();
            let mut buf = [0; 16];
            let read = watched.read(&mut buf).await.unwrap();
            (begins, buf[..read].to_vec())
        });
        for piece in ["p", "ref", "ix!"] {
            client.write_all(piece.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(told.await.unwrap(), (true, b"prefix!".to_vec()));
    }
}
