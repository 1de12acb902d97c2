//! The accept loop of a listener.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use fanlight_fair::Table;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::{ConnectionPeer, Connections, Endable, Entry};
use crate::socket::{
    ClientStream, Exchange, ListeningSocket, SocketReceiver, concerns_one_connection,
};
use crate::{ConcurrencyLimit, ConnectionUse, Permit};

/// The pause after an error that concerns the listener. A constant: such errors are a shortage of
/// the system. A shorter pause makes it worse, and after a longer one clients wait needlessly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The interval of looking for connections to end for waiting ones. A constant: it is the accuracy
/// of a wait that `timeouts` limit.
const RETRY: Duration = Duration::from_millis(100);

/// How long connections stay in the socket's backlog while the waiting list is full. After that
/// they are accepted nevertheless, since the peer with the most connections may block others in the
/// backlog. A constant: the limits decide who waits at all.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum number of peers to make room for at once; each needs a look at all connections.
const AT_ONCE: usize = 8;

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// The maximum number of open connections. At the limit, others end for a new one
    /// (`Connections`), or it waits.
    pub connections: usize,
    /// The maximum number of connections that wait until others end. At this limit, the peer with
    /// the most waiting connections loses its newest.
    pub waiting: usize,
    /// The longest wait of a connection before it is closed.
    pub longest_wait: Duration,
    /// Further connections, for requests that must always be answered ([`Admission::is_reserve`]).
    pub reserve: usize,
    /// The maximum number of open connections per peer; 0 for no limit.
    pub per_peer: usize,
    /// The name of the limit in the log.
    pub name: &'static str,
}

/// The permit of an open connection.
#[derive(Debug)]
pub struct Admission {
    permit: Permit,
    connections: Arc<Connections>,
    peer: ConnectionPeer,
    /// Whether it was accepted beyond [`AcceptLimits::connections`].
    pub is_reserve: bool,
}

impl Admission {
    /// Adds the connection to those that may be ended for others. It counts until the result is
    /// dropped.
    #[must_use]
    pub fn enter(self, connection: Arc<dyn Endable>) -> AdmittedConnection {
        AdmittedConnection {
            _entry: self.connections.enter(self.peer, connection),
            _permit: self.permit,
        }
    }
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub struct AdmittedConnection {
    _entry: Entry,
    _permit: Permit,
}

/// The connections that were accepted on one socket. They end together: when the listener stops, or
/// when it gets another socket.
#[derive(Clone, Debug)]
pub struct AcceptedTogether {
    /// Cancelled when each must end after its running requests.
    pub shutdown: CancellationToken,
    /// Cancelled when all must end at once.
    pub cut: CancellationToken,
    /// Counts the connections.
    pub tasks: TaskTracker,
}

impl AcceptedTogether {
    fn new(shutdown: &CancellationToken, cut: &CancellationToken) -> Self {
        Self {
            shutdown: shutdown.child_token(),
            cut: cut.child_token(),
            tasks: TaskTracker::new(),
        }
    }

    /// Ends the connections within `drain`.
    async fn end(self, drain: Duration) {
        self.shutdown.cancel();
        self.tasks.close();
        if timeout(drain, self.tasks.wait()).await.is_err() {
            let connections = self.tasks.len();
            tracing::info!(
                connections,
                ?drain,
                "connections of a closed listening socket dropped: drain time is over"
            );
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

/// The connections of a listener that has stopped.
#[derive(Debug)]
pub struct Remaining {
    current: TaskTracker,
    /// Ends the connections of earlier sockets.
    earlier: TaskTracker,
}

impl Remaining {
    /// Waits until all have ended.
    pub async fn ended(&self) {
        tokio::join!(self.current.wait(), self.earlier.wait());
    }

    /// The number of connections of the last socket.
    pub fn len(&self) -> usize {
        self.current.len()
    }

    /// Whether no connection is left.
    pub fn is_empty(&self) -> bool {
        self.current.is_empty() && self.earlier.is_empty()
    }
}

/// The tokens that end a listener's connections.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// Cancelled when the listener stops: each connection must end after its running requests.
    pub shutdown: &'a CancellationToken,
    /// Cancelled when all connections must end at once.
    pub cut: &'a CancellationToken,
}

/// Accepts connections and spawns `serve` for each, until `shutdown` is cancelled. Then the socket
/// closes, and all connections get `drain` to end before they are dropped, even if they came from
/// an earlier socket. `serve` must end its connection gracefully when its token is cancelled, and
/// record its requests in the [`ConnectionUse`].
pub async fn accept_and_spawn<F>(
    sockets: SocketReceiver,
    admissions: &Admissions,
    drain: impl Fn() -> Duration,
    shutdown: CancellationToken,
    serve: impl Fn(ClientStream, Arc<ConnectionUse>, bool, CancellationToken) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let cut = CancellationToken::new();
    let spawn = |stream, admission: Admission, together: &AcceptedTogether| {
        let usage = ConnectionUse::new(together.cut.child_token());
        let serving = serve(
            stream,
            Arc::clone(&usage),
            admission.is_reserve,
            together.shutdown.clone(),
        );
        let admitted = admission.enter(Arc::clone(&usage) as Arc<dyn Endable>);
        together.tasks.spawn(async move {
            usage.end.run_until_cancelled(serving).await;
            drop(admitted);
        });
    };
    let remaining = accept(
        sockets,
        admissions,
        Ends {
            shutdown: &shutdown,
            cut: &cut,
        },
        &drain,
        spawn,
    )
    .await;
    if timeout(drain(), remaining.ended()).await.is_err() {
        tracing::debug!(
            connections = remaining.len(),
            "connections dropped: not ended within the drain time"
        );
        cut.cancel();
        remaining.ended().await;
    }
}

/// Accepts connections and passes each to `begin`, until `shutdown` is cancelled; then the socket
/// closes. When the listener gets another socket, the connections of the earlier one get `drain` to
/// end.
pub async fn accept(
    mut sockets: SocketReceiver,
    admissions: &Admissions,
    ends: Ends<'_>,
    drain: impl Fn() -> Duration,
    mut begin: impl FnMut(ClientStream, Admission, &AcceptedTogether),
) -> Remaining {
    let earlier = TaskTracker::new();
    let mut socket = sockets.first.take();
    loop {
        let together = AcceptedTogether::new(ends.shutdown, ends.cut);
        let mut admitting = Admitting {
            admissions,
            limits: admissions.limits(),
            waiting: WaitingConnections::new(admissions.limits().waiting),
            begin: |stream, admission| begin(stream, admission, &together),
        };
        let accepting = async {
            match &socket {
                Some(socket) => admitting.run(socket).await,
                None => std::future::pending().await,
            }
        };
        let exchange = tokio::select! {
            biased;
            () = ends.shutdown.cancelled() => None,
            exchange = sockets.next() => Some(exchange),
            () = accepting => None,
        };
        // The system would reset connections in the socket's queue.
        if let Some(closing) = socket.take().and_then(Arc::into_inner) {
            closing
                .close(|stream, peer| admitting.arrive(stream, peer))
                .await;
        }
        // Waiting connections are closed, since another listener may not be allowed to serve them.
        drop(admitting);
        let Some(Exchange { next, done }) = exchange else {
            together.tasks.close();
            earlier.close();
            return Remaining {
                current: together.tasks,
                earlier,
            };
        };
        socket = next;
        earlier.spawn(together.end(drain()));
        // Nobody waits for this while Fanlight ends.
        let _ = done.send(());
    }
}

/// Decides how many connections of a listener are served. The limits can change; open connections
/// stay.
#[derive(Debug)]
pub struct Admissions {
    limit: ConcurrencyLimit,
    reserve: ConcurrencyLimit,
    limits: Mutex<AcceptLimits>,
    connections: Arc<Connections>,
}

impl Admissions {
    /// Admits connections within these limits.
    pub fn new(limits: AcceptLimits) -> Self {
        Self {
            limit: ConcurrencyLimit::new(limits.connections),
            reserve: ConcurrencyLimit::new(limits.reserve),
            limits: Mutex::new(limits),
            connections: Arc::default(),
        }
    }

    /// Changes the limits. The reserve does not change, nor does the number of waiting connections
    /// at a socket in use.
    pub fn set_limits(&self, limits: AcceptLimits) {
        *self.limits.lock() = limits;
        self.limit.resize(limits.connections);
    }

    fn limits(&self) -> AcceptLimits {
        *self.limits.lock()
    }
}

/// Decides which connections of a socket are served.
struct Admitting<'a, B> {
    admissions: &'a Admissions,
    /// The limits when the last connection arrived.
    limits: AcceptLimits,
    waiting: WaitingConnections<ClientStream>,
    begin: B,
}

impl<B: FnMut(ClientStream, Admission)> Admitting<'_, B> {
    async fn run(&mut self, socket: &ListeningSocket) {
        let mut retry = interval(RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut paused_until = None;
        loop {
            let is_waiting = !self.waiting.is_empty();
            // The next tick checks this again.
            let is_full = self.waiting.is_full() && self.waiting.longest_wait() < PATIENCE;
            tokio::select! {
                biased;
                Some(permit) = self.admissions.limit.acquire(), if is_waiting => self.begin_next(permit),
                _ = retry.tick(), if is_waiting => self.try_again(),
                () = sleep_until(paused_until.unwrap_or_else(Instant::now)), if paused_until.is_some() => {
                    paused_until = None;
                }
                accepted = socket.accept(), if paused_until.is_none() && !is_full => match accepted {
                    Ok((stream, peer)) => self.arrive(stream, peer),
                    Err(error) if concerns_one_connection(&error) => {
                        tracing::debug!(%error, "a connection ended before it was accepted");
                    }
                    // Any other error concerns the process; usually it has no file descriptors
                    // left. Accepting again at once would spin, and giving up would turn a shortage
                    // into an outage, so the loop pauses while connections close.
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    }
                },
            }
        }
    }

    /// Begins a connection of `peer`, or lets it wait.
    fn arrive(&mut self, stream: ClientStream, peer: ConnectionPeer) {
        self.limits = self.admissions.limits();
        let per_peer = self.limits.per_peer;
        if per_peer > 0
            && self.admissions.connections.count(peer) + self.waiting.count(peer) >= per_peer
            && !self.admissions.connections.make_space_within(peer)
        {
            tracing::debug!(
                limit = per_peer,
                "connection refused: its peer has too many"
            );
            return;
        }
        if self.waiting.is_empty()
            && let Some(permit) = self.admissions.limit.try_acquire()
        {
            return self.begin(stream, peer, permit, false);
        }
        let (limit, name) = (self.limits.connections, self.limits.name);
        tracing::warn!(
            limit,
            "all {name} connections are in use: the least needed ones end"
        );
        if let Some(lost) = self.waiting.push(stream, peer) {
            tracing::debug!(
                limit = self.limits.waiting,
                "connection closed: too many connections of its peer wait"
            );
            drop(lost);
        }
        self.make_space(peer);
        self.use_reserve();
    }

    /// Ends connections for those that still wait.
    fn try_again(&mut self) {
        let expired = self.waiting.expire(self.limits.longest_wait);
        if expired > 0 {
            tracing::debug!(
                expired,
                "waiting connections closed: no other one ended in time"
            );
        }
        self.waiting.reset();
        let mut peers = self.waiting.peers();
        peers.sort_by_key(|peer| self.admissions.connections.count(*peer));
        for peer in peers.into_iter().take(AT_ONCE) {
            self.make_space(peer);
        }
        self.use_reserve();
    }

    /// Ends another connection for one of this peer, unless one is already ending for it, or an
    /// earlier attempt was in vain.
    fn make_space(&mut self, peer: ConnectionPeer) {
        if self.waiting.is_settled(peer) {
            return;
        }
        let is_ending = self
            .admissions
            .connections
            .make_space(peer, self.limits.connections);
        self.waiting.note(peer, is_ending);
    }

    /// Serves connections that nothing could be ended for, beyond the limit, as far as the reserve
    /// allows.
    fn use_reserve(&mut self) {
        if self.limits.reserve == 0 {
            return;
        }
        while let Some(permit) = self.admissions.reserve.try_acquire() {
            let Some((stream, peer)) = self
                .waiting
                .next_in_vain(|peer| self.admissions.connections.count(peer))
            else {
                return;
            };
            self.begin(stream, peer, permit, true);
        }
    }

    /// Begins the waiting connections whose turn it is.
    fn begin_next(&mut self, permit: Permit) {
        let mut permit = Some(permit);
        while let Some(free) = permit.take()
            && let Some((stream, peer)) = self
                .waiting
                .next(|peer| self.admissions.connections.count(peer))
        {
            self.begin(stream, peer, free, false);
            permit = self.admissions.limit.try_acquire();
            if permit.is_none() {
                self.make_space(peer);
            }
        }
    }

    fn begin(
        &mut self,
        stream: ClientStream,
        peer: ConnectionPeer,
        permit: Permit,
        is_reserve: bool,
    ) {
        let connections = Arc::clone(&self.admissions.connections);
        (self.begin)(
            stream,
            Admission {
                permit,
                connections,
                peer,
                is_reserve,
            },
        );
    }
}

/// The connections that wait.
#[derive(Debug)]
struct WaitingConnections<T> {
    /// The waiting connections by their numbers, in the order of arrival.
    all: Table<ConnectionPeer, u64, WaitingConnection<T>>,
    next: u64,
    limit: usize,
}

#[derive(Debug)]
struct WaitingConnection<T> {
    stream: T,
    since: Instant,
    prospect: Prospect,
}

/// The prospect of a waiting connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prospect {
    Unknown,
    /// Another connection is being closed for this one.
    Promised,
    /// No connection could be closed for this one.
    InVain,
}

impl<T> WaitingConnections<T> {
    /// Allows at most `limit` waiting connections, at least one.
    fn new(limit: usize) -> Self {
        Self {
            all: Table::default(),
            next: 0,
            limit: limit.max(1),
        }
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn is_full(&self) -> bool {
        self.all.len() >= self.limit
    }

    /// How long the first connection has waited.
    fn longest_wait(&self) -> Duration {
        self.all
            .values()
            .map(|one| one.since.elapsed())
            .max()
            .unwrap_or_default()
    }

    /// The number of `peer`'s waiting connections.
    fn count(&self, peer: ConnectionPeer) -> usize {
        self.all.count(&peer)
    }

    /// Adds a connection. If that exceeds the limit, returns the newest of the peer with the most.
    fn push(&mut self, stream: T, peer: ConnectionPeer) -> Option<T> {
        let prospect = if self.is_in_vain(peer) {
            Prospect::InVain
        } else {
            Prospect::Unknown
        };
        let number = self.next;
        self.next += 1;
        self.all.insert(
            number,
            peer,
            WaitingConnection {
                stream,
                since: Instant::now(),
                prospect,
            },
        );
        if self.all.len() <= self.limit {
            return None;
        }
        // The new connection counts already.
        let newest = self
            .all
            .newcomer(&peer, self.limit)
            .find_in_largest(1, |one| Some(Reverse(*one.key)))
            .pop()?;
        self.all.remove(&newest).map(|lost| lost.stream)
    }

    /// Takes the connection whose turn it is: of the peer with the fewest in `open`, the one that
    /// has waited longest.
    fn next(&mut self, open: impl Fn(ConnectionPeer) -> usize) -> Option<(T, ConnectionPeer)> {
        self.next_of(open, |_| true)
    }

    /// Takes the next connection for which nothing could be ended.
    fn next_in_vain(
        &mut self,
        open: impl Fn(ConnectionPeer) -> usize,
    ) -> Option<(T, ConnectionPeer)> {
        self.next_of(open, |prospect| prospect == Prospect::InVain)
    }

    fn next_of(
        &mut self,
        open: impl Fn(ConnectionPeer) -> usize,
        is_meant: impl Fn(Prospect) -> bool,
    ) -> Option<(T, ConnectionPeer)> {
        let first = |peer: &ConnectionPeer| {
            let meant = self
                .all
                .share_entries(peer)
                .filter(|(_, one)| is_meant(one.prospect));
            meant.map(|(number, _)| *number).min()
        };
        let turns = self
            .all
            .shares()
            .filter_map(|peer| Some((open(*peer), first(peer)?, *peer)));
        let (_, number, peer) = turns.min_by_key(|(open, number, _)| (*open, *number))?;
        self.all.remove(&number).map(|next| (next.stream, peer))
    }

    /// Whether nothing is to be done for this peer now. Another connection is already ending for
    /// it, or nothing could be ended, or none of its connections waits.
    fn is_settled(&self, peer: ConnectionPeer) -> bool {
        let mut own = self.all.share_entries(&peer);
        self.count(peer) == 0 || own.any(|(_, one)| one.prospect != Prospect::Unknown)
    }

    /// Whether the last attempt to end a connection for this peer was in vain.
    fn is_in_vain(&self, peer: ConnectionPeer) -> bool {
        self.all
            .share_entries(&peer)
            .any(|(_, one)| one.prospect == Prospect::InVain)
    }

    /// Records whether another connection is ending for this peer.
    fn note(&mut self, peer: ConnectionPeer, is_ending: bool) {
        let mut own: Vec<_> = self
            .all
            .share_entries(&peer)
            .map(|(number, _)| *number)
            .collect();
        own.sort_unstable();
        let (noted, prospect) = if is_ending {
            (1, Prospect::Promised)
        } else {
            (own.len(), Prospect::InVain)
        };
        for number in own.iter().take(noted) {
            self.all
                .get_mut(number)
                .into_iter()
                .for_each(|one| one.prospect = prospect);
        }
    }

    /// Forgets the prospects, so that all are determined again.
    fn reset(&mut self) {
        self.all
            .values_mut()
            .for_each(|one| one.prospect = Prospect::Unknown);
    }

    /// The peers of waiting connections, each once, the one that has waited longest first.
    fn peers(&self) -> Vec<ConnectionPeer> {
        let first = |peer: &ConnectionPeer| {
            self.all
                .share_entries(peer)
                .map(|(number, _)| *number)
                .min()
        };
        let mut peers: Vec<_> = self.all.shares().copied().collect();
        peers.sort_by_cached_key(first);
        peers
    }

    /// Removes connections that have waited for `longest`; returns their number.
    fn expire(&mut self, longest: Duration) -> usize {
        self.all
            .remove_if(|_, one| one.since.elapsed() >= longest)
            .len()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;

    use super::*;
    use crate::socket::{ListeningSocket, SocketSender, sockets};

    fn socket() -> (Arc<ListeningSocket>, std::net::SocketAddr) {
        let socket = ListeningSocket::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.address().unwrap().ip().unwrap();
        (Arc::new(socket), address)
    }

    fn listening() -> (SocketSender, SocketReceiver, std::net::SocketAddr) {
        let (socket, address) = socket();
        let (sender, receiver) = sockets(Some(socket));
        (sender, receiver, address)
    }

    fn limits(connections: usize) -> AcceptLimits {
        let longest_wait = Duration::from_secs(9);
        AcceptLimits {
            connections,
            waiting: 3,
            longest_wait,
            reserve: 0,
            per_peer: 0,
            name: "limits.test",
        }
    }

    /// Accepts with these limits; returns the address, and the reserve flags of accepted
    /// connections. If `is_busy`, each connection carries a request.
    async fn accepting(
        limits: AcceptLimits,
        is_busy: bool,
    ) -> (
        std::net::SocketAddr,
        mpsc::UnboundedReceiver<bool>,
        CancellationToken,
    ) {
        let (_, listener, address) = listening();
        let (opened, connections) = mpsc::unbounded_channel();
        let shutdown = CancellationToken::new();
        let serve = move |stream: ClientStream, usage: Arc<ConnectionUse>, is_reserve, _| {
            let opened = opened.clone();
            async move {
                let _request = is_busy.then(|| usage.begin());
                let _ = opened.send(is_reserve);
                // Ends when the client closes the connection.
                let ClientStream::Tcp(mut stream) = stream else {
                    return;
                };
                let _ = stream.read_u8().await;
            }
        };
        let ending = shutdown.clone();
        tokio::spawn(async move {
            accept_and_spawn(
                listener,
                &Admissions::new(limits),
                || Duration::ZERO,
                ending,
                serve,
            )
            .await;
        });
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
        assert_eq!(
            open[0].read(&mut [0]).await.unwrap_or_default(),
            0,
            "the oldest has ended"
        );
        assert!(
            timeout(RETRY, open[1].read_u8()).await.is_err(),
            "the next has not"
        );
    }

    #[tokio::test]
    async fn reserve_is_used_when_all_others_are_busy() {
        let reserving = AcceptLimits {
            reserve: 1,
            ..limits(2)
        };
        let (address, mut connections, _shutdown) = accepting(reserving, true).await;
        let mut open = Vec::new();
        for is_reserve in [false, false, true] {
            open.push(TcpStream::connect(address).await.unwrap());
            assert_eq!(connections.recv().await, Some(is_reserve));
        }
    }

    #[tokio::test]
    async fn quota_of_a_peer_ends_its_own_idle_connection() {
        let quota = AcceptLimits {
            per_peer: 1,
            ..limits(9)
        };
        let (address, mut connections, _shutdown) = accepting(quota, false).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        connections.recv().await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        connections.recv().await.unwrap();
        assert_eq!(first.read(&mut [0]).await.unwrap_or_default(), 0);
    }

    /// Serves connections that never end by themselves.
    fn stuck(
        drain: Duration,
    ) -> (
        SocketSender,
        std::net::SocketAddr,
        CancellationToken,
        tokio::task::JoinHandle<()>,
    ) {
        let (sender, listener, address) = listening();
        let shutdown = CancellationToken::new();
        let serve = |stream: ClientStream, _, _, _| async move {
            let _open = stream;
            std::future::pending::<()>().await;
        };
        let ending = shutdown.clone();
        let accepting = tokio::spawn(async move {
            accept_and_spawn(
                listener,
                &Admissions::new(limits(9)),
                || drain,
                ending,
                serve,
            )
            .await;
        });
        (sender, address, shutdown, accepting)
    }

    #[tokio::test]
    async fn shutdown_drops_connections_after_the_drain_time() {
        let (_sender, address, shutdown, accepting) = stuck(Duration::ZERO);
        let mut client = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        accepting.await.unwrap();
        assert!(client.read_u8().await.is_err());
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn exchanged_socket_is_closed_and_its_connections_end_after_the_drain_time() {
        let (sender, old, shutdown, accepting) = stuck(Duration::from_millis(50));
        let mut first = TcpStream::connect(old).await.unwrap();
        let (next, new) = socket();
        assert!(sender.exchange(Some(next)).await);
        assert!(
            TcpStream::connect(old).await.is_err(),
            "the old address is not reachable"
        );
        let mut second = TcpStream::connect(new).await.unwrap();
        assert!(first.read_u8().await.is_err(), "dropped");
        assert!(timeout(RETRY, second.read_u8()).await.is_err(), "kept");
        assert!(sender.exchange(None).await);
        assert!(TcpStream::connect(new).await.is_err());
        shutdown.cancel();
        accepting.await.unwrap();
        assert!(!sender.exchange(None).await);
    }

    #[tokio::test]
    async fn exchanged_sockets_of_two_listeners_stay_open() {
        let ((first, a, _end_a, _), (second, b, _end_b, _)) =
            (stuck(Duration::from_secs(9)), stuck(Duration::from_secs(9)));
        let (of_first, of_second) = (first.current().unwrap(), second.current().unwrap());
        assert!(first.exchange(Some(of_second)).await && second.exchange(Some(of_first)).await);
        for address in [a, b] {
            TcpStream::connect(address).await.unwrap();
        }
    }

    fn peer(last: u8) -> ConnectionPeer {
        ConnectionPeer::Address([10, 0, 0, last].into())
    }

    fn waiting(limit: usize, each: &[(u32, u8)]) -> (WaitingConnections<u32>, Vec<u32>) {
        let mut waiting = WaitingConnections::new(limit);
        let lost = each
            .iter()
            .filter_map(|(stream, of)| waiting.push(*stream, peer(*of)))
            .collect();
        (waiting, lost)
    }

    #[test]
    fn peer_with_most_waiting_connections_loses_its_newest() {
        let (waiting, lost) = waiting(3, &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 3), (7, 4)]);
        assert_eq!(lost, [4, 3, 2, 7]);
        assert_eq!([1, 2, 3, 4].map(|of| waiting.count(peer(of))), [1, 1, 1, 0]);
    }

    #[test]
    fn peer_with_fewest_open_connections_is_next() {
        let (mut waiting, _) = waiting(9, &[(1, 1), (2, 2), (3, 1), (4, 3)]);
        let open = |of: ConnectionPeer| if of == peer(1) { 5 } else { 0 };
        let order: Vec<_> = std::iter::from_fn(|| waiting.next(open))
            .map(|(stream, _)| stream)
            .collect();
        assert_eq!(order, [2, 4, 1, 3]);
    }

    #[test]
    fn attempt_in_vain_counts_for_all_of_a_peer() {
        let (mut waiting, _) = waiting(9, &[(1, 1), (2, 2)]);
        waiting.note(peer(1), false);
        waiting.push(3, peer(1));
        assert_eq!([1, 2].map(|of| waiting.is_in_vain(peer(of))), [true, false]);
        assert_eq!(waiting.peers(), [peer(1), peer(2)]);
        assert_eq!(waiting.next_in_vain(|_| 0), Some((1, peer(1))));
        waiting.reset();
        assert!(!waiting.is_in_vain(peer(1)));
    }

    #[test]
    fn one_connection_at_a_time_ends_for_a_peer() {
        let (mut waiting, _) = waiting(9, &[(1, 1), (2, 2), (3, 1)]);
        let settled =
            |waiting: &WaitingConnections<u32>| [1, 2, 3].map(|of| waiting.is_settled(peer(of)));
        assert_eq!(settled(&waiting), [false, false, true]);
        waiting.note(peer(1), true);
        assert_eq!(settled(&waiting), [true, false, true]);
        assert_eq!(waiting.next_in_vain(|_| 0), None);
        assert_eq!(waiting.next(|_| 0), Some((1, peer(1))));
        assert_eq!(settled(&waiting), [false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_does_not_wait_for_ever() {
        let (mut waiting, _) = waiting(9, &[(1, 1)]);
        tokio::time::advance(Duration::from_secs(5)).await;
        waiting.push(2, peer(1));
        assert_eq!(waiting.longest_wait(), Duration::from_secs(5));
        assert_eq!(
            (
                waiting.expire(Duration::from_secs(5)),
                waiting.count(peer(1))
            ),
            (1, 1)
        );
        assert!(!waiting.is_empty());
    }
}
