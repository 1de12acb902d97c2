//! A shortage of files. It concerns every pool of the process, so this is a separate test program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code"
)]

use std::time::Duration;

use bytes::Bytes;
use fanlight_http::client::{BodyBuffer, PoolSettings, PooledClient, TcpProbes, wait_for_file};
use http::Request;
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

#[tokio::test]
async fn idle_connection_is_closed_when_something_waits_for_a_file() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let probes = TcpProbes {
        interval: Duration::from_secs(15),
        unacknowledged: Duration::from_secs(30),
    };
    let settings = PoolSettings {
        connect_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(90),
        max_idle: 4,
        probes,
    };
    let client = PooledClient::new(format!("http://{target}/mcp").parse().unwrap(), settings);
    let request = Request::post("/mcp")
        .header("host", target.to_string())
        .body(Full::new(Bytes::new()))
        .unwrap();
    let answering = async {
        let mut stream = listener.accept().await.unwrap().0;
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .await
            .unwrap();
        stream
    };
    let called = async {
        let mut response = client.execute(request).await.unwrap();
        let (headers, mut buffer) = (response.headers().clone(), BodyBuffer::new(1 << 10, 0));
        response
            .body_mut()
            .read_into(&headers, &mut buffer)
            .await
            .unwrap();
    };
    let (mut stream, ()) = tokio::join!(answering, called);
    assert!(
        timeout(Duration::from_millis(100), stream.read_u8())
            .await
            .is_err(),
        "it is kept"
    );
    // Repeated, as waiting code does.
    let waiting = async {
        loop {
            wait_for_file().await;
        }
    };
    let closed = timeout(Duration::from_secs(5), stream.read_u8());
    tokio::select! {
        read = closed => assert!(read.expect("it stays open").is_err()),
        () = waiting => {}
    }
}
