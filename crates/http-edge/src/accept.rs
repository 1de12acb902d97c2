//! The accept loop of a listener.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::{Connections, Endable, Entry, peer_of};
use crate::limit::{ConcurrencyLimit, Permit};
use crate::usage::ConnectionUse;

/// The pause after an error that concerns the listener. No option: such errors are a shortage of the system, which a
/// shorter pause makes worse.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How often a connection that waits for another to end looks for one that has become idle. No option: it is the
/// accuracy of a wait that `timeouts` bound.
const RETRY: Duration = Duration::from_millis(100);

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Most open connections. When all are taken, idle ones end for a new one (`Connections`); if none is idle,
    /// further ones wait in the backlog of the socket.
    pub connections: usize,
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
    mut begin: impl FnMut(TcpStream, Admission),
) {
    let admitting = Admitting {
        limit: ConcurrencyLimit::new(limits.connections),
        reserve: ConcurrencyLimit::new(limits.reserve),
        has_reserve: limits.reserve > 0,
        limits,
        connections: Arc::default(),
    };
    let accepting = async {
        loop {
            let (stream, peer) = next(&listener).await;
            if let Some(admission) = admitting.admit(peer_of(peer)).await {
                begin(stream, admission);
            }
        }
    };
    shutdown.run_until_cancelled(accepting).await;
}

/// Decides which connections are served.
struct Admitting {
    limit: ConcurrencyLimit,
    reserve: ConcurrencyLimit,
    has_reserve: bool,
    limits: AcceptLimits,
    connections: Arc<Connections>,
}

impl Admitting {
    /// Admits a connection of `peer`, for which idle ones end if all are taken; waits if none is idle. `None` if its
    /// peer has too many.
    async fn admit(&self, peer: IpAddr) -> Option<Admission> {
        let Self { limits, connections, .. } = self;
        let own = if limits.per_peer > 0 { connections.count(peer) } else { 0 };
        if limits.per_peer > 0 && own >= limits.per_peer && !connections.make_space_within(peer) {
            tracing::debug!(limit = limits.per_peer, "connection refused: its peer has too many");
            return None;
        }
        let (permit, is_reserve) = loop {
            if let Some(permit) = self.limit.try_acquire() {
                break (permit, false);
            }
            if self.limit.is_warning_due() {
                tracing::warn!(limit = limits.connections, "{} connections are open; idle ones end", limits.name);
            }
            let is_ending = connections.make_space(peer, limits.connections);
            if !is_ending
                && self.has_reserve
                && let Some(permit) = self.reserve.try_acquire()
            {
                break (permit, true);
            }
            if let Ok(permit) = timeout(RETRY, self.limit.acquire()).await {
                break (permit?, false);
            }
        };
        Some(Admission { permit, connections: Arc::clone(connections), peer, is_reserve })
    }
}

/// The next connection.
///
/// An error of one connection that ended before it was accepted concerns no other. Any other error is about the
/// process, most often that it has no file descriptors left: accepting again at once would spin, and giving up would
/// turn a shortage into an outage, so the loop pauses while connections close.
async fn next(listener: &TcpListener) -> (TcpStream, IpAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer.ip()),
            Err(error) if concerns_one_connection(&error) => {
                tracing::debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
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
        AcceptLimits { connections, reserve: 0, per_peer: 0, name: "limits.test" }
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
