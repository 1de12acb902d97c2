//! Listening TCP and Unix sockets, and their accepted connections.

mod unix;

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::{Arc, Weak};

use fanlight_config::settings::ListenAddress;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};

use crate::connections::{ConnectionPeer, peer_of};
use unix::UnixSocket;

/// The length of the accept queue, the same as in `TcpListener::bind`.
const BACKLOG: u32 = 1024;
/// A listening socket.
#[derive(Debug)]
pub struct ListeningSocket {
    socket: Socket,
    /// Whether another process has the socket, too. Connections in its queue then stay there.
    is_passed: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

/// An accepted connection.
#[derive(Debug)]
pub enum ClientStream {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A Unix socket connection.
    Unix(UnixStream),
}

impl ListeningSocket {
    /// Listens at `address`. Creates the file of a Unix socket, and replaces a file at which no
    /// process listens.
    ///
    /// # Errors
    ///
    /// If the system does not allow it.
    pub fn bind(address: &ListenAddress) -> io::Result<Self> {
        let address = match address {
            ListenAddress::Ip(address) => *address,
            ListenAddress::Unix(path) => {
                let socket = Socket::Unix(UnixSocket::bind(path, BACKLOG)?);
                return Ok(Self {
                    socket,
                    is_passed: false,
                });
            }
        };
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // As in `TcpListener::bind`: connections of an earlier process may still be in `TIME_WAIT`.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self::own(socket.listen(BACKLOG)?))
    }

    fn own(socket: TcpListener) -> Self {
        Self {
            socket: Socket::Tcp(socket),
            is_passed: false,
        }
    }

    /// A socket that the service manager has opened, and keeps.
    pub fn from_service_manager(socket: TcpListener) -> Self {
        Self {
            socket: Socket::Tcp(socket),
            is_passed: true,
        }
    }

    /// A Unix socket that the service manager has opened, and keeps with its file.
    ///
    /// # Errors
    ///
    /// If it has no file.
    pub fn passed_unix(socket: StdUnixListener) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::Unix(UnixSocket::passed(socket)?),
            is_passed: true,
        })
    }

    /// Whether the service manager has opened it.
    pub fn is_passed(&self) -> bool {
        self.is_passed
    }

    /// The address.
    ///
    /// # Errors
    ///
    /// If the system does not know it.
    pub fn address(&self) -> io::Result<ListenAddress> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().map(ListenAddress::Ip),
            Socket::Unix(socket) => Ok(ListenAddress::Unix(socket.path().to_owned())),
        }
    }

    /// The next connection. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<(ClientStream, ConnectionPeer)> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, address) = socket.accept().await?;
                Ok((
                    ClientStream::Tcp(stream),
                    ConnectionPeer::Address(peer_of(address.ip())),
                ))
            }
            Socket::Unix(socket) => {
                let (stream, user) = socket.accept().await?;
                Ok((ClientStream::Unix(stream), ConnectionPeer::User(user)))
            }
        }
    }

    /// Closes the socket. Passes connections in its queue to `begin`; the system would reset them.
    pub(crate) async fn close(self, mut begin: impl FnMut(ClientStream, ConnectionPeer)) {
        if self.is_passed {
            return;
        }
        // tokio learns of connections a moment later than the system.
        let socket = match self.socket {
            Socket::Tcp(socket) => socket,
            Socket::Unix(socket) => {
                return socket.close(|stream, user| {
                    begin(ClientStream::Unix(stream), ConnectionPeer::User(user));
                });
            }
        };
        let Ok(socket) = socket.into_std() else {
            return;
        };
        accept_waiting(
            || socket.accept(),
            |(stream, address)| {
                let stream = stream
                    .set_nonblocking(true)
                    .and_then(|()| TcpStream::from_std(stream));
                let peer = ConnectionPeer::Address(peer_of(address.ip()));
                stream
                    .into_iter()
                    .for_each(|stream| begin(ClientStream::Tcp(stream), peer));
            },
        );
    }
}

/// Passes the connections in a socket's queue to `begin`.
fn accept_waiting<T>(mut accept: impl FnMut() -> io::Result<T>, mut begin: impl FnMut(T)) {
    for _ in 0..BACKLOG {
        match accept() {
            Ok(accepted) => begin(accepted),
            Err(error) if concerns_one_connection(&error) => {}
            Err(_) => break,
        }
    }
}

/// Whether an error of accepting concerns only one connection.
pub(crate) fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// The number of exchanges that may wait for the running one.
const WAITING: usize = 1;

/// The next socket of a listener.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// `None` to serve nothing.
    pub(crate) next: Option<Arc<ListeningSocket>>,
    /// Resolved once the listener accepts no more connections on the earlier socket.
    pub(crate) done: oneshot::Sender<()>,
}

/// Gives a listener its sockets, one after the other.
#[derive(Debug)]
pub struct SocketSender {
    exchanges: mpsc::Sender<Exchange>,
    /// Weak, since only the listener keeps the socket open.
    current: Mutex<Weak<ListeningSocket>>,
}

/// The sockets of a listener.
#[derive(Debug)]
pub struct SocketReceiver {
    pub(crate) first: Option<Arc<ListeningSocket>>,
    exchanges: mpsc::Receiver<Exchange>,
}

/// The sockets of a listener that begins with `first`.
pub fn sockets(first: Option<Arc<ListeningSocket>>) -> (SocketSender, SocketReceiver) {
    let (sender, exchanges) = mpsc::channel(WAITING);
    let current = first.as_ref().map(Arc::downgrade).unwrap_or_default();
    (
        SocketSender {
            exchanges: sender,
            current: Mutex::new(current),
        },
        SocketReceiver { first, exchanges },
    )
}

impl SocketSender {
    /// The socket that accepts connections now, if there is one.
    #[must_use]
    pub fn current(&self) -> Option<Arc<ListeningSocket>> {
        self.current.lock().upgrade()
    }

    /// Makes the listener accept connections on `next` instead of its current socket. That socket
    /// then closes, unless another listener uses it. Returns once this is done; false if the
    /// listener has stopped.
    pub async fn exchange(&self, next: Option<Arc<ListeningSocket>>) -> bool {
        let weak = next.as_ref().map(Arc::downgrade).unwrap_or_default();
        let (done, is_done) = oneshot::channel();
        if self.exchanges.send(Exchange { next, done }).await.is_err() || is_done.await.is_err() {
            return false;
        }
        *self.current.lock() = weak;
        true
    }
}

impl SocketReceiver {
    /// The sockets of a listener that keeps its current one.
    pub fn fixed(socket: TcpListener) -> Self {
        sockets(Some(Arc::new(ListeningSocket::own(socket)))).1
    }

    /// The next exchange; never resolves if there can be none. Cancel safe.
    pub(crate) async fn next(&mut self) -> Exchange {
        match self.exchanges.recv().await {
            Some(exchange) => exchange,
            None => std::future::pending().await,
        }
    }
}
