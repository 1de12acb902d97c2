//! Requests over pooled connections to servers that misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code"
)]

use std::error::Error as _;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use fanlight_http::client::{
    BodyBuffer, Error, PoolSettings, PooledClient, ResponseBody, enter_worker,
};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

mod desync;
mod event_streams;
mod idle;
mod long_bodies;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const SETTINGS: PoolSettings = PoolSettings {
    connect_timeout: Duration::from_secs(5),
    idle_timeout: Duration::from_secs(90),
    max_idle: 4,
    probes: fanlight_http::client::TcpProbes {
        interval: Duration::from_secs(15),
        unacknowledged: Duration::from_secs(30),
    },
};

fn client(target: &SocketAddr) -> PooledClient {
    PooledClient::new(format!("http://{target}/mcp").parse().unwrap(), SETTINGS)
}

fn post(target: &SocketAddr) -> Request<Full<Bytes>> {
    with_body(target, Bytes::from_static(b"{}"))
}

fn with_body(target: &SocketAddr, body: Bytes) -> Request<Full<Bytes>> {
    Request::post("/mcp")
        .header("host", target.to_string())
        .body(Full::new(body))
        .unwrap()
}

async fn served() -> (TcpListener, SocketAddr, PooledClient) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    (listener, target, client(&target))
}

async fn chunk(response: &mut Response<ResponseBody>) -> Result<Option<Bytes>, Error> {
    poll_fn(|cx| response.body_mut().poll_chunk(cx)).await
}

/// Whether an error means that certainly nothing was sent.
fn is_connect(error: &Error) -> bool {
    matches!(error, Error::Connect(_))
}

/// The innermost cause of an error.
fn reason(error: &Error) -> String {
    let mut cause = error.source().unwrap();
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Reads one request of [`post`].
async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n{}") {
        assert_ne!(
            stream.read_buf(&mut text).await.unwrap(),
            0,
            "{}",
            String::from_utf8_lossy(&text)
        );
    }
    String::from_utf8(text).unwrap()
}

async fn body_of(response: Result<Response<ResponseBody>, Error>) -> Bytes {
    let mut response = response.unwrap();
    let mut whole = Vec::new();
    while let Some(chunk) = chunk(&mut response).await.unwrap() {
        whole.extend_from_slice(&chunk);
    }
    whole.into()
}

#[tokio::test]
async fn request_is_written_with_its_headers_and_body() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        let text = read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        text
    };
    let (text, response) = tokio::join!(server, client.execute(post(&target)));
    let host = target;
    assert_eq!(
        text,
        format!("POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-length: 2\r\n\r\n{{}}")
    );
    let response = response.unwrap();
    assert_eq!(
        (response.status(), response.body().length()),
        (StatusCode::OK, Some(2))
    );
    assert_eq!(body_of(Ok(response)).await, "ok");
}

#[tokio::test]
async fn refused_connection_is_a_connect_error() {
    let (listener, target, client) = served().await;
    drop(listener);
    let error = client.execute(post(&target)).await.err().unwrap();
    assert!(is_connect(&error));
    assert!(reason(&error).contains("refused"), "{}", reason(&error));
}

#[tokio::test(start_paused = true)]
async fn connection_timeout_is_a_connect_error() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Nobody accepts: once the queue is full, further connections get no answer.
    let mut queue = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address)).await
    {
        queue.push(connected.unwrap());
        assert!(queue.len() < 64, "the queue does not fill");
    }
    let target = address;
    let client = client(&target);
    let began = tokio::time::Instant::now();
    let error = client.execute(post(&target)).await.err().unwrap();
    assert!(is_connect(&error), "{}", reason(&error));
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn connection_closed_while_idle_is_replaced() {
    let (listener, target, client) = served().await;
    let server = async {
        for connection in 0..2 {
            let mut stream = listener.accept().await.unwrap().0;
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            drop(stream);
            if connection == 0 {
                // When this arrives at the client, the other connection's end has arrived, too.
                listener
                    .accept()
                    .await
                    .unwrap()
                    .0
                    .write_all(b"!")
                    .await
                    .unwrap();
            }
        }
    };
    let calls = async {
        assert_eq!(body_of(client.execute(post(&target)).await).await, "ok");
        let mut beside = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        assert_eq!(beside.read_u8().await.unwrap(), b'!');
        assert_eq!(body_of(client.execute(post(&target)).await).await, "ok");
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn request_that_was_written_is_not_sent_again() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        // On a reused connection, a client could be tempted to repeat the request.
        read_request(&mut stream).await;
        drop(stream);
        let mut again = listener.accept().await.unwrap().0;
        read_request(&mut again).await;
        again.write_all(OK).await.unwrap();
    };
    let calls = async {
        assert_eq!(body_of(client.execute(post(&target)).await).await, "ok");
        let error = client.execute(post(&target)).await.err().unwrap();
        assert!(!is_connect(&error), "{}", reason(&error));
    };
    tokio::select! {
        () = server => panic!("sent a second time"),
        () = calls => {}
    }
}

#[tokio::test]
async fn response_with_too_many_headers_is_an_error() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        let headers: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes())
            .await
            .unwrap();
        stream
    };
    let (_stream, response) = tokio::join!(server, client.execute(post(&target)));
    let error = response.err().unwrap();
    assert!(!is_connect(&error));
    assert!(
        reason(&error).contains("head is too large"),
        "{}",
        reason(&error)
    );
}

#[tokio::test]
async fn body_that_breaks_off_is_an_error() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")
            .await
            .unwrap();
    };
    let ((), response) = tokio::join!(server, client.execute(post(&target)));
    let mut response = response.unwrap();
    let mut read = chunk(&mut response).await;
    while matches!(read, Ok(Some(_))) {
        read = chunk(&mut response).await;
    }
    assert!(!is_connect(&read.err().unwrap()));
}

#[test]
fn connections_are_not_shared_between_workers() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let runtime_of_server = runtime();
    let listener = runtime_of_server
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let target = listener.local_addr().unwrap();
    let client = Arc::new(client(&target));
    let worker = |number| {
        let (client, target) = (Arc::clone(&client), target);
        thread::spawn(move || {
            enter_worker(number, 2);
            runtime().block_on(async {
                for _ in 0..3 {
                    assert_eq!(body_of(client.execute(post(&target)).await).await, "ok");
                }
            });
        })
    };
    let workers = [worker(0), worker(1)];
    runtime_of_server.block_on(async {
        let serve = |mut stream: TcpStream| async move {
            for _ in 0..3 {
                read_request(&mut stream).await;
                stream.write_all(OK).await.unwrap();
            }
        };
        let both = async {
            let (first, second) = (
                listener.accept().await.unwrap().0,
                listener.accept().await.unwrap().0,
            );
            tokio::join!(serve(first), serve(second));
        };
        tokio::time::timeout(Duration::from_secs(30), both)
            .await
            .expect("two connections");
    });
    for worker in workers {
        worker.join().unwrap();
    }
}

#[test]
fn second_response_never_contains_bytes_of_the_first() {
    let mut random = fastrand::Rng::with_seed(16);
    for _ in 0..500 {
        let mut data = [0; 8];
        random.fill(&mut data);
        let tail: Vec<u8> = if random.u8(..) < 64 {
            (0..random.usize(..20)).map(|_| random.u8(..)).collect()
        } else {
            vec![]
        };
        desync::run(&[&data[..], &tail].concat());
    }
}
