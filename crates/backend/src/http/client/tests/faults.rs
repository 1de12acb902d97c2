//! What becomes of the connections of a pool when the other end does not do what it should.

use std::future::poll_fn;
use std::pin::pin;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::*;

/// Answers one request and gives the connection back.
async fn answered(listener: &TcpListener) -> TcpStream {
    let mut stream = listener.accept().await.unwrap().0;
    read_request(&mut stream).await;
    stream.write_all(OK).await.unwrap();
    stream
}

/// The client has closed the connection, without having sent anything more.
async fn closed(stream: &mut TcpStream) {
    assert_eq!(stream.read(&mut [0; 64]).await.unwrap_or_default(), 0, "there is a request on it");
}

async fn called(client: &HttpClient, target: &Arc<Target>) {
    assert_eq!(body_of(client.execute(post(target)).await).await, "ok");
}

/// Makes the end of a connection one that the other side sees as a reset.
fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}

#[tokio::test]
async fn an_idle_connection_is_closed_when_the_server_closes_it() {
    let (listener, target, client) = served().await;
    let (mut stream, ()) = tokio::join!(answered(&listener), called(&client, &target));
    // Half of it: the server could still read.
    stream.shutdown().await.unwrap();
    closed(&mut stream).await;
}

#[tokio::test]
async fn an_idle_connection_that_ends_is_never_used_again() {
    enum End {
        Half,
        Reset,
        Unasked(&'static [u8]),
    }
    for end in [End::Half, End::Reset, End::Unasked(OK), End::Unasked(b"!")] {
        let (listener, target, client) = served().await;
        let (mut stream, ()) = tokio::join!(answered(&listener), called(&client, &target));
        // The client has not run since, so this is there before the keeper can see to it.
        let rest = match end {
            End::Half => {
                stream.shutdown().await.unwrap();
                Some(stream)
            }
            End::Reset => {
                reset(stream);
                None
            }
            End::Unasked(bytes) => {
                stream.write_all(bytes).await.unwrap();
                Some(stream)
            }
        };
        // What another connection brings says that this has been seen as well.
        let beside = async {
            let mut beside = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            assert_eq!(beside.read_u8().await.unwrap(), b'!');
        };
        let server = async { listener.accept().await.unwrap().0.write_all(b"!").await.unwrap() };
        tokio::join!(beside, server);
        tokio::join!(answered(&listener), called(&client, &target));
        if let Some(mut stream) = rest {
            closed(&mut stream).await;
        }
    }
}

#[tokio::test]
async fn a_head_that_breaks_off_is_an_error_and_the_request_is_not_sent_again() {
    for (head, is_reset) in [("", true), ("HTTP/1.1 20", false), ("HTTP/1.1 200 OK\r\ncontent-le", true)] {
        let (listener, target, client) = served().await;
        let server = async {
            let mut stream = answered(&listener).await;
            // On a connection that has served, which is what clients like to try again after.
            read_request(&mut stream).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            if is_reset {
                reset(stream);
            } else {
                drop(stream);
            }
            answered(&listener).await;
        };
        let calls = async {
            called(&client, &target).await;
            let error = client.execute(post(&target)).await.err().unwrap();
            assert!(!error.nothing_was_sent(), "{head:?}: {}", error.reason());
        };
        tokio::select! {
            _ = server => panic!("{head:?}: sent a second time"),
            () = calls => {}
        }
    }
}

#[tokio::test]
async fn a_head_may_arrive_byte_by_byte() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        stream.set_nodelay(true).unwrap();
        for _ in 0..2 {
            read_request(&mut stream).await;
            for byte in OK {
                stream.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    };
    let calls = async {
        called(&client, &target).await;
        called(&client, &target).await;
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_ends_its_connection() {
    let (listener, target, client) = served().await;
    let mut stream = {
        let mut executing = pin!(client.execute(post(&target)));
        let server = async {
            let mut stream = listener.accept().await.unwrap().0;
            read_request(&mut stream).await;
            stream
        };
        tokio::select! {
            stream = server => stream,
            _ = executing.as_mut() => panic!("nobody has answered"),
        }
    };
    closed(&mut stream).await;
}

#[tokio::test]
async fn a_response_whose_rest_nobody_reads_ends_its_connection_unless_the_rest_is_there() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = answered(&listener).await;
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok").await.unwrap();
        closed(&mut stream).await;
    };
    let calls = async {
        drop(client.execute(post(&target)).await.unwrap());
        drop(client.execute(post(&target)).await.unwrap());
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn no_more_connections_are_kept_than_allowed() {
    let (listener, target, client) = served().await;
    let calls = async {
        let all = (0..SETTINGS.most_idle + 1).map(|_| called(&client, &target));
        futures_util::future::join_all(all).await;
    };
    let server = async {
        let mut streams = Vec::new();
        for _ in 0..SETTINGS.most_idle + 1 {
            streams.push(listener.accept().await.unwrap().0);
        }
        for stream in &mut streams {
            read_request(stream).await;
        }
        for stream in &mut streams {
            stream.write_all(OK).await.unwrap();
        }
        streams
    };
    let (mut streams, ()) = tokio::join!(server, calls);
    futures_util::future::select_all(streams.iter_mut().map(|stream| closed(stream).boxed_local())).await;
    // How many are a worker's share depends on how many workers the tests beside this one have.
    let ended = streams.iter_mut().filter_map(|stream| closed(stream).now_or_never()).count();
    assert!(ended < streams.len(), "none is kept");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_idle_for_long_is_closed() {
    let (listener, target, client) = served().await;
    let (mut stream, ()) = tokio::join!(answered(&listener), called(&client, &target));
    let began = Instant::now();
    closed(&mut stream).await;
    let idle = began.elapsed().as_secs();
    assert!((45..=90).contains(&idle), "{idle}");
}

#[tokio::test]
async fn who_waits_for_a_connection_gets_the_first_that_is_free() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let target = target(listener.local_addr().unwrap());
    let client = HttpClient::new(&target, SETTINGS).unwrap();
    let mut first = pin!(client.execute(post(&target)));
    let mut stream = tokio::select! {
        accepted = listener.accept() => accepted.unwrap().0,
        _ = first.as_mut() => panic!("nobody has answered"),
    };
    // From here on nobody can connect.
    let mut queue = Vec::new();
    tokio::time::pause();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(listener.local_addr().unwrap())).await
    {
        queue.push(connected.unwrap());
        assert!(queue.len() < 64, "the queue does not fill");
    }
    tokio::time::resume();
    let mut second = pin!(client.execute(post(&target)));
    // The first poll only lets others have their turn.
    for _ in 0..2 {
        assert!(poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await);
    }
    let server = async {
        for _ in 0..2 {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
        }
    };
    let calls = async {
        assert_eq!(body_of(first.await).await, "ok");
        assert_eq!(body_of(second.await).await, "ok");
    };
    tokio::join!(server, calls);
}

#[test]
fn connections_end_with_the_runtime_they_were_made_in() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (listener, target, client) = {
        let first = runtime();
        let (listener, target, client) = first.block_on(async {
            let (listener, target, client) = served().await;
            tokio::join!(answered(&listener), called(&client, &target));
            (listener.into_std().unwrap(), target, client)
        });
        (listener, target, client)
    };
    runtime().block_on(async {
        let listener = TcpListener::from_std(listener).unwrap();
        tokio::join!(answered(&listener), called(&client, &target));
    });
}
