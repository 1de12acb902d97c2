//! What becomes of requests on the plain way, where the other end does not do what it should.

use std::thread;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::worker;

mod faults;
mod long_bodies;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const SETTINGS: ClientSettings =
    ClientSettings { connect_timeout: Duration::from_secs(5), idle_timeout: Duration::from_secs(90), most_idle: 4 };

fn target(address: impl std::fmt::Display) -> Arc<Target> {
    Arc::new(Target::new(Url::parse(&format!("http://{address}/mcp")).unwrap()).unwrap())
}

fn post(target: &Arc<Target>) -> HttpRequest {
    let host = target.host().unwrap().try_into().unwrap();
    let headers = HeaderMap::from_iter([(http::header::HOST, host)]);
    HttpRequest { method: Method::POST, target: Arc::clone(target), headers, body: Bytes::from_static(b"{}") }
}

async fn served() -> (TcpListener, Arc<Target>, HttpClient) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = target(listener.local_addr().unwrap());
    let client = HttpClient::new(&target, SETTINGS).unwrap();
    (listener, target, client)
}

/// Reads one request, as it is sent here.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n{}") {
        assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0, "{}", String::from_utf8_lossy(&text));
    }
    String::from_utf8(text).unwrap()
}

async fn body_of(response: Result<HttpResponse, HttpError>) -> Bytes {
    let mut response = response.unwrap();
    let mut whole = Vec::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        whole.extend_from_slice(&chunk);
    }
    whole.into()
}

#[tokio::test]
async fn a_request_goes_out_as_it_was_made() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        let text = read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        text
    };
    let (text, response) = tokio::join!(server, client.execute(post(&target)));
    let host = target.host().unwrap();
    assert_eq!(text, format!("POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-length: 2\r\n\r\n{{}}"));
    let response = response.unwrap();
    assert_eq!((response.status, response.content_length()), (StatusCode::OK, Some(2)));
    assert_eq!(body_of(Ok(response)).await, "ok");
}

#[tokio::test]
async fn a_refused_connection_means_that_nothing_was_sent() {
    let (listener, target, client) = served().await;
    drop(listener);
    let error = client.execute(post(&target)).await.err().unwrap();
    assert!(error.nothing_was_sent());
    assert!(error.reason().contains("refused"), "{}", error.reason());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_takes_too_long_means_that_nothing_was_sent() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Nobody accepts: once the queue is full, further connections are not answered.
    let mut queue = Vec::new();
    while let Ok(connected) = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address)).await {
        queue.push(connected.unwrap());
        assert!(queue.len() < 64, "the queue does not fill");
    }
    let target = target(address);
    let client = HttpClient::new(&target, SETTINGS).unwrap();
    let began = tokio::time::Instant::now();
    let error = client.execute(post(&target)).await.err().unwrap();
    assert!(error.nothing_was_sent(), "{}", error.reason());
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_connection_that_the_server_closed_while_idle_is_replaced() {
    let (listener, target, client) = served().await;
    let server = async {
        for connection in 0..2 {
            let mut stream = listener.accept().await.unwrap().0;
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            drop(stream);
            if connection == 0 {
                // That this arrives at the client tells that the end of the other has, too.
                listener.accept().await.unwrap().0.write_all(b"!").await.unwrap();
            }
        }
    };
    let calls = async {
        assert_eq!(body_of(client.execute(post(&target)).await).await, "ok");
        let mut beside = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert_eq!(beside.read_u8().await.unwrap(), b'!');
        assert_eq!(body_of(client.execute(post(&target)).await).await, "ok");
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        // Now on a connection that was used before, which is what clients like to try again after.
        read_request(&mut stream).await;
        drop(stream);
        let mut again = listener.accept().await.unwrap().0;
        read_request(&mut again).await;
        again.write_all(OK).await.unwrap();
    };
    let calls = async {
        assert_eq!(body_of(client.execute(post(&target)).await).await, "ok");
        let error = client.execute(post(&target)).await.err().unwrap();
        assert!(!error.nothing_was_sent(), "{}", error.reason());
    };
    tokio::select! {
        () = server => panic!("sent a second time"),
        () = calls => {}
    }
}

#[tokio::test]
async fn a_response_with_too_many_headers_is_none() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        let headers: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes()).await.unwrap();
        stream
    };
    let (_stream, response) = tokio::join!(server, client.execute(post(&target)));
    let error = response.err().unwrap();
    assert!(!error.nothing_was_sent());
    assert!(error.reason().contains("head is too large"), "{}", error.reason());
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok").await.unwrap();
    };
    let ((), response) = tokio::join!(server, client.execute(post(&target)));
    let mut response = response.unwrap();
    let mut read = response.chunk().await;
    while matches!(read, Ok(Some(_))) {
        read = response.chunk().await;
    }
    assert!(!read.err().unwrap().nothing_was_sent());
}

#[test]
fn each_worker_has_connections_of_its_own() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let runtime_of_server = runtime();
    let listener = runtime_of_server.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let target = target(listener.local_addr().unwrap());
    let client = Arc::new(HttpClient::new(&target, SETTINGS).unwrap());
    let worker = |number| {
        let (client, target) = (Arc::clone(&client), Arc::clone(&target));
        thread::spawn(move || {
            worker::enter(number, 2);
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
            let (first, second) = (listener.accept().await.unwrap().0, listener.accept().await.unwrap().0);
            tokio::join!(serve(first), serve(second));
        };
        tokio::time::timeout(Duration::from_secs(30), both).await.expect("two connections");
    });
    for worker in workers {
        worker.join().unwrap();
    }
}

#[test]
fn knows_loopback() {
    for (url, loopback) in
        [("http://localhost:1", true), ("http://127.9.9.9", true), ("http://[::1]:2", true), ("http://a.b", false)]
    {
        assert_eq!(Target::new(Url::parse(url).unwrap()).unwrap().is_loopback(), loopback, "{url}");
    }
}

#[test]
fn the_host_is_named_with_its_port_unless_the_scheme_implies_it() {
    for (url, host) in [("http://a.b:80/x", "a.b"), ("http://a.b:81", "a.b:81"), ("https://[::1]:1/", "[::1]:1")] {
        assert_eq!(Target::new(Url::parse(url).unwrap()).unwrap().host().as_deref(), Some(host));
    }
}

#[test]
fn only_plain_http_goes_the_plain_way() {
    for (url, plain) in [("http://127.0.0.1:1", true), ("https://127.0.0.1:1", false)] {
        let target = Target::new(Url::parse(url).unwrap()).unwrap();
        assert_eq!(HttpClient::new(&target, SETTINGS).unwrap().wants_host(), plain, "{url}");
    }
}
