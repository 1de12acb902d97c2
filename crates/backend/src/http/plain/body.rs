//! The body of a response, with the connection it comes on.
//!
//! Must not know: what a body says.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{HeaderMap, Version, header};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tokio::net::TcpStream;

use super::Error;
use super::connection::Connection;
use super::pool::Pool;
use crate::http::room::Room;

/// Bodies of which less is left, in bytes, are read by hyper. It hands on what it has read in a
/// buffer of its own, which costs a copy, but nothing at the end.
const WORTHWHILE: u64 = 64 << 10;

/// See the module.
pub(in crate::http) struct Body {
    // What is dropped first is declared first: the connection is told that nobody reads on.
    incoming: Incoming,
    version: Version,
    reading: Reading,
    held: Held,
}

enum Reading {
    /// By hyper.
    Chunks,
    Directly(Direct),
    /// It has been read directly.
    Ended,
}

/// A body of known length that is read from the socket.
struct Direct {
    stream: TcpStream,
    left: usize,
    /// Whether the connection can be used again.
    stays: bool,
}

/// A connection in use. Goes back to the pool if it can be used again.
pub(super) struct Held {
    pub(super) pool: Arc<Pool>,
    /// Taken when this is dropped.
    pub(super) connection: Option<Box<Connection>>,
}

impl Body {
    pub(super) fn new(incoming: Incoming, version: Version, held: Held) -> Self {
        Self { incoming, version, reading: Reading::Chunks, held }
    }

    /// The length of what is left, if it is known.
    pub(in crate::http) fn length(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// The next piece; `None` at the end.
    pub(in crate::http) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        let Self { incoming, reading: Reading::Chunks, held: Held { connection: Some(connection), .. }, .. } = self
        else {
            return Poll::Ready(Ok(None));
        };
        loop {
            let frame = ready!(connection.poll_frame(incoming, cx)).transpose().map_err(Error::Connection)?;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => return Poll::Ready(Ok(Some(data))),
                // Trailers say nothing here.
                Some(Err(_)) => {}
                None => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Reads more right into `whole`, if much is left and its length is known.
    /// Gives the number of bytes, 0 at the end; `None` if the body is to be read by chunks. After it has
    /// given a number there are no chunks. Can be dropped and called again. `headers` are those of the
    /// response.
    pub(in crate::http) async fn read_directly(
        &mut self,
        headers: &HeaderMap,
        whole: &mut Room,
    ) -> Result<Option<usize>, Error> {
        if matches!(self.reading, Reading::Chunks) {
            match self.leave_hyper(headers, whole)? {
                // There is nothing yet.
                Some(0) => {}
                read => return Ok(read),
            }
        }
        match &mut self.reading {
            Reading::Chunks | Reading::Ended => Ok(Some(0)),
            Reading::Directly(Direct { left: 0, .. }) => {
                self.return_to_hyper().await;
                Ok(Some(0))
            }
            Reading::Directly(Direct { stream, left, .. }) => {
                let read = whole.read_from(stream, *left).await.map_err(Error::Socket)?;
                if read == 0 {
                    return Err(Error::Socket(io::ErrorKind::UnexpectedEof.into()));
                }
                *left = left.saturating_sub(read);
                Ok(Some(read))
            }
        }
    }

    /// Takes the connection from hyper, and what that has read of the body.
    fn leave_hyper(&mut self, headers: &HeaderMap, whole: &mut Room) -> Result<Option<usize>, Error> {
        let left = self.length().filter(|left| *left >= WORTHWHILE).and_then(|left| usize::try_from(left).ok());
        let (Some(left), Some(connection)) = (left, &mut self.held.connection) else { return Ok(None) };
        if !connection.has_sent_all() {
            return Ok(None);
        }
        // In the order of the bytes: the frame that waits to be taken, then what is no frame yet.
        let waiting = Pin::new(&mut self.incoming).poll_frame(&mut Context::from_waker(Waker::noop()));
        let data = match waiting {
            Poll::Ready(Some(frame)) => frame.map_err(Error::Connection)?.into_data().unwrap_or_default(),
            Poll::Ready(None) | Poll::Pending => Bytes::new(),
        };
        whole.extend_from_slice(&data);
        let missing = left.saturating_sub(data.len());
        let Some((stream, read)) = connection.dismantle() else {
            // The connection has ended, which is no matter if that was all.
            self.reading = Reading::Ended;
            let broken = Error::Socket(io::ErrorKind::UnexpectedEof.into());
            return if missing == 0 { Ok(Some(data.len())) } else { Err(broken) };
        };
        self.held.connection = None;
        let rest = read.get(..read.len().min(missing)).unwrap_or_default();
        whole.extend_from_slice(rest);
        let stays = rest.len() == read.len() && self.version == Version::HTTP_11 && !closes(headers);
        self.reading = Reading::Directly(Direct { stream, left: missing - rest.len(), stays });
        Ok(Some(data.len() + rest.len()))
    }

    async fn return_to_hyper(&mut self) {
        if let Reading::Directly(Direct { stream, stays: true, .. }) =
            std::mem::replace(&mut self.reading, Reading::Ended)
            && let Ok(connection) = Connection::over(stream, true).await
        {
            self.held.connection = Some(connection);
        }
    }
}

fn closes(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter();
    let mut tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"))
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && connection.is_free()
        {
            self.pool.give(connection);
        }
    }
}
