//! An HTTP client that sends exactly the bytes it is given, so that tests see the wire.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fanlight_frontend::{FrontendError, FrontendSettings, serve_http};
use fanlight_gateway::Gateway;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::core::{Log, TestCore};

/// The result of `future`; panics if it takes 20 seconds, so that a test does not hang.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("nothing happened for 20 s")
}

/// A listener before the test core.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) core: Arc<TestCore>,
    pub(crate) log: Log,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<Result<(), FrontendError>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(FrontendSettings::default()).await
    }

    pub(crate) async fn with(settings: FrontendSettings) -> Self {
        Self::at(&[], settings).await
    }

    pub(crate) async fn at(endpoints: &[&str], settings: FrontendSettings) -> Self {
        let (core, log) = TestCore::new();
        let (address, shutdown, served) = listen(core.gateway(endpoints), settings).await;
        Self {
            address,
            core,
            log,
            shutdown,
            served,
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Opens a legacy session; returns its id.
    pub(crate) async fn session(&self, client: &mut Client) -> String {
        self.session_with(client, r#"{"roots":{}}"#).await
    }

    /// Opens a legacy session of a client with `capabilities`; returns its id.
    pub(crate) async fn session_with(&self, client: &mut Client, capabilities: &str) -> String {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        );
        let response = client.post(&[], &body).await;
        assert_eq!(response.status, 200, "{}", response.body);
        response.header("mcp-session-id").unwrap().to_owned()
    }
}

pub(crate) async fn listen(
    core: Arc<Gateway>,
    settings: FrontendSettings,
) -> (
    SocketAddr,
    CancellationToken,
    JoinHandle<Result<(), FrontendError>>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let served = tokio::spawn(serve_http(
        listener,
        core,
        Arc::new(settings),
        shutdown.clone(),
    ));
    (address, shutdown, served)
}

/// A client with one connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    /// The remaining events of a chunk.
    events: VecDeque<Event>,
}

/// One event or comment of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: String,
    pub(crate) retry: Option<u64>,
    pub(crate) comment: bool,
}

impl Event {
    fn parse(text: &str) -> Self {
        let (mut event, mut data) = (Self::default(), Vec::new());
        for line in text.lines() {
            match line
                .split_once(':')
                .map(|(field, value)| (field, value.strip_prefix(' ').unwrap_or(value)))
            {
                Some(("", _)) => event.comment = true,
                Some(("event", "message")) => {}
                Some(("id", id)) => event.id = Some(id.to_owned()),
                Some(("retry", millis)) => event.retry = Some(millis.parse().unwrap()),
                Some(("data", line)) => data.push(line),
                _ => panic!("{line:?}"),
            }
        }
        event.data = data.join("\n");
        event
    }
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_default()
    }

    /// The data of the events; the body must consist of events.
    pub(crate) fn events(&self) -> Vec<String> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let events = self.body.split_terminator("\n\n").map(Event::parse);
        events
            .map(|event| event.data)
            .filter(|data| !data.is_empty())
            .collect()
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = BufReader::new(soon(TcpStream::connect(address)).await.unwrap());
        Self {
            stream,
            events: VecDeque::new(),
        }
    }

    /// Sends a POST to `/mcp` and reads the response. `headers` replace the default ones.
    pub(crate) async fn post(&mut self, headers: &[(&str, &str)], body: &str) -> Response {
        self.send("POST", "/mcp", headers, body).await;
        self.response().await
    }

    pub(crate) async fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response {
        self.send(method, path, headers, "").await;
        self.response().await
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) {
        let length = body.len().to_string();
        let mut usual = vec![("host", "localhost"), ("content-length", length.as_str())];
        if method == "POST" {
            usual.extend([
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
            ]);
        }
        assert_eq!(
            self.events,
            [],
            "events are read before the next request is sent"
        );
        usual.retain(|(name, _)| {
            !headers
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name))
        });
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        // An empty value removes a default header.
        for (name, value) in usual
            .iter()
            .chain(headers)
            .filter(|(_, value)| !value.is_empty())
        {
            text += &format!("{name}: {value}\r\n");
        }
        self.write(format!("{text}\r\n{body}").as_bytes()).await;
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        soon(self.stream.get_mut().write_all(bytes)).await.unwrap();
    }

    pub(crate) async fn response(&mut self) -> Response {
        let mut response = self.head().await;
        let mut body = Vec::new();
        if response.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await {
                body.extend(chunk);
            }
        } else if let Some(length) = response.header("content-length") {
            body.resize(length.parse().unwrap(), 0);
            soon(self.stream.read_exact(&mut body)).await.unwrap();
        }
        response.body = String::from_utf8(body).unwrap();
        response
    }

    pub(crate) async fn head(&mut self) -> Response {
        let status = self.line().await.expect("the connection is closed");
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        while let Some(line) = self.line().await.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap();
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Response {
            status,
            headers,
            body: String::new(),
        }
    }

    /// The data of the next event of a stream that has any.
    pub(crate) async fn event(&mut self) -> Option<String> {
        Some(self.sse().await?.data)
    }

    /// The next event of a stream that has data.
    pub(crate) async fn sse(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            if !block.data.is_empty() {
                return Some(block);
            }
        }
    }

    /// The next event or comment of a stream. A chunk must consist of whole ones.
    pub(crate) async fn block(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            let chunk = String::from_utf8(self.chunk().await?).unwrap();
            self.events = chunk
                .strip_suffix("\n\n")
                .unwrap()
                .split("\n\n")
                .map(Event::parse)
                .collect();
        }
        self.events.pop_front()
    }

    /// Opens a session of `revision` for a client that supports roots and elicitation; returns its
    /// id.
    pub(crate) async fn open(&mut self, revision: &str) -> String {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{"roots":{{}},"elicitation":{{}}}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        );
        let response = self.post(&[], &body).await;
        assert_eq!(response.status, 200, "{}", response.body);
        response.header("mcp-session-id").unwrap().to_owned()
    }

    /// Opens a stream with GET; `last` is the id of the last event received.
    pub(crate) async fn listen(&mut self, session: &str, last: Option<&str>) -> Response {
        let mut headers = vec![("Mcp-Session-Id", session), ("Accept", "text/event-stream")];
        headers.extend(last.map(|id| ("Last-Event-ID", id)));
        self.send("GET", "/mcp", &headers, "").await;
        let head = self.head().await;
        if head.status == 200 {
            assert_eq!(head.header("content-type"), Some("text/event-stream"));
        }
        head
    }

    /// The next chunk of a chunked body; `None` after the last.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line().await?, 16).unwrap();
        let mut chunk = vec![0; size + 2];
        soon(self.stream.read_exact(&mut chunk)).await.unwrap();
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// Reads `length` bytes and drops them.
    pub(crate) async fn skip(&mut self, length: usize) {
        soon(self.stream.read_exact(&mut vec![0; length]))
            .await
            .unwrap();
    }

    /// Waits for the server to close the connection; returns whether it sent nothing before.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        matches!(
            soon(self.stream.read_to_end(&mut rest)).await,
            Ok(0) | Err(_)
        )
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = soon(self.stream.read_line(&mut line)).await.unwrap();
        (read > 0).then(|| line.trim_end_matches("\r\n").to_owned())
    }
}

/// The headers of a modern request.
pub(crate) fn modern_headers<'a>(
    method: &'a str,
    name: Option<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let mut headers = vec![
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", method),
    ];
    headers.extend(name.map(|name| ("Mcp-Name", name)));
    headers
}

/// A modern request; `params` are members without outer commas, `meta` further members of `_meta`.
pub(crate) fn modern_request(id: &str, method: &str, params: &str, meta: &str) -> String {
    let comma = |text: &str| {
        if text.is_empty() {
            String::new()
        } else {
            format!("{text},")
        }
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{}"_meta":{{{}"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#,
        comma(params),
        comma(meta)
    )
}

pub(crate) fn modern_call(id: &str, tool: &str, meta: &str) -> String {
    modern_request(
        id,
        "tools/call",
        &format!(r#""name":"{tool}","arguments":{{"a":1.0}}"#),
        meta,
    )
}

pub(crate) fn legacy_call(id: &str, tool: &str, token: &str) -> String {
    let meta = if token.is_empty() {
        String::new()
    } else {
        format!(r#","_meta":{{"progressToken":{token}}}"#)
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"a":1.0}}{meta}}}}}"#
    )
}
