//! The accept loop of a listener.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::{Connections, Endable, Entry, peer_of};
use crate::limit::{ConcurrencyLimit, Permit};
use crate::usage::ConnectionUse;
use crate::waiting::WaitingConnections;

/// The pause after an error that concerns the listener. No option: such errors are a shortage of the system, which a
/// shorter pause makes worse, and a longer one makes clients wait after it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often connections are looked for that may end for those that wait. No option: it is the accuracy of a wait that
/// `timeouts` bound.
const RETRY: Duration = Duration::from_millis(100);

/// How long connections are left in the backlog of the socket while as many wait as may. Once one has waited for longer,
/// they are accepted all the same, since those of other peers may be behind those of one that has most. No option: the
/// limits decide who waits at all.
const PATIENCE: Duration = Duration::from_secs(5);

/// Peers for which that is done at once: each takes a look at all connections.
const AT_ONCE: usize = 8;

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Most open connections. When all are taken, others end for a new one (`Connections`), or it waits.
    pub connections: usize,
    /// Most that wait, beyond that. Of more, the newest of the peer that has most is closed.
    pub waiting: usize,
    /// How long one waits before it is closed.
    pub longest_wait: Duration,
    /// Connections beyond that, for requests that must always be answered ([`Admission::is_reserve`]).
    pub reserve: usize,
    /// Most open connections of one peer; 0 for no such bound.
    pub per_peer: usize,
    /// The name of the limit, for the log.
    pub name: &'static str,
}

/// What a connection holds while it is open.
#[derive(Debug)]
pub struct Admission {
    permit: Permit,
    connections: Arc<Connections>,
    peer: IpAddr,
    /// Whether it was accepted beyond [`AcceptLimits::connections`].
    pub is_reserve: bool,
}

impl Admission {
    /// Enters the connection among those that may be ended for others. It counts until the result is dropped.
    #[must_use]
    pub fn enter(self, connection: Arc<dyn Endable>) -> AdmittedConnection {
        AdmittedConnection { _entry: self.connections.enter(self.peer, connection), _permit: self.permit }
    }
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub struct AdmittedConnection {
    _entry: Entry,
    _permit: Permit,
}

/// Accepts connections and spawns `serve` for each, until `shutdown` is cancelled. Then the socket is closed, and
/// connections have `drain` to end before they are dropped. `serve` is expected to end its connection gracefully on
/// `shutdown` too, and to record its requests in the [`ConnectionUse`].
pub async fn accept_and_spawn<F>(
    listener: TcpListener,
    limits: AcceptLimits,
    drain: Duration,
    shutdown: CancellationToken,
    serve: impl Fn(TcpStream, Arc<ConnectionUse>, bool) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    let spawn = |stream, admission: Admission| {
        let usage = ConnectionUse::new(abort.child_token());
        let serving = serve(stream, Arc::clone(&usage), admission.is_reserve);
        let admitted = admission.enter(Arc::clone(&usage) as Arc<dyn Endable>);
        connections.spawn(async move {
            usage.ended().run_until_cancelled(serving).await;
            drop(admitted);
        });
    };
    accept(listener, limits, &shutdown, spawn).await;
    connections.close();
    if timeout(drain, connections.wait()).await.is_err() {
        tracing::debug!(connections = connections.len(), "connections dropped: not ended within the drain time");
        abort.cancel();
        connections.wait().await;
    }
}

/// Accepts connections and hands each to `begin`, until `shutdown` is cancelled; then the socket is closed.
pub async fn accept(
    listener: TcpListener,
    limits: AcceptLimits,
    shutdown: &CancellationToken,
    begin: impl FnMut(TcpStream, Admission),
) {
    let mut admitting = Admitting {
        limit: ConcurrencyLimit::new(limits.connections),
        reserve: ConcurrencyLimit::new(limits.reserve),
        limits,
        connections: Arc::default(),
        waiting: WaitingConnections::new(limits.waiting),
        begin,
    };
    shutdown.run_until_cancelled(admitting.run(&listener)).await;
}

/// Decides which connections are served.
struct Admitting<B> {
    limit: ConcurrencyLimit,
    reserve: ConcurrencyLimit,
    limits: AcceptLimits,
    connections: Arc<Connections>,
    waiting: WaitingConnections<TcpStream>,
    begin: B,
}

impl<B: FnMut(TcpStream, Admission)> Admitting<B> {
    async fn run(&mut self, listener: &TcpListener) {
        let mut retry = interval(RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut paused_until = None;
        loop {
            let is_waiting = !self.waiting.is_empty();
            // Looked at again with the next tick.
            let is_full = self.waiting.is_full() && self.waiting.longest_wait() < PATIENCE;
            tokio::select! {
                biased;
                Some(permit) = self.limit.acquire(), if is_waiting => self.begin_next(permit),
                _ = retry.tick(), if is_waiting => self.try_again(),
                () = sleep_until(paused_until.unwrap_or_else(Instant::now)), if paused_until.is_some() => {
                    paused_until = None;
                }
                accepted = listener.accept(), if paused_until.is_none() && !is_full => match accepted {
                    Ok((stream, address)) => self.arrive(stream, peer_of(address.ip())),
                    Err(error) if concerns_one_connection(&error) => {
                        tracing::debug!(%error, "a connection ended before it was accepted");
                    }
                    // Any other error is about the process, most often that it has no file descriptors left: accepting
                    // again at once would spin, and giving up would turn a shortage into an outage, so the loop pauses
                    // while connections close.
                    Err(error) => {
                        if self.limit.is_warning_due() {
                            tracing::warn!(%error, "cannot accept connections");
                        }
                        paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    }
                },
            }
        }
    }

    /// Begins a connection of `peer`, or has it wait.
    fn arrive(&mut self, stream: TcpStream, peer: IpAddr) {
        let per_peer = self.limits.per_peer;
        if per_peer > 0
            && self.connections.count(peer) + self.waiting.count(peer) >= per_peer
            && !self.connections.make_space_within(peer)
        {
            tracing::debug!(limit = per_peer, "connection refused: its peer has too many");
            return;
        }
        if self.waiting.is_empty()
            && let Some(permit) = self.limit.try_acquire()
        {
            return self.begin(stream, peer, permit, false);
        }
        if self.limit.is_warning_due() {
            let (limit, name) = (self.limits.connections, self.limits.name);
            tracing::warn!(limit, "{name} connections are all in use: those end that are needed least");
        }
        if let Some(lost) = self.waiting.push(stream, peer) {
            tracing::debug!(limit = self.limits.waiting, "connection closed: too many of its peer wait");
            drop(lost);
        }
        self.make_space(peer);
        self.use_reserve();
    }

    /// Ends connections for those that still wait.
    fn try_again(&mut self) {
        let expired = self.waiting.expire(self.limits.longest_wait);
        if expired > 0 {
            tracing::debug!(expired, "connections closed: none has ended for them in time");
        }
        self.waiting.reset();
        let mut peers = self.waiting.peers();
        peers.sort_by_key(|peer| self.connections.count(*peer));
        for peer in peers.into_iter().take(AT_ONCE) {
            self.make_space(peer);
        }
        self.use_reserve();
    }

    /// Ends another connection for one of this peer, unless one ends for it already, or that was in vain.
    fn make_space(&mut self, peer: IpAddr) {
        if self.waiting.is_settled(peer) {
            return;
        }
        let is_ending = self.connections.make_space(peer, self.limits.connections);
        self.waiting.note(peer, is_ending);
    }

    /// Serves those for which nothing can be ended beyond the limit, as far as there is a reserve.
    fn use_reserve(&mut self) {
        if self.limits.reserve == 0 {
            return;
        }
        while let Some(permit) = self.reserve.try_acquire() {
            let Some((stream, peer)) = self.waiting.next_in_vain(|peer| self.connections.count(peer)) else { return };
            self.begin(stream, peer, permit, true);
        }
    }

    /// Begins the waiting connections whose turn it is.
    fn begin_next(&mut self, permit: Permit) {
        let mut permit = Some(permit);
        while let Some(free) = permit.take()
            && let Some((stream, peer)) = self.waiting.next(|peer| self.connections.count(peer))
        {
            self.begin(stream, peer, free, false);
            permit = self.limit.try_acquire();
            if permit.is_none() {
                self.make_space(peer);
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, peer: IpAddr, permit: Permit, is_reserve: bool) {
        let connections = Arc::clone(&self.connections);
        (self.begin)(stream, Admission { permit, connections, peer, is_reserve });
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::sync::mpsc;

    use super::*;

    async fn listening() -> (TcpListener, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn limits(connections: usize) -> AcceptLimits {
        let longest_wait = Duration::from_secs(9);
        AcceptLimits { connections, waiting: 3, longest_wait, reserve: 0, per_peer: 0, name: "limits.test" }
    }

    /// Accepts with these limits; returns the address, and the reserve flags of accepted connections. Connections of
    /// which `is_busy` is true carry a request.
    async fn accepting(
        limits: AcceptLimits,
        is_busy: bool,
    ) -> (std::net::SocketAddr, mpsc::UnboundedReceiver<bool>, CancellationToken) {
        let (listener, address) = listening().await;
        let (opened, connections) = mpsc::unbounded_channel();
        let shutdown = CancellationToken::new();
        let serve = move |mut stream: TcpStream, usage: Arc<ConnectionUse>, is_reserve| {
            let opened = opened.clone();
            async move {
                let _request = is_busy.then(|| usage.begin());
                let _ = opened.send(is_reserve);
                // Ends with the client.
                let _ = stream.read_u8().await;
            }
        };
        tokio::spawn(accept_and_spawn(listener, limits, Duration::ZERO, shutdown.clone(), serve));
        (address, connections, shutdown)
    }

    #[tokio::test]
    async fn busy_connections_delay_further_ones() {
        let (address, mut connections, _shutdown) = accepting(limits(1), true).await;
        let first = TcpStream::connect(address).await.unwrap();
        connections.recv().await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        assert!(timeout(2 * RETRY, connections.recv()).await.is_err());
        drop(first);
        connections.recv().await.unwrap();
    }

    #[tokio::test]
    async fn idle_connection_ends_for_a_further_one() {
        let (address, mut connections, _shutdown) = accepting(limits(2), false).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(TcpStream::connect(address).await.unwrap());
            connections.recv().await.unwrap();
        }
        assert_eq!(open[0].read(&mut [0]).await.unwrap_or_default(), 0, "the oldest has ended");
        assert!(timeout(RETRY, open[1].read_u8()).await.is_err(), "the next has not");
    }

    #[tokio::test]
    async fn reserve_is_used_when_all_others_are_busy() {
        let reserving = AcceptLimits { reserve: 1, ..limits(2) };
        let (address, mut connections, _shutdown) = accepting(reserving, true).await;
        let mut open = Vec::new();
        for is_reserve in [false, false, true] {
            open.push(TcpStream::connect(address).await.unwrap());
            assert_eq!(connections.recv().await, Some(is_reserve));
        }
    }

    #[tokio::test]
    async fn quota_of_a_peer_ends_its_own_idle_connection() {
        let quota = AcceptLimits { per_peer: 1, ..limits(9) };
        let (address, mut connections, _shutdown) = accepting(quota, false).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        connections.recv().await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        connections.recv().await.unwrap();
        assert_eq!(first.read(&mut [0]).await.unwrap_or_default(), 0);
    }

    #[tokio::test]
    async fn shutdown_drops_connections_after_the_drain_time() {
        let (listener, address) = listening().await;
        let shutdown = CancellationToken::new();
        let serve = |stream: TcpStream, _, _| async move {
            let _open = stream;
            std::future::pending::<()>().await;
        };
        let accepting = tokio::spawn(accept_and_spawn(listener, limits(9), Duration::ZERO, shutdown.clone(), serve));
        let mut client = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        accepting.await.unwrap();
        assert!(client.read_u8().await.is_err());
    }
}
