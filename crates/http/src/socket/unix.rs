//! A listening Unix socket and its file.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use super::accept_waiting;

/// The permissions of a socket file. Users who may write to it may connect.
const MODE: u32 = 0o660;

/// A listening Unix socket.
#[derive(Debug)]
pub(super) struct UnixSocket {
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
    pub(super) fn bind(path: &Path, backlog: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
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
    pub(super) fn passed(socket: StdUnixListener) -> io::Result<Self> {
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
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// The next connection, and its client's user id. Cancel safe.
    pub(super) async fn accept(&self) -> io::Result<(UnixStream, u32)> {
        let (stream, _) = self.socket.accept().await?;
        let user = user_of(&stream)?;
        Ok((stream, user))
    }

    /// Removes the file, then passes waiting connections to `begin`.
    pub(super) fn close(self, mut begin: impl FnMut(UnixStream, u32)) {
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
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
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
