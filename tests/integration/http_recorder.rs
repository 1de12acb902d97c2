//! A small HTTP server that records its requests, as a guardrail or a collector.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A request.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The server, which handles one request per connection and one connection at a time.
pub(crate) struct HttpRecorder {
    /// The address on which it listens.
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
}

impl HttpRecorder {
    /// Starts a server that answers each request with this HTTP response, or never if that is
    /// empty.
    pub(crate) async fn start(answer: impl Fn(&Recorded) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (
            listener.local_addr().unwrap(),
            Arc::new(Mutex::new(Vec::new())),
        );
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut text = Vec::new();
                let request = loop {
                    let is_end = socket.read_buf(&mut text).await.unwrap_or_default() == 0;
                    if let Some(whole) = whole(&text, is_end) {
                        break whole;
                    }
                };
                kept.lock().unwrap().push(request.clone());
                let answer = answer(&request);
                if answer.is_empty() {
                    open.push(socket);
                    continue;
                }
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, requests }
    }

    /// The recorded requests.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap().clone()
    }
}

/// Parses a request once it is complete, or once no more bytes will come.
fn whole(text: &[u8], is_end: bool) -> Option<Recorded> {
    let end = text
        .windows(4)
        .position(|part| part == b"\r\n\r\n")
        .map(|end| end + 4);
    let (head, body) = text.split_at(end.or(is_end.then_some(text.len()))?);
    let head = String::from_utf8_lossy(head).to_lowercase();
    let length = head.lines().find_map(|line| {
        Some(
            line.strip_prefix("content-length: ")?
                .parse::<usize>()
                .unwrap(),
        )
    });
    let is_whole = body.len() >= length.unwrap_or_default();
    (is_whole || is_end).then(|| Recorded {
        head,
        body: body.to_vec(),
    })
}

/// A 200 response with this body, which ends the connection.
pub(crate) fn says(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
