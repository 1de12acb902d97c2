//! A scripted HTTP server: a function answers each request, and the test sees it.

use std::collections::HashMap;
use std::sync::Arc;

use fanlight_backend::TransportSettings;
use fanlight_protocol::Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::{PATIENCE, json};

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// `POST`, `DELETE`, or `closed` when a connection was closed on an unanswered request.
    pub(crate) verb: String,
    /// Path and query.
    pub(crate) target: String,
    headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// The answer to a request.
pub(crate) enum Reply {
    /// A whole response: status, further headers with their line breaks, content type, body.
    Whole(u16, String, &'static str, String),
    /// A JSON body without a length, in two pieces.
    Chunked(String),
    /// An event stream of these bytes, followed by its end.
    Stream(String),
    /// An event stream of these bytes that stays open until the peer closes it.
    Open(String),
    /// An event stream of the first bytes, and after the notification of the second ones, followed
    /// by its end.
    Gated(String, Arc<Notify>, String),
    /// An event stream of the received texts, up to the channel's end.
    Feed(mpsc::UnboundedReceiver<String>),
    /// Nothing until the peer closes the connection.
    Hang,
    /// Closes the connection.
    Close,
}

/// An event stream that a test writes to.
pub(crate) struct Feed {
    /// The answered request.
    pub(crate) seen: Seen,
    events: mpsc::UnboundedSender<String>,
}

impl Feed {
    /// Sends one message.
    pub(crate) fn send(&self, data: &str) {
        self.raw(&event(data));
    }

    /// Sends the text of events.
    pub(crate) fn raw(&self, text: &str) {
        self.events.send(text.to_owned()).unwrap();
    }

    /// Acknowledges the subscription with this filter.
    pub(crate) fn acknowledge(&self, filter: &str) {
        let id = self.seen.id();
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"notifications":{filter}}}}}"#
        ));
    }

    /// Waits until the peer has closed the stream.
    pub(crate) async fn closed(&self) {
        tokio::time::timeout(PATIENCE, self.events.closed())
            .await
            .expect("not closed");
    }

    /// Whether the stream is still open.
    pub(crate) fn is_open(&self) -> bool {
        !self.events.is_closed()
    }
}

/// The streams that a server has opened, in order.
pub(crate) struct Feeds(mpsc::UnboundedReceiver<Feed>);

impl Feeds {
    pub(crate) async fn next(&mut self) -> Feed {
        tokio::time::timeout(PATIENCE, self.0.recv())
            .await
            .expect("no stream")
            .unwrap()
    }

    /// Whether no further stream has been opened so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A function that answers requests with streams that a test writes to, and the test's end of these
/// streams.
pub(crate) fn feeds() -> (impl Fn(&Seen) -> Reply + Send + Sync + 'static, Feeds) {
    let (opened, feeds) = mpsc::unbounded_channel();
    let open = move |seen: &Seen| {
        let (events, feed) = mpsc::unbounded_channel();
        // A finished test wants no more streams.
        let _ = opened.send(Feed {
            seen: seen.clone(),
            events,
        });
        Reply::Feed(feed)
    };
    (open, Feeds(feeds))
}

pub(crate) struct Server {
    pub(crate) url: String,
    seen: mpsc::UnboundedReceiver<Seen>,
    _tasks: JoinSet<()>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    fn member(&self, name: &str) -> Option<Json> {
        if self.body.is_empty() {
            None
        } else {
            json(&self.body).get(name)
        }
    }

    pub(crate) fn id(&self) -> String {
        self.member("id")
            .map_or_else(|| "null".into(), |id| id.as_text().to_owned())
    }

    pub(crate) fn method(&self) -> String {
        self.member("method")
            .map(|method| method.as_str().unwrap().into_owned())
            .unwrap_or_default()
    }

    pub(crate) fn params(&self) -> Json {
        self.member("params").unwrap_or_else(Json::null)
    }

    /// A JSON answer to this request.
    pub(crate) fn result(&self, result: &str) -> Reply {
        ok(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
            self.id()
        ))
    }

    /// An error answer to this request.
    pub(crate) fn error(&self, status: u16, error: &str) -> Reply {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, self.id());
        Reply::Whole(status, String::new(), "application/json", body)
    }
}

pub(crate) fn ok(body: String) -> Reply {
    Reply::Whole(200, String::new(), "application/json", body)
}

pub(crate) fn status(status: u16) -> Reply {
    Reply::Whole(status, String::new(), "text/plain", "no".into())
}

pub(crate) fn event(data: &str) -> String {
    format!("event: message\ndata: {data}\n\n")
}

/// A modern server's answer to its discovery; `None` for other requests.
pub(crate) fn modern(seen: &Seen) -> Option<Reply> {
    let result = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#;
    (seen.method() == "server/discover").then(|| seen.result(result))
}

/// The answer of a legacy server with sessions to the handshake; `None` for other requests.
pub(crate) fn legacy(seen: &Seen, session: &str) -> Option<Reply> {
    Some(match seen.method().as_str() {
        "server/discover" => status(400),
        "initialize" => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"logging":{{}}}}}}}}"#,
                seen.id()
            );
            Reply::Whole(
                200,
                format!("Mcp-Session-Id: {session}\r\n"),
                "application/json",
                body,
            )
        }
        method if method.starts_with("notifications/") => {
            Reply::Whole(202, String::new(), "text/plain", String::new())
        }
        _ if seen.verb == "DELETE" => status(200),
        _ => return None,
    })
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (told, seen) = mpsc::unbounded_channel();
        let answer = Arc::new(answer);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, told) = (Arc::clone(&answer), told.clone());
                connections.spawn(async move { serve(stream, &*answer, &told).await });
            }
        });
        Self {
            url,
            seen,
            _tasks: tasks,
        }
    }

    pub(crate) fn transport(&self) -> TransportSettings {
        TransportSettings::Http {
            url: self.url.clone(),
            headers: Vec::new(),
        }
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Seen {
        tokio::time::timeout(PATIENCE, self.seen.recv())
            .await
            .expect("no further request")
            .unwrap()
    }

    /// The next request that has already arrived.
    pub(crate) fn try_next(&mut self) -> Option<Seen> {
        self.seen.try_recv().ok()
    }

    /// The next request with this MCP or HTTP method.
    pub(crate) async fn next_of(&mut self, method: &str) -> Seen {
        self.next_where(|seen| seen.method() == method || seen.verb == method)
            .await
    }

    /// The next request that matches.
    pub(crate) async fn next_where(&mut self, mut wanted: impl FnMut(&Seen) -> bool) -> Seen {
        loop {
            let seen = self.next().await;
            if wanted(&seen) {
                return seen;
            }
        }
    }

    /// The number of POSTs before the next GET, which is taken as well.
    pub(crate) async fn count_until_get(&mut self) -> usize {
        let mut posts = 0;
        self.next_where(|seen| {
            posts += usize::from(seen.verb == "POST");
            seen.verb == "GET"
        })
        .await;
        posts
    }

    /// The number of new requests with this HTTP method.
    pub(crate) fn count_verb(&mut self, verb: &str) -> usize {
        std::iter::from_fn(|| self.seen.try_recv().ok())
            .filter(|seen| seen.verb == verb)
            .count()
    }

    /// The number of new requests with this method.
    pub(crate) fn count(&mut self, method: &str) -> usize {
        let mut count = 0;
        while let Ok(seen) = self.seen.try_recv() {
            count += usize::from(seen.method() == method);
        }
        count
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(dyn Fn(&Seen) -> Reply + Send + Sync),
    told: &mpsc::UnboundedSender<Seen>,
) {
    let mut buffer = Vec::new();
    while let Some(seen) = receive(&mut stream, &mut buffer).await {
        let reply = answer(&seen);
        let _ = told.send(seen.clone());
        let chunked = |kind: &str| {
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n")
        };
        let head = chunked("text/event-stream");
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
        let (text, goes_on) = match reply {
            Reply::Whole(status, headers, kind, body) => {
                let length = body.len();
                let text = format!(
                    "HTTP/1.1 {status} X\r\n{headers}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                (text, true)
            }
            Reply::Chunked(body) => {
                let (first, second) = body.split_at(body.len() / 2);
                (
                    format!(
                        "{}{}{}0\r\n\r\n",
                        chunked("application/json"),
                        chunk(first),
                        chunk(second)
                    ),
                    true,
                )
            }
            Reply::Stream(events) => (format!("{head}{}0\r\n\r\n", chunk(&events)), true),
            Reply::Gated(first, gate, second) => {
                let text = format!("{head}{}", chunk(&first));
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
                let mut byte = [0];
                tokio::select! {
                    () = gate.notified() => {}
                    // The peer sends nothing more on it unless it closes it.
                    _ = stream.read(&mut byte) => return,
                }
                (format!("{}0\r\n\r\n", chunk(&second)), true)
            }
            Reply::Open(events) => (format!("{head}{}", chunk(&events)), false),
            Reply::Feed(mut events) => {
                if stream.write_all(head.as_bytes()).await.is_err() {
                    return;
                }
                let mut byte = [0];
                loop {
                    let events = tokio::select! {
                        events = events.recv() => events,
                        _ = stream.read(&mut byte) => return,
                    };
                    let Some(events) = events else { break };
                    if stream.write_all(chunk(&events).as_bytes()).await.is_err() {
                        return;
                    }
                }
                ("0\r\n\r\n".to_owned(), true)
            }
            Reply::Hang => (String::new(), false),
            Reply::Close => return,
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        if !goes_on {
            // The read waits only for the end of the connection: the peer sends nothing more on it.
            let _ = stream.read(&mut [0]).await;
            let _ = told.send(Seen {
                verb: "closed".into(),
                ..seen
            });
            return;
        }
    }
}

async fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
            let mut lines = head.lines();
            let mut line = lines.next()?.split(' ').map(str::to_owned);
            let (verb, target) = (line.next()?, line.next()?);
            let headers: HashMap<_, _> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length = headers
                .get("content-length")
                .map_or(0, |length| length.parse().unwrap());
            if buffer.len() >= end + 4 + length {
                let body = String::from_utf8(buffer[end + 4..end + 4 + length].to_vec()).unwrap();
                buffer.drain(..end + 4 + length);
                return Some(Seen {
                    verb,
                    target,
                    headers,
                    body,
                });
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
