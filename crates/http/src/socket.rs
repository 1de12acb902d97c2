//! Listening TCP and Unix sockets, and their accepted connections.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fanlight_config::settings::ListenAddress;
use parking_lot::Mutex;
use socket2::{Domain, SockAddr, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

use crate::{ConnectionPeer, peer_of};

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

/// The permissions of a socket file. Users who may write to it may connect.
const MODE: u32 = 0o660;

/// A listening Unix socket.
#[derive(Debug)]
struct UnixSocket {
    socket: UnixListener,
    file: SocketFile,
}

/// The file of a listening socket. Dropping this removes the file, unless another has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// The device and inode of the file; `None` for a file of another process.
    id: Option<(u64, u64)>,
}

impl UnixSocket {
    /// Creates the socket's file with the permissions [`MODE`]. Replaces a file at which no process
    /// listens.
    fn bind(path: &Path, backlog: u32) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let address = SockAddr::unix(path)?;
        match socket.bind(&address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path, &address)? =>
            {
                fs::remove_file(path)?;
                socket.bind(&address)?;
            }
            bound => bound?,
        }
        let file = SocketFile {
            path: path.to_owned(),
            id: id_of(path),
        };
        // Connections are refused until the socket listens, so nobody gets in before the file has
        // its permissions.
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        socket.set_nonblocking(true)?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(Self {
            socket: UnixListener::from_std(socket.into())?,
            file,
        })
    }

    /// A socket of another process, which keeps the file.
    fn passed(socket: StdUnixListener) -> io::Result<Self> {
        let path = socket.local_addr()?.as_pathname().map(Path::to_owned);
        let path = path
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the socket has no file"))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixListener::from_std(socket)?,
            file: SocketFile { path, id: None },
        })
    }

    /// The path of its file.
    fn path(&self) -> &Path {
        &self.file.path
    }

    /// The next connection, and its client's user id. Cancel safe.
    async fn accept(&self) -> io::Result<(UnixStream, u32)> {
        let (stream, _) = self.socket.accept().await?;
        let user = user_of(&stream)?;
        Ok((stream, user))
    }

    /// Removes the file, then passes waiting connections to `begin`.
    fn close(self, mut begin: impl FnMut(UnixStream, u32)) {
        let Self { socket, file } = self;
        drop(file);
        let Ok(socket) = socket.into_std() else {
            return;
        };
        accept_waiting(
            || socket.accept(),
            |(stream, _)| {
                let stream = stream
                    .set_nonblocking(true)
                    .and_then(|()| UnixStream::from_std(stream));
                let accepted = stream.and_then(|stream| Ok((user_of(&stream)?, stream)));
                accepted
                    .into_iter()
                    .for_each(|(user, stream)| begin(stream, user));
            },
        );
    }
}

/// The user id of the process that has connected. A connection without one is not served.
fn user_of(stream: &UnixStream) -> io::Result<u32> {
    stream
        .peer_cred()
        .map(|peer| peer.uid())
        .map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))
}

/// Whether a file is a socket at which no process listens, because its process ended without
/// removing it.
fn is_abandoned(path: &Path, address: &SockAddr) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A process with a full queue would otherwise keep this one waiting.
    probe.set_nonblocking(true)?;
    Ok(probe
        .connect(address)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path)
        .ok()
        .map(|file| (file.dev(), file.ino()))
}

impl SocketFile {
    fn is_own(&self) -> bool {
        self.id.is_some() && id_of(&self.path) == self.id
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_own()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "file of a closed Unix socket not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn path(folder: &TempDir) -> PathBuf {
        folder.path().join("s")
    }

    #[tokio::test]
    async fn file_has_its_mode_and_is_removed_with_the_socket() {
        let folder = TempDir::new().unwrap();
        let path = path(&folder);
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let socket = UnixSocket::bind(&path, 9).unwrap();
        assert_eq!(mode(), 0o660);
        let _client = UnixStream::connect(&path).await.unwrap();
        assert_eq!(
            socket.accept().await.unwrap().1,
            fs::metadata(&path).unwrap().uid()
        );
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn only_an_abandoned_socket_is_replaced() {
        let folder = TempDir::new().unwrap();
        let path = path(&folder);
        drop(StdUnixListener::bind(&path).unwrap());
        let first = UnixSocket::bind(&path, 1).unwrap();
        for _ in 0..3 {
            let error = UnixSocket::bind(&path, 1).unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::AddrInUse,
                "also with a full queue"
            );
        }
        drop(first);
        fs::write(&path, "mine").unwrap();
        assert!(UnixSocket::bind(&path, 1).is_err());
        assert_eq!(
            fs::read(&path).unwrap(),
            b"mine",
            "a file that is no socket stays"
        );
    }

    #[tokio::test]
    async fn file_of_a_successor_stays() {
        let folder = TempDir::new().unwrap();
        let path = path(&folder);
        let first = UnixSocket::bind(&path, 1).unwrap();
        fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        let _second = StdUnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn connections_that_wait_outlast_the_file() {
        let folder = TempDir::new().unwrap();
        let path = path(&folder);
        let socket = UnixSocket::bind(&path, 9).unwrap();
        let _clients = [
            UnixStream::connect(&path).await.unwrap(),
            UnixStream::connect(&path).await.unwrap(),
        ];
        let mut accepted = 0;
        socket.close(|_, _| accepted += 1);
        assert_eq!((accepted, path.exists()), (2, false));
    }
}
