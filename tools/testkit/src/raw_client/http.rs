//! A raw HTTP/1.1 client: a test chooses every byte that it sends and sees every byte that it
//! receives.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use super::event::Event;
use crate::patience::within;
use crate::schema::{self, Checks, Peer};

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// One connection to an HTTP/1.1 server. A gateway's messages are checked against the schema.
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    host: String,
    checks: Option<Checks>,
    /// The peer for the next response's check: the session of the request, or just the request.
    peer: Option<Peer>,
}

impl Connection {
    /// Connects to this address.
    pub async fn open(address: SocketAddr) -> Self {
        Self::over(
            within("a connection", TcpStream::connect(address))
                .await
                .unwrap(),
            address,
        )
    }

    /// Connects from this local address.
    pub async fn open_from(local: IpAddr, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((local, 0).into()).unwrap();
        Self::over(
            within("a connection", socket.connect(address))
                .await
                .unwrap(),
            address,
        )
    }

    fn over(stream: TcpStream, address: SocketAddr) -> Self {
        stream.set_nodelay(true).unwrap();
        Self::on(stream, address)
    }

    /// A connection over a byte stream to the server at this address.
    pub fn on(stream: impl Stream + 'static, address: SocketAddr) -> Self {
        Self {
            checks: schema::listening_at(address),
            ..Self::at_host(stream, &address.to_string())
        }
    }

    /// A connection over a byte stream to a server of this name. Messages are not checked.
    pub fn at_host(stream: impl Stream + 'static, host: &str) -> Self {
        Self {
            stream: BufReader::new(Box::new(stream)),
            host: host.to_owned(),
            checks: None,
            peer: None,
        }
    }

    /// Sends bytes unchanged.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.stream.get_mut();
        let sent = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        within("the server to read", sent).await
    }

    /// Sends a whole request; `Host` and `Content-Length` are added unless given.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        if !has(headers, "content-length") {
            all.push(("Content-Length", &length));
        }
        self.expect(path, headers, body);
        let mut bytes = self.head(method, path, &all);
        bytes.extend_from_slice(body);
        // A server may respond and close before it has read everything; the test reads the
        // response.
        let _ = self.send(&bytes).await;
    }

    /// Records the request for the check of its response.
    fn expect(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        static EXCHANGE: AtomicUsize = AtomicUsize::new(0);
        let header = |name: &str| {
            headers
                .iter()
                .find(|(given, _)| given.eq_ignore_ascii_case(name))
                .map(|it| it.1)
        };
        self.peer = self
            .checks
            .as_ref()
            .filter(|_| path.starts_with("/mcp"))
            .map(|checks| {
                let exchange = || format!("exchange {}", EXCHANGE.fetch_add(1, Ordering::Relaxed));
                checks.peer(header("mcp-session-id").map_or_else(exchange, session_name))
            });
        if let (Some(peer), Ok(text)) = (&self.peer, std::str::from_utf8(body)) {
            peer.sent(text, header("mcp-protocol-version"));
        }
    }

    /// The head of a request, for tests that send the body themselves; `Host` is added unless
    /// given.
    pub fn head(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !has(headers, "host") {
            head.push_str(&format!("Host: {}\r\n", self.host));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Reads the head of the next response; the [`Response`] reads the body.
    pub async fn response(self) -> Response {
        within("a response", self.read_head())
            .await
            .expect("a response")
    }

    /// Everything that the server still sends until it closes the connection.
    pub async fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        // A broken connection has ended, too.
        let _ = within(
            "the end of the connection",
            self.stream.read_to_end(&mut bytes),
        )
        .await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    async fn read_head(mut self) -> io::Result<Response> {
        loop {
            let status_line = self.line().await?;
            let status = status_line
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            let status: u16 =
                status.ok_or_else(|| io::Error::other(format!("no status in `{status_line}`")))?;
            let mut headers = Vec::new();
            loop {
                let line = self.line().await?;
                let Some((name, value)) = line.split_once(':') else {
                    break;
                };
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            if status >= 200 {
                let body = Body::new(status, &headers);
                let peer = self.peer.take();
                return Ok(Response {
                    status,
                    headers,
                    body,
                    connection: self,
                    pending: Vec::new(),
                    peer,
                });
            }
        }
    }

    /// One line without its end; empty at the end of a head.
    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

fn session_name(session: &str) -> String {
    format!("session {session}")
}

fn has(headers: &[(&str, &str)], name: &str) -> bool {
    headers
        .iter()
        .any(|(given, _)| given.eq_ignore_ascii_case(name))
}

/// The way to find the end of the body.
enum Body {
    Length(usize),
    Chunked,
    UntilClose,
    Ended,
}

impl Body {
    fn new(status: u16, headers: &[(String, String)]) -> Self {
        let header = |name: &str| {
            headers
                .iter()
                .find(|(given, _)| given == name)
                .map(|(_, value)| value.as_str())
        };
        match (header("transfer-encoding"), header("content-length")) {
            (Some("chunked"), _) => Self::Chunked,
            (_, Some("0")) => Self::Ended,
            (_, Some(length)) => Self::Length(length.parse().unwrap()),
            _ if status == 204 => Self::Ended,
            _ => Self::UntilClose,
        }
    }
}

/// A response whose body the test reads. Dropping it closes the connection.
pub struct Response {
    /// The status code of the response.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    body: Body,
    connection: Connection,
    /// Body bytes that were read but not yet returned as an event.
    pending: Vec<u8>,
    peer: Option<Peer>,
}

impl Response {
    /// The first value of this header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether the body is an event stream.
    pub fn is_event_stream(&self) -> bool {
        self.header("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// The rest of the body; an error if the server ended it early.
    pub async fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.pending);
        while let Some(part) = within("the body", self.part()).await? {
            bytes.extend_from_slice(&part);
        }
        if self
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("application/json"))
        {
            self.check(&String::from_utf8_lossy(&bytes));
        }
        Ok(bytes)
    }

    /// Checks a message, and records the revision of a session that it opens.
    fn check(&self, message: &str) {
        let Some(peer) = &self.peer else { return };
        peer.received(message);
        if let (Some(session), Some(revision)) = (self.header("mcp-session-id"), peer.revision()) {
            let checks = self
                .connection
                .checks
                .as_ref()
                .expect("a peer is one of these checks");
            checks.peer(session_name(session)).negotiated(&revision);
        }
    }

    /// The rest of the body, as it is.
    pub async fn whole_text(&mut self) -> String {
        String::from_utf8(self.bytes().await.expect("a whole body")).expect("UTF-8")
    }

    /// The rest of the body; of an event stream the last message, since an answer may be a stream
    /// if it takes its time.
    pub async fn text(&mut self) -> String {
        if !self.is_event_stream() {
            return self.whole_text().await;
        }
        let mut last = String::new();
        while let Some(event) = self.whole_event().await.expect("a whole stream") {
            if !event.data.is_empty() {
                last = event.data;
            }
        }
        last
    }

    /// The rest of the body and the connection for the next request.
    pub async fn finish(mut self) -> (String, Connection) {
        (self.whole_text().await, self.connection)
    }

    /// The data of the next event with data, or `None` at the end of the stream.
    pub async fn event(&mut self) -> io::Result<Option<String>> {
        // Comments may come forever, so the time-out is around the loop.
        within("an event with data", async {
            while let Some(event) = self.whole_event().await? {
                if !event.data.is_empty() {
                    return Ok(Some(event.data));
                }
            }
            Ok(None)
        })
        .await
    }

    /// The next event or comment with all its fields, or `None` at the end of the stream.
    pub async fn whole_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(end) = find(&self.pending, b"\n\n") {
                let text: Vec<u8> = self.pending.drain(..end + 2).collect();
                let event = Event::parse(std::str::from_utf8(&text).expect("UTF-8"));
                if !event.data.is_empty() {
                    self.check(&event.data);
                }
                return Ok(Some(event));
            }
            match within("an event", self.part()).await? {
                // Lines of an event stream may end with CR LF; data never has a raw CR.
                Some(part) => self
                    .pending
                    .extend(part.into_iter().filter(|byte| *byte != b'\r')),
                None => return Ok(None),
            }
        }
    }

    /// The messages before the response, and the response, whether the body is an event stream or
    /// JSON.
    pub async fn messages(&mut self) -> (Vec<String>, String) {
        if !self.is_event_stream() {
            return (Vec::new(), self.whole_text().await);
        }
        let mut events = Vec::new();
        while let Some(event) = self.event().await.expect("a whole stream") {
            events.push(event);
        }
        let last = events.pop().expect("at least one event");
        (events, last)
    }

    /// The next part of the body; `None` at its end.
    async fn part(&mut self) -> io::Result<Option<Vec<u8>>> {
        let stream = &mut self.connection.stream;
        match self.body {
            Body::Ended => Ok(None),
            Body::Length(length) => {
                let mut bytes = vec![0; length];
                stream.read_exact(&mut bytes).await?;
                self.body = Body::Ended;
                Ok(Some(bytes))
            }
            Body::UntilClose => {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).await?;
                self.body = Body::Ended;
                Ok(Some(bytes))
            }
            Body::Chunked => {
                let size = self.connection.line().await?;
                let size = size.split(';').next().unwrap_or_default();
                let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
                let mut bytes = vec![0; size + 2];
                self.connection.stream.read_exact(&mut bytes).await?;
                bytes.truncate(size);
                if size == 0 {
                    self.body = Body::Ended;
                    return Ok(None);
                }
                Ok(Some(bytes))
            }
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
