//! Standard input and output as asynchronous streams, without a helper thread if the system allows
//! it.
//!
//! tokio does each read and write of the standard streams on a thread for blocking work, because
//! other programs may hold the same open file and must not find it non-blocking. Streams that a
//! client creates for the server that it starts are not shared like that. So a pipe is reopened,
//! which does not affect other holders. A socket of a pair is made non-blocking, unless standard
//! error is the same socket. Anything else, such as a terminal or a file, is left to tokio.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::OpenOptions;

/// A stream to read from.
pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
/// A stream to write to.
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input.
pub(crate) fn input() -> Input {
    let stdin = io::stdin();
    if let Ok(pipe) = OpenOptions::new().open_receiver("/proc/self/fd/0") {
        return Box::new(pipe);
    }
    match own_socket(stdin.as_fd(), io::stderr()) {
        Ok(socket) => Box::new(socket),
        Err(_) => Box::new(tokio::io::stdin()),
    }
}

/// Standard output.
pub(crate) fn output() -> Output {
    let stdout = io::stdout();
    if let Ok(pipe) = OpenOptions::new().open_sender("/proc/self/fd/1") {
        return Box::new(pipe);
    }
    match own_socket(stdout.as_fd(), io::stderr()) {
        Ok(socket) => Box::new(socket),
        Err(_) => Box::new(tokio::io::stdout()),
    }
}

/// `file` as a non-blocking socket, if it is a socket and not the one that `log` writes to, where
/// log lines would be lost.
fn own_socket(file: impl AsFd, log: impl AsFd) -> io::Result<UnixStream> {
    let file = File::from(file.as_fd().try_clone_to_owned()?);
    let (socket, log) = (
        file.metadata()?,
        File::from(log.as_fd().try_clone_to_owned()?).metadata()?,
    );
    if !socket.file_type().is_socket() || (socket.dev(), socket.ino()) == (log.dev(), log.ino()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let socket = std::os::unix::net::UnixStream::from(std::os::fd::OwnedFd::from(file));
    // This fails for a TCP socket, which is left to tokio.
    socket.local_addr()?;
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream as Blocking;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn own_socket_accepts_one_socket_of_a_pair() {
        let (ours, theirs) = Blocking::pair().unwrap();
        let mut ours = own_socket(ours, io::stderr()).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut theirs = UnixStream::from_std(theirs).unwrap();
        theirs.write_all(b"there").await.unwrap();
        let mut read = [0; 5];
        ours.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"there");
    }

    #[tokio::test]
    async fn own_socket_refuses_the_socket_of_the_log() {
        let (ours, _theirs) = Blocking::pair().unwrap();
        assert!(own_socket(&ours, &ours).is_err());
        assert!(own_socket(File::open("/dev/null").unwrap(), &ours).is_err());
    }
}
