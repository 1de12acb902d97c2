//! The body of a response. The rest of a long body is read from the socket without hyper. So is a
//! whole body that was withheld from hyper (`connection`).
//!
//! hyper returns data in its own buffers, which would have to be copied together. Instead,
//! [`ResponseBody::read_into`] takes the socket out of hyper's connection and reads the announced
//! rest into the caller's buffer. Then it gives the socket to a new hyper connection. When it takes
//! the socket, the body's bytes are in three places. First comes the frame that hyper has decoded
//! and the body has not returned, then the bytes that hyper has read but not decoded, and finally
//! the socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Response, Version, header};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tokio::net::TcpStream;

use crate::client::connection::PooledConnection;
use crate::client::pool::Pool;
use crate::client::socket_body::{Framing, SocketBody};
use crate::client::{BodyBuffer, Error};

/// The number of bytes below which a copy is cheaper than a new hyper connection.
const MIN_DIRECT: u64 = 64 << 10;

/// The body of a response, with its connection.
pub struct ResponseBody {
    /// Dropped before `connection`, which then knows that nobody reads the rest. `None` if the body
    /// was withheld from hyper.
    incoming: Option<Incoming>,
    version: Version,
    reading: Reading,
    connection: CheckedOut,
}

enum Reading {
    ByHyper,
    Directly(DirectReader),
    /// The whole body is decoded here.
    Withheld {
        body: Box<SocketBody>,
        /// Whether the connection can be reused afterwards.
        is_reusable: bool,
    },
    /// The body has been read without hyper, or the connection has ended.
    Ended,
}

/// A socket for reading the rest of a body of known length.
struct DirectReader {
    stream: TcpStream,
    /// The number of the body's bytes that are still in the socket. No read asks for more, since
    /// following bytes belong to no response of this connection yet.
    left: usize,
    /// Whether the connection can be reused: hyper has read nothing beyond the body, and neither
    /// side has announced the connection's end.
    is_reusable: bool,
}

/// A connection in use. Dropping this gives it back if it can be reused.
pub(crate) struct CheckedOut {
    pub(crate) pool: Arc<Pool>,
    /// `None` while the body is read directly, and after the drop.
    pub(crate) connection: Option<Box<PooledConnection>>,
    /// How long the connection can be idle afterwards, if the server has announced a limit.
    pub(crate) idle: Option<Duration>,
}

impl ResponseBody {
    /// The response with its body on this connection.
    pub(crate) fn attach(
        response: Response<Incoming>,
        mut checked_out: CheckedOut,
    ) -> Response<Self> {
        let (head, incoming) = response.into_parts();
        let reading = match &mut checked_out.connection {
            Some(connection) if connection.is_withholding() => {
                let framing = Framing::determine(&head.headers, incoming.size_hint().exact());
                let parts = connection.dismantle();
                checked_out.connection = None;
                parts.map_or(Reading::Ended, |(stream, unread)| Reading::Withheld {
                    body: Box::new(SocketBody::new(stream, unread, framing)),
                    is_reusable: head.version == Version::HTTP_11
                        && !announces_close(&head.headers),
                })
            }
            _ => Reading::ByHyper,
        };
        let incoming = matches!(reading, Reading::ByHyper).then_some(incoming);
        let body = Self {
            incoming,
            version: head.version,
            reading,
            connection: checked_out,
        };
        Response::from_parts(head, body)
    }

    /// The number of remaining bytes, if known.
    pub fn length(&self) -> Option<u64> {
        match &self.reading {
            Reading::Withheld { body, .. } => body.length(),
            Reading::ByHyper | Reading::Directly(_) | Reading::Ended => {
                self.incoming.as_ref()?.size_hint().exact()
            }
        }
    }

    /// Polls for the next bytes; `None` at the end. Trailers are ignored.
    ///
    /// # Errors
    ///
    /// The connection broke before the end.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        if let Reading::Withheld { body, .. } = &mut self.reading {
            let next = ready!(body.poll_chunk(cx)).map_err(Error::Socket)?;
            if next.is_none() {
                self.end_withheld();
            }
            return Poll::Ready(Ok(next));
        }
        let (Reading::ByHyper, Some(incoming), Some(connection)) = (
            &self.reading,
            &mut self.incoming,
            &mut self.connection.connection,
        ) else {
            return Poll::Ready(Ok(None));
        };
        loop {
            let frame = ready!(connection.poll_frame(incoming, cx))
                .transpose()
                .map_err(Error::Connection)?;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => return Poll::Ready(Ok(Some(data))),
                Some(Err(_trailers)) => {}
                None => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Reads more into `buffer` if the rest is long and its length is known; returns the number of
    /// bytes, 0 at the end. `None` means that the caller must use [`ResponseBody::poll_chunk`].
    /// After a number there are no more chunks. `headers` are the response's. Cancel safe.
    ///
    /// # Errors
    ///
    /// The connection broke before the end.
    pub async fn read_into(
        &mut self,
        headers: &HeaderMap,
        buffer: &mut BodyBuffer,
    ) -> Result<Option<usize>, Error> {
        if matches!(self.reading, Reading::ByHyper) {
            match self.leave_hyper(headers, buffer)? {
                // No data has arrived yet.
                Some(0) => {}
                read => return Ok(read),
            }
        }
        match &mut self.reading {
            Reading::Withheld { .. } => Ok(None),
            Reading::ByHyper | Reading::Ended => Ok(Some(0)),
            Reading::Directly(DirectReader { left: 0, .. }) => {
                self.return_to_hyper().await;
                Ok(Some(0))
            }
            Reading::Directly(DirectReader { stream, left, .. }) => {
                let read = buffer
                    .read_from(stream, *left)
                    .await
                    .map_err(Error::Socket)?;
                if read == 0 {
                    return Err(ended_early());
                }
                *left = left.saturating_sub(read);
                Ok(Some(read))
            }
        }
    }

    /// Takes the socket from hyper, and appends to `buffer` the part of the body that hyper has
    /// read. Returns its length; `None` if hyper must continue reading.
    fn leave_hyper(
        &mut self,
        headers: &HeaderMap,
        buffer: &mut BodyBuffer,
    ) -> Result<Option<usize>, Error> {
        let left = self
            .length()
            .filter(|left| *left >= MIN_DIRECT)
            .and_then(|left| usize::try_from(left).ok());
        let (Some(left), Some(incoming), Some(connection)) =
            (left, &mut self.incoming, &mut self.connection.connection)
        else {
            return Ok(None);
        };
        // An unfinished request would be lost with hyper's connection.
        if !connection.has_sent_all() {
            return Ok(None);
        }
        let decoded = match Pin::new(incoming).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(frame)) => frame
                .map_err(Error::Connection)?
                .into_data()
                .unwrap_or_default(),
            Poll::Ready(None) | Poll::Pending => Bytes::new(),
        };
        buffer.extend_from_slice(&decoded);
        let missing = left.saturating_sub(decoded.len());
        let Some((stream, read)) = connection.dismantle() else {
            self.reading = Reading::Ended;
            return if missing == 0 {
                Ok(Some(decoded.len()))
            } else {
                Err(ended_early())
            };
        };
        self.connection.connection = None;
        let undecoded = read.get(..read.len().min(missing)).unwrap_or_default();
        buffer.extend_from_slice(undecoded);
        let has_surplus = undecoded.len() < read.len();
        let is_reusable =
            !has_surplus && self.version == Version::HTTP_11 && !announces_close(headers);
        self.reading = Reading::Directly(DirectReader {
            stream,
            left: missing - undecoded.len(),
            is_reusable,
        });
        Ok(Some(decoded.len() + undecoded.len()))
    }

    /// Handles the end of a withheld body: gives the socket back to hyper if it can be used for
    /// another request.
    fn end_withheld(&mut self) {
        if let Reading::Withheld { body, is_reusable: true } = std::mem::replace(&mut self.reading, Reading::Ended)
            && let Some(stream) = body.into_reusable()
            && self.connection.pool.has_few_idle()
            // A handshake of HTTP/1.1 never waits.
            && let Some(Ok(connection)) = PooledConnection::connect(stream, true).now_or_never()
        {
            self.connection.connection = Some(connection);
        }
    }

    async fn return_to_hyper(&mut self) {
        if let Reading::Directly(DirectReader {
            stream,
            is_reusable: true,
            ..
        }) = std::mem::replace(&mut self.reading, Reading::Ended)
            && let Ok(connection) = PooledConnection::connect(stream, true).await
        {
            self.connection.connection = Some(connection);
        }
    }
}

fn ended_early() -> Error {
    Error::Socket(io::ErrorKind::UnexpectedEof.into())
}

fn announces_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter();
    let mut tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// How long a server keeps an idle connection: the `timeout` of `Keep-Alive`,
/// less a second for the way of the next request. A request that meets the server's end may have run.
pub(crate) fn announced_idle(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let mut parameters = value.split(',').filter_map(|part| part.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    let seconds: u32 = seconds.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.saturating_sub(1).into()))
}

impl Drop for CheckedOut {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && self.idle != Some(Duration::ZERO)
            && connection.is_reusable()
        {
            self.pool.give(connection, self.idle);
        }
    }
}
