//! Listening TCP and Unix sockets, and their accepted connections.

mod exchange;
mod unix;

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;

use fanlight_config::settings::ListenAddress;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};

use crate::connections::{ConnectionPeer, peer_of};

pub(crate) use self::exchange::Exchange;
pub use self::exchange::{SocketReceiver, SocketSender, sockets};
use self::unix::UnixSocket;

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
