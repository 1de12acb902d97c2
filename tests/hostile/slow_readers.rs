//! Clients that read nothing or next to nothing of their answers.

use std::time::Duration;

use fanlight_testkit::usage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::harness::within;
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};
use crate::scripted::{Era, Reply};
use crate::target::{Bounds, Target};

const MIB: usize = 1 << 20;
const IMPATIENT: &str = r#""x-limits":"write=2s,header=10s,keepAlive=1s""#;

async fn target_with_long_answers(bytes: usize) -> Target {
    let target = Target::with(IMPATIENT).await;
    let text = format!(
        r#""content":[{{"type":"text","text":"{}"}}]"#,
        "x".repeat(bytes)
    );
    target.backend.on_target(
        "tools/call",
        "long",
        Reply::result(Era::Modern.complete(&text)),
    );
    target
}

/// The answers are long, and a debug build is slow.
const LONG: Bounds = Bounds {
    memory: 128 << 20,
    processor: Duration::from_secs(20),
    time: Duration::from_secs(60),
    ..Bounds::SMALL
};

/// Waits until the process has at most this many open files.
async fn until_closed(pid: u32, files: usize) {
    within("the gateway to close connections", async {
        while usage::open_files(pid) > files {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http1_client_that_reads_nothing_or_little_is_disconnected() {
    let target = target_with_long_answers(24 * MIB).await;
    let call = modern_request("1", "tools/call", r#""name":"long""#, "");
    let own = modern_headers(&call);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<(&str, &str)> = JSON_HEADERS.into_iter().chain(own).collect();
    let files = usage::open_files(target.gateway.pid());
    let silent = Connection::open(target.gateway.mcp).await;
    let head = silent.head(
        "POST",
        "/mcp",
        &[&headers[..], &[("Content-Length", &call.len().to_string())]].concat(),
    );
    let mut silent = silent;
    silent
        .send(&[&head[..], call.as_bytes()].concat())
        .await
        .unwrap();
    let mut dripping = TcpStream::connect(target.gateway.mcp).await.unwrap();
    dripping
        .write_all(&[&head[..], call.as_bytes()].concat())
        .await
        .unwrap();
    let drip = tokio::spawn(async move {
        let mut some = [0; 100];
        while let Ok(1..) = dripping.read(&mut some).await {
            sleep(Duration::from_millis(500)).await;
        }
    });
    // Both connections, and the two to the server, which may stay idle.
    until_closed(target.gateway.pid(), files + 2).await;
    drip.abort();
    target.withstood(LONG).await;
}

/// An HTTP/2 client that writes frames at will.
struct Http2(TcpStream);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

impl Http2 {
    /// Connects and announces this window for each stream.
    async fn open(target: &Target, window: u32) -> Self {
        let mut stream = TcpStream::connect(target.gateway.mcp).await.unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        let mut client = Self(stream);
        client.set_window(window).await;
        client
    }

    async fn set_window(&mut self, window: u32) {
        self.frame(
            SETTINGS,
            0,
            0,
            &[&[0, 4][..], &window.to_be_bytes()].concat(),
        )
        .await;
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
        self.0.write_all(&frame).await.unwrap();
    }

    /// Sends a call on this stream.
    async fn call(&mut self, stream: u32, tool: &str) {
        let body = modern_request("1", "tools/call", &format!(r#""name":"{tool}""#), "");
        let own: Vec<_> = modern_headers(&body)
            .into_iter()
            .map(|(name, value)| (name.to_lowercase(), value))
            .collect();
        let fixed = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/mcp"),
            (":authority", "127.0.0.1"),
        ];
        let content = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let own = own
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let mut block = Vec::new();
        for (name, value) in fixed.into_iter().chain(content).chain(own) {
            // A literal without indexing (RFC 7541, 6.2.2).
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.frame(HEADERS, END_HEADERS, stream, &block).await;
        self.frame(DATA, END_STREAM, stream, body.as_bytes()).await;
    }

    /// The next frame: its kind, flags, stream and payload.
    async fn next(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        within("a frame", self.0.read_exact(&mut head))
            .await
            .expect("the connection is open");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        within("a frame", self.0.read_exact(&mut payload))
            .await
            .unwrap();
        (
            head[3],
            head[4],
            u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        )
    }

    /// Reads until `count` streams have been reset; returns the number of data bytes before that.
    async fn until_resets(&mut self, count: usize) -> usize {
        let (mut resets, mut data) = (0, 0);
        while resets < count {
            let (kind, _, _, payload) = self.next_after_duties().await;
            resets += usize::from(kind == RESET);
            data += if kind == DATA { payload.len() } else { 0 };
        }
        data
    }

    /// Reads to the end of this stream.
    async fn until_end_of(&mut self, stream: u32) {
        loop {
            let (kind, flags, of, _) = self.next_after_duties().await;
            assert_ne!(kind, RESET, "stream {of}");
            if (kind, of) == (DATA, stream) && flags & END_STREAM != 0 {
                return;
            }
        }
    }

    /// The next frame; answers settings and pings.
    async fn next_after_duties(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let frame = self.next().await;
        match (frame.0, frame.1) {
            (SETTINGS, 0) => self.frame(SETTINGS, 1, 0, &[]).await,
            (PING, 0) => self.frame(PING, 1, 0, &frame.3).await,
            (GO_AWAY, _) => panic!("the connection ends: {:?}", frame.3),
            _ => {}
        }
        frame
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_stream_without_window_is_reset_and_its_connection_serves_on() {
    let target = target_with_long_answers(8 * MIB).await;
    let mut client = Http2::open(&target, 0).await;
    for stream in [1, 3, 5] {
        client.call(stream, "long").await;
    }
    assert_eq!(client.until_resets(3).await, 0);
    client.set_window(60_000).await;
    client.call(7, "t").await;
    client.until_end_of(7).await;
    // The client opens the window a little, and then no more.
    client.call(9, "long").await;
    assert_eq!(client.until_resets(1).await, 60_000);
    client.call(11, "t").await;
    client.until_end_of(11).await;
    while client.next_after_duties().await.0 != PING {}
    target.withstood(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly"]
async fn answers_that_nobody_reads_are_bounded_in_sum() {
    let target = Target::with(r#""x-limits":"answerMemory=32MiB""#).await;
    let text = format!(
        r#""content":[{{"type":"text","text":"{}"}}]"#,
        "x".repeat(10 * MIB)
    );
    target.backend.on_target(
        "tools/call",
        "long",
        Reply::result(Era::Modern.complete(&text)),
    );
    let call = modern_request("1", "tools/call", r#""name":"long""#, "");
    let own = modern_headers(&call);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<(&str, &str)> = JSON_HEADERS.into_iter().chain(own).collect();
    let mut unread = Vec::new();
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let mut connection = Connection::open(target.gateway.mcp).await;
        connection
            .request("POST", "/mcp", &headers, call.as_bytes())
            .await;
        let mut response = connection.response().await;
        statuses.push(response.status);
        if response.status == 503 {
            let text = response.text().await;
            assert!(
                text.contains(r#""id":1"#) && text.contains("its answer is lost"),
                "{text}"
            );
        } else {
            unread.push(response);
        }
    }
    assert!(
        statuses.iter().filter(|status| **status == 503).count() >= 8,
        "{statuses:?}"
    );
    target.withstood(LONG).await;
}
