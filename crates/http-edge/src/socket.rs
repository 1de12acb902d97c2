//! Listening sockets, and how a listener gets another one while it serves.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// Connections that wait to be accepted, as many as `TcpListener::bind` allows.
const BACKLOG: u32 = 1024;
/// How long handshakes may take that have begun before a socket is closed which shares its address. No option: the
/// connections of most clients take less, and new ones are delayed meanwhile.
const HANDSHAKES: Duration = Duration::from_millis(100);
/// Exchanges of sockets that wait for the running one.
const WAITING: usize = 1;

/// A listening socket.
#[derive(Debug)]
pub struct ListeningSocket {
    socket: TcpListener,
    /// Whether another process has it, too: then connections that wait in its queue stay there.
    is_passed: bool,
}

impl ListeningSocket {
    /// Listens at `address`; with `reuse_port` other sockets may, too.
    ///
    /// # Errors
    ///
    /// If the system does not allow that.
    pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // As `TcpListener::bind` does: connections of an earlier process may still be in `TIME_WAIT`.
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(reuse_port)?;
        socket.bind(address)?;
        Ok(Self { socket: socket.listen(BACKLOG)?, is_passed: false })
    }

    /// A socket that the service manager has opened, and keeps.
    #[must_use]
    pub fn passed(socket: TcpListener) -> Self {
        Self { socket, is_passed: true }
    }

    /// Whether the service manager has opened it.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.is_passed
    }

    /// Its address.
    ///
    /// # Errors
    ///
    /// If the system does not know it.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Whether other sockets may listen at the same address (`SO_REUSEPORT`).
    #[must_use]
    pub fn shares_port(&self) -> bool {
        SockRef::from(&self.socket).reuse_port().unwrap_or(false)
    }

    /// Changes whether other sockets may listen at the same address, from now on.
    ///
    /// # Errors
    ///
    /// If the system does not allow that.
    pub fn set_shares_port(&self, shares: bool) -> io::Result<()> {
        SockRef::from(&self.socket).set_reuse_port(shares)
    }

    /// The next connection. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.socket.accept().await
    }

    /// Closes the socket. The system would reset connections that wait in its queue: they are handed to `begin`.
    ///
    /// Where another socket shares the address, the system has decided with the first packet of a connection which of them
    /// gets it, and resets it if that one is closed before the handshake has ended. So new connections are ignored first:
    /// their clients send the packet again after a second, and reach the other socket.
    pub(crate) async fn close(self, mut begin: impl FnMut(TcpStream, IpAddr)) {
        if self.is_passed {
            return;
        }
        let shares_port = self.shares_port();
        // tokio learns of connections a moment later than the system.
        let Ok(socket) = self.socket.into_std() else { return };
        if shares_port && ignore_new(&socket) {
            accept_all(&socket, &mut begin);
            sleep(HANDSHAKES).await;
        }
        accept_all(&socket, &mut begin);
    }
}

/// Hands the connections that wait in the queue of a socket to `begin`.
fn accept_all(socket: &std::net::TcpListener, begin: &mut impl FnMut(TcpStream, IpAddr)) {
    for _ in 0..BACKLOG {
        match socket.accept() {
            Ok((stream, peer)) => {
                let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                stream.into_iter().for_each(|stream| begin(stream, peer.ip()));
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(_) => break,
        }
    }
}

/// Has the system drop the first packet of new connections; returns whether it does.
#[cfg(target_os = "linux")]
fn ignore_new(socket: &std::net::TcpListener) -> bool {
    use socket2::SockFilter;
    // Classic BPF on the TCP header (linux/filter.h): SYN and no ACK among the flags in byte 13.
    let filter = [
        // BPF_LD | BPF_B | BPF_ABS
        SockFilter::new(0x30, 0, 0, 13),
        // BPF_ALU | BPF_AND | BPF_K
        SockFilter::new(0x54, 0, 0, 0x12),
        // BPF_JMP | BPF_JEQ | BPF_K
        SockFilter::new(0x15, 0, 1, 0x02),
        // BPF_RET | BPF_K: nothing of the packet is kept, or all of it.
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    SockRef::from(socket).attach_filter(&filter).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn ignore_new(_: &std::net::TcpListener) -> bool {
    false
}

/// Whether an error of accepting a connection concerns no other.
pub(crate) fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// What a listener is to serve from now on.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// `None` to serve nothing.
    pub(crate) next: Option<Arc<ListeningSocket>>,
    /// Resolved once the listener accepts no more connections on the earlier one.
    pub(crate) done: oneshot::Sender<()>,
}

/// Gives a listener its sockets, one after the other.
#[derive(Debug)]
pub struct SocketSender {
    exchanges: mpsc::Sender<Exchange>,
    /// The listener alone keeps it open.
    current: Mutex<Weak<ListeningSocket>>,
}

/// The sockets of a listener.
#[derive(Debug)]
pub struct SocketReceiver {
    /// The one to begin with.
    pub(crate) first: Option<Arc<ListeningSocket>>,
    exchanges: mpsc::Receiver<Exchange>,
}

/// The sockets of a listener that begins with `first`.
#[must_use]
pub fn sockets(first: Option<Arc<ListeningSocket>>) -> (SocketSender, SocketReceiver) {
    let (sender, exchanges) = mpsc::channel(WAITING);
    let current = first.as_ref().map(Arc::downgrade).unwrap_or_default();
    (SocketSender { exchanges: sender, current: Mutex::new(current) }, SocketReceiver { first, exchanges })
}

impl SocketSender {
    /// The socket on which connections are accepted now, if there is one.
    #[must_use]
    pub fn current(&self) -> Option<Arc<ListeningSocket>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Has the listener accept connections on `next` instead of its current socket, which is closed then, unless another
    /// listener uses it. Returns once that has happened: false if the listener has stopped.
    pub async fn exchange(&self, next: Option<Arc<ListeningSocket>>) -> bool {
        let weak = next.as_ref().map(Arc::downgrade).unwrap_or_default();
        let (done, is_done) = oneshot::channel();
        if self.exchanges.send(Exchange { next, done }).await.is_err() || is_done.await.is_err() {
            return false;
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = weak;
        true
    }
}

impl SocketReceiver {
    /// Those of a listener that keeps its socket.
    #[must_use]
    pub fn only(socket: TcpListener) -> Self {
        let socket = ListeningSocket { socket, is_passed: false };
        sockets(Some(Arc::new(socket))).1
    }

    /// The next exchange; waits for ever once there can be none. Cancel safe.
    pub(crate) async fn next(&mut self) -> Exchange {
        match self.exchanges.recv().await {
            Some(exchange) => exchange,
            None => std::future::pending().await,
        }
    }
}
