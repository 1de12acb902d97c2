//! One HTTP/1.1 connection of a client.
//!
//! hyper's client would not do: the load shares a processor with the fake server, and its own cost
//! limits the measurable rates.

use std::io;
use std::net::SocketAddr;

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::request::{excerpt, is_error};
use crate::error::{BenchError, Doing, Result};

/// The most bytes of a head.
const LONGEST_HEAD: usize = 64 << 10;

/// A kept connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    received: BytesMut,
}

/// The byte stream below HTTP.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Secured(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn write(&mut self, request: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(request).await,
            Self::Secured(stream) => {
                stream.write_all(request).await?;
                stream.flush().await
            }
        }
    }

    async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read_buf(buffer).await,
            Self::Secured(stream) => stream.read_buf(buffer).await,
        }
    }
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Whether the body is an event stream.
    pub(crate) events: bool,
    pub(crate) session: Option<String>,
    framing: Framing,
}

/// The end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, tls: Option<&TlsConnector>) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .doing(format!("connecting to {address}"))?;
        stream.set_nodelay(true).doing("setting up a connection")?;
        let stream = match tls {
            None => Stream::Plain(stream),
            Some(tls) => {
                let secured = tls.connect(address.ip().into(), stream).await;
                Stream::Secured(Box::new(
                    secured.doing(format!("securing a connection to {address}"))?,
                ))
            }
        };
        Ok(Self {
            stream,
            received: BytesMut::new(),
        })
    }

    /// Sends a whole request and reads the head of the response.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<Head> {
        self.stream
            .write(request)
            .await
            .doing("sending a request")?;
        loop {
            if let Some((head, length)) = parse_head(&self.received)? {
                self.received.advance(length);
                return Ok(head);
            }
            self.read_more(0).await?;
        }
    }

    /// The whole body; for an event stream, the data of its last event.
    pub(crate) async fn body(&mut self, head: &Head) -> Result<Bytes> {
        let body = match head.framing {
            Framing::Length(length) => {
                while self.received.len() < length {
                    self.read_more(length - self.received.len()).await?;
                }
                self.received.split_to(length).freeze()
            }
            Framing::Chunked => {
                let mut body = Body::new(head);
                while !self.read_body(&mut body).await? {}
                body.data.freeze()
            }
        };
        if !head.events {
            return Ok(body);
        }
        let mut rest = BytesMut::from(&*body);
        let mut last = Bytes::new();
        while let Some(event) = take_event(&mut rest) {
            last = event;
        }
        Ok(last)
    }

    /// Sends a request and returns the body of the response, whose status must be 200.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Bytes> {
        let head = self.send(request).await?;
        let body = self.body(&head).await?;
        if head.status == 200 {
            Ok(body)
        } else {
            Err(unexpected(&head, &body))
        }
    }

    /// Reads some of the body; true once it is complete.
    pub(crate) async fn read_body(&mut self, body: &mut Body) -> Result<bool> {
        if self.received.is_empty() {
            self.read_more(0).await?;
        }
        let before = self.received.len();
        let complete = body.take(&mut self.received)?;
        if !complete && self.received.len() == before {
            self.read_more(0).await?;
        }
        Ok(complete)
    }

    async fn read_more(&mut self, expected: usize) -> Result<()> {
        self.received.reserve(expected.max(8 << 10));
        match self
            .stream
            .read(&mut self.received)
            .await
            .doing("reading a response")?
        {
            0 => Err(BenchError::Closed("the server")),
            _ => Ok(()),
        }
    }
}

/// The error for an answer with another status than 200.
pub(crate) fn unexpected(head: &Head, body: &[u8]) -> BenchError {
    let said = format!("HTTP {}: {}", head.status, excerpt(body));
    if is_error(body) {
        BenchError::Refused(said)
    } else {
        BenchError::Wrong(said)
    }
}

/// A body that is being received.
#[derive(Debug)]
pub(crate) struct Body {
    framing: Framing,
    /// Whether a chunk has begun.
    started: bool,
    /// Bytes of the chunk or body that are still to come.
    left: usize,
    /// Bytes that were received and not yet taken.
    pub(crate) data: BytesMut,
}

impl Body {
    pub(crate) fn new(head: &Head) -> Self {
        let left = if let Framing::Length(length) = head.framing {
            length
        } else {
            0
        };
        Self {
            framing: head.framing,
            started: false,
            left,
            data: BytesMut::new(),
        }
    }

    /// Moves the body's bytes from `received` to `data`; true once the body is complete (RFC 9112,
    /// 7.1).
    fn take(&mut self, received: &mut BytesMut) -> Result<bool> {
        loop {
            let count = self.left.min(received.len());
            self.data.extend_from_slice(&received.split_to(count));
            self.left -= count;
            if self.framing != Framing::Chunked || self.left > 0 {
                return Ok(self.left == 0);
            }
            // The line break after the previous chunk, the size of the next one, and an empty line
            // after the last one.
            let line = if self.started {
                received.strip_prefix(b"\r\n")
            } else {
                Some(&received[..])
            };
            let Some(line) = line else { return Ok(false) };
            let wrong = |_| BenchError::Wrong(format!("a chunk of the size {:?}", excerpt(line)));
            let httparse::Status::Complete((length, size)) =
                httparse::parse_chunk_size(line).map_err(wrong)?
            else {
                return Ok(false);
            };
            let end = received.len() - line.len() + length + if size == 0 { 2 } else { 0 };
            if received.len() < end {
                return Ok(false);
            }
            received.advance(end);
            if size == 0 {
                return Ok(true);
            }
            (self.started, self.left) = (true, usize::try_from(size).unwrap_or(usize::MAX));
        }
    }

    /// The data of the next event, if a whole one has arrived.
    pub(crate) fn next_event(&mut self) -> Option<Bytes> {
        take_event(&mut self.data)
    }
}

/// The data of the next event with data. Events here have one line of data and end with an empty
/// line; lines end with `\n`, or all with `\r\n`.
fn take_event(stream: &mut BytesMut) -> Option<Bytes> {
    loop {
        let unix = memmem::find(stream, b"\n\n").map(|end| (end, 2));
        let (end, length) =
            unix.or_else(|| memmem::find(stream, b"\r\n\r\n").map(|end| (end, 4)))?;
        let event = stream.split_to(end + length).freeze();
        let start = memmem::find(&event, b"data: ")
            .filter(|at| *at == 0 || event.get(at - 1) == Some(&b'\n'));
        if let Some(start) = start {
            let line = event.slice(start + 6..end.max(start + 6));
            let length = memchr::memchr2(b'\n', b'\r', &line).unwrap_or(line.len());
            if length > 0 {
                return Some(line.slice(..length));
            }
        }
    }
}

/// A head and its length, if it is complete.
fn parse_head(received: &[u8]) -> Result<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let wrong = |what: String| BenchError::Wrong(format!("{what}: {}", excerpt(received)));
    let length = match response
        .parse(received)
        .map_err(|error| wrong(error.to_string()))?
    {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial if received.len() > LONGEST_HEAD => {
            return Err(wrong("an endless head".into()));
        }
        httparse::Status::Partial => return Ok(None),
    };
    let status = response.code.unwrap_or_default();
    let mut framing = Framing::Length(0);
    let (mut events, mut session) = (false, None);
    for header in response.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default();
        match header.name.to_ascii_lowercase().as_str() {
            "content-length" => {
                framing =
                    Framing::Length(value.parse().map_err(|_| wrong("Content-Length".into()))?);
            }
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => {
                framing = Framing::Chunked;
            }
            "content-type" => events = value.starts_with("text/event-stream"),
            "mcp-session-id" => session = Some(value.to_owned()),
            _ => {}
        }
    }
    Ok(Some((
        Head {
            status,
            events,
            session,
            framing,
        },
        length,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(stream: &[u8], piece: usize) -> (Vec<u8>, bool) {
        let head = Head {
            status: 200,
            events: false,
            session: None,
            framing: Framing::Chunked,
        };
        let (mut body, mut received, mut complete) = (Body::new(&head), BytesMut::new(), false);
        for part in stream.chunks(piece) {
            received.extend_from_slice(part);
            complete = body.take(&mut received).unwrap();
        }
        (body.data.to_vec(), complete)
    }

    #[test]
    fn body_does_not_depend_on_how_chunks_arrive() {
        let stream = b"5\r\nhello\r\n1\r\n \r\nA;x=1\r\n0123456789\r\n0\r\n\r\n";
        for piece in 1..=stream.len() {
            assert_eq!(
                take_all(stream, piece),
                (b"hello 0123456789".to_vec(), true),
                "{piece}"
            );
        }
        assert!(!take_all(&stream[..stream.len() - 1], 7).1);
    }

    #[test]
    fn head_determines_the_framing_of_the_body() {
        let head = |text: &str| parse_head(text.as_bytes()).unwrap().map(|(head, _)| head);
        let json =
            head("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n")
                .unwrap();
        assert_eq!(
            (json.status, json.events, json.framing),
            (200, false, Framing::Length(12))
        );
        let events = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nMcp-Session-Id: s\r\nTransfer-Encoding: chunked\r\n\r\n";
        let events = head(events).unwrap();
        assert_eq!(
            (events.events, events.framing, events.session.as_deref()),
            (true, Framing::Chunked, Some("s"))
        );
        assert_eq!(
            head("HTTP/1.1 204 No Content\r\n\r\n").unwrap().framing,
            Framing::Length(0)
        );
        assert_eq!(head("HTTP/1.1 200"), None);
        assert!(parse_head(b"nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn events_without_data_are_skipped() {
        let mut stream =
            BytesMut::from(&b": hello\n\nevent: message\ndata: {\"a\":1}\nid: 7\n\ndata: cut"[..]);
        assert_eq!(take_event(&mut stream).unwrap(), r#"{"a":1}"#);
        assert_eq!(take_event(&mut stream), None);
        assert_eq!(stream, &b"data: cut"[..]);
        let mut stream =
            BytesMut::from(&b"id: 1\r\ndata: \r\n\r\nevent: message\r\ndata: {}\r\n\r\n"[..]);
        assert_eq!(take_event(&mut stream).unwrap(), "{}");
        assert!(stream.is_empty());
    }
}
